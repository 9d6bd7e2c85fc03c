"""Seeds as words, and back (docs/protocol.md section 7.2.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkgrove.core import parse_words, render_words
from inkgrove.core.errors import KeysError
from inkgrove.core.word_list import WORD_LIST

# From the vectors that BIP-39 names.
PUBLISHED = {
    "00" * 32: " ".join(["abandon"] * 23 + ["art"]),
    "7f" * 32: "legal winner thank year wave sausage worth useful legal winner thank year wave sausage worth useful "
    "legal winner thank year wave sausage worth title",
    "ff" * 32: " ".join(["zoo"] * 23 + ["vote"]),
    "68a79eaca2324873eacc50cb9c6eca8cc68ea5d936f98787c60c7ebc74e6ce7c": "hamster diagram private dutch cause delay "
    "private meat slide toddler razor book happy fancy gospel tennis maple dilemma loan word shrug inflict delay "
    "length",
}


@pytest.mark.parametrize("seed", PUBLISHED)
def test_words_are_those_of_the_published_vectors(seed: str) -> None:
    assert render_words(bytes.fromhex(seed)) == PUBLISHED[seed]
    assert parse_words(PUBLISHED[seed]).hex() == seed


def test_list_is_whole_and_in_order() -> None:
    assert (len(WORD_LIST), len(set(WORD_LIST)), sorted(WORD_LIST)) == (2048, 2048, list(WORD_LIST))
    assert len({word[:4] for word in WORD_LIST}) == 2048


@given(st.binary(min_size=32, max_size=32))
def test_parse_after_render_is_identity(seed: bytes) -> None:
    words = render_words(seed).split()
    on_paper = "\n".join(f"{number}. {word.upper()}" for number, word in enumerate(words, 1))
    assert parse_words(on_paper) == seed


GOOD = PUBLISHED["7f" * 32]


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (
            GOOD.replace("sausage", "sausgae", 1),
            "key.wrong-word",
            "word 6, 'sausgae', is not in the list; did you mean sausage",
        ),
        (GOOD.replace(" title", ""), "key.bad-words", "these are 23 words"),
        (GOOD + " title", "key.bad-words", "these are 25 words"),
        ("", "key.bad-words", "these are 0 words"),
        (GOOD.replace("legal winner", "winner legal", 1), "key.bad-words", "do not fit together"),
        (GOOD.replace("title", "zoo"), "key.bad-words", "do not fit together"),
    ],
    ids=["misspelt", "too few", "too many", "none", "exchanged", "another"],
)
def test_wrong_words_are_told_apart(text: str, code: str, says: str) -> None:
    with pytest.raises(KeysError) as caught:
        parse_words(text)
    assert (caught.value.code, says in caught.value.message) == (code, True)

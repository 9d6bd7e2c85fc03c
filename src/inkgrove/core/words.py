"""A seed as 24 words, to be written down on paper (docs/protocol.md section 7.2.1).

BIP-39 without key stretching: 256 bits of seed and 8 bits of its SHA-256 are 24 numbers of 11 bits, each a word.
"""

import re
from difflib import get_close_matches
from hashlib import sha256
from typing import Final

from inkgrove.core.errors import KeysError
from inkgrove.core.keys import KEY_BYTES
from inkgrove.core.word_list import WORD_LIST

WORDS: Final = 24
_BITS: Final = 11
_NUMBERS: Final = {word: number for number, word in enumerate(WORD_LIST)}


def render_words(seed: bytes) -> str:
    """Render a 32-byte seed as 24 words with spaces between them."""
    if len(seed) != KEY_BYTES:
        raise KeysError("key.bad-key", f"a seed has {KEY_BYTES} bytes, not {len(seed)}")
    value = int.from_bytes(seed + sha256(seed).digest()[:1], "big")
    return " ".join(WORD_LIST[value >> _BITS * place & 2047] for place in reversed(range(WORDS)))


def parse_words(text: str) -> bytes:
    """Return the seed that words stand for; case, spaces and numbers before the words do not matter.

    Raises `key.wrong-word` with the number of a word that is not in the list, or `key.bad-words` if they are not 24 or
    their checksum is wrong. No message holds a word that was right.
    """
    words = re.findall(r"[a-z]+", text.lower())
    for number, word in enumerate(words, 1):
        if word not in _NUMBERS:
            near = get_close_matches(word, WORD_LIST, 2)
            advice = f"; did you mean {' or '.join(near)}?" if near else ""
            raise KeysError(
                "key.wrong-word", f"word {number}, {word[:20]!r}, is not in the list{advice}", number=number
            )
    if len(words) != WORDS:
        raise KeysError("key.bad-words", f"these are {len(words)} words, and {WORDS} are needed", count=len(words))
    value = 0
    for word in words:
        value = value << _BITS | _NUMBERS[word]
    data = value.to_bytes(KEY_BYTES + 1, "big")
    seed = data[:KEY_BYTES]
    if sha256(seed).digest()[:1] != data[KEY_BYTES:]:
        raise KeysError(
            "key.bad-words", "each word is in the list, but they do not fit together: one is another, or the order is"
        )
    return seed

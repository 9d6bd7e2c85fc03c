"""What nodes say to each other when they replicate, and what is refused of it."""

from typing import Any

import pytest

from inkgrove.core.errors import BadReplication
from inkgrove.core.keys import PublicKey
from inkgrove.federation.errors import BadAnswer
from inkgrove.federation.replicating import check, fetch, in_questions
from inkgrove.messages import cbor
from inkgrove.messages.replication import (
    FORM,
    MAX_LOGS,
    MAX_RANGES,
    AskHeights,
    Entries,
    Heights,
    LogHeight,
    Want,
    decode_ask_heights,
    decode_entries,
    decode_heights,
    decode_wants,
    encode_ask_heights,
    encode_entries,
    encode_heights,
    encode_wants,
)
from inkgrove.store.prepare import LogKey
from tests.support.logs import LogBuilder, key
from tests.support.peers import run

JANE = key(1).public


def test_questions_and_answers_read_as_they_were_written() -> None:
    for question in (AskHeights(), AskHeights("MC4x", 7)):
        assert decode_ask_heights(encode_ask_heights(question)) == question
    wants = [Want(JANE, 1, [(1, 4), (7, 7)], 2), Want(JANE, 0, [])]
    assert decode_wants(encode_wants(wants)) == wants
    heights = Heights([LogHeight(JANE, 1, 9, 3), LogHeight(JANE, 2, 1, 1, (b"one", b"other"))], "MC4x", None)
    assert decode_heights(encode_heights(heights)) == heights
    entries = Entries([(b"entry", b"payload"), (b"pool", None)], (1, 40))
    assert decode_entries(encode_entries(entries)) == entries


@pytest.mark.parametrize(
    "wants",
    [
        [[b"short", 1, [[1, 2]], 0]],
        [[bytes(JANE), -1, [[1, 2]], 0]],
        [[bytes(JANE), 1, [[2, 1]], 0]],
        [[bytes(JANE), 1, [[0, 1]], 0]],
        [[bytes(JANE), 1, [[3, 4], [1, 2]], 0]],
        [[bytes(JANE), 1, [[1, 2]]]],
        [[bytes(JANE), 1, [[1, 2**63]], 0]],
        [[bytes(JANE), 1, [], 0]] * (MAX_LOGS + 1),
        [[bytes(JANE), 1, [[n, n] for n in range(1, MAX_RANGES, 2)], 0]] * 3,
        "everything",
    ],
)
def test_bad_wants_are_refused(wants: Any) -> None:
    with pytest.raises(BadReplication):
        decode_wants(cbor.encode({"form": FORM, "wants": wants}))


@pytest.mark.parametrize("body", [b"", b"\xff", cbor.encode({}), cbor.encode({"form": "inkgrove replication 2"})])
def test_other_bodies_are_refused(body: bytes) -> None:
    for decode in (decode_ask_heights, decode_wants, decode_heights, decode_entries):
        with pytest.raises(BadReplication):
            decode(body)


def test_many_wants_are_asked_in_several_questions() -> None:
    wants = [Want(PublicKey(n.to_bytes(32, "big")), 1, [(1, 2), (4, 5)]) for n in range(MAX_LOGS + 1)]
    questions = in_questions(wants)
    assert [len(question) for question in questions] == [MAX_LOGS, 1]
    wide = [Want(JANE, n, [(2 * m + 1, 2 * m + 1) for m in range(1_000)]) for n in range(5)]
    assert [len(question) for question in in_questions(wide)] == [4, 1]


def test_entries_of_other_logs_than_asked_for_are_refused() -> None:
    log = LogBuilder(key(2), log_id=3).grow(1)
    answer = Entries([(log.entry(1).encoded, log.payloads[0])], None)
    assert check(answer, {(key(2).public, 3)}).count == 1
    with pytest.raises(BadAnswer, match="not asked for"):
        check(answer, {(key(2).public, 4)})


class _Looping:
    """A node that always says that there is more."""

    def __init__(self, following: tuple[int, int]) -> None:
        self.following = following
        self.asked = 0

    async def entries(self, _wants: object) -> Entries:
        self.asked += 1
        return Entries([], self.following)


@pytest.mark.parametrize("following", [(0, 5), (3, 1)])
def test_node_that_never_comes_to_an_end_is_given_up(following: tuple[int, int]) -> None:
    source = _Looping(following)

    async def use(_answer: Entries, _asked: set[LogKey]) -> None:
        pass

    with pytest.raises(BadAnswer):
        run(fetch(source, [Want(JANE, 1, [(1, 9)])], use))  # type: ignore[arg-type]
    assert source.asked <= 2

"""What nodes say to each other when they replicate, and what is refused of it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from inkgrove.core import PublicKey
from inkgrove.federation.errors import BadAnswer, EndlessAnswer
from inkgrove.federation.replication import check_response, fetch_entries, in_questions
from inkgrove.messages import (
    MAX_LOGS,
    MAX_RANGES,
    REPLICATION_FORMAT,
    AskHeights,
    Entries,
    Heights,
    LogHeight,
    Want,
    cbor,
    decode_ask_heights,
    decode_entries,
    decode_heights,
    decode_wants,
    encode_ask_heights,
    encode_entries,
    encode_heights,
    encode_wants,
)
from inkgrove.store.logs import LogKey
from tests.support.errors import raises
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
    with raises("parcel.bad-replication"):
        decode_wants(cbor.encode({"form": REPLICATION_FORMAT, "wants": wants}))


@pytest.mark.parametrize("body", [b"", b"\xff", cbor.encode({}), cbor.encode({"form": "inkgrove replication 2"})])
def test_other_bodies_are_refused(body: bytes) -> None:
    for decode in (decode_ask_heights, decode_wants, decode_heights, decode_entries):
        with raises("parcel.bad-replication"):
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
    assert check_response(answer, {(key(2).public, 3)}).count == 1
    with pytest.raises(BadAnswer, match="not asked for"):
        check_response(answer, {(key(2).public, 4)})


class Answering:
    """A node that answers whatever it is told to, by the first want that is left."""

    def __init__(self, answer: Callable[[Want], Entries]) -> None:
        self.answer = answer
        self.asked = self.used = 0

    async def entries(self, wants: Sequence[Want]) -> Entries:
        self.asked += 1
        return self.answer(wants[0])

    def fetch(self, *wants: Want) -> None:
        async def use(_answer: Entries, _asked: set[LogKey]) -> None:
            self.used += 1

        run(fetch_entries(self, wants, use))  # type: ignore[arg-type]


@pytest.mark.parametrize("following", [(0, 5), (3, 1)])
def test_node_that_never_comes_to_an_end_is_given_up(following: tuple[int, int]) -> None:
    node = Answering(lambda _: Entries([], following))
    with pytest.raises(BadAnswer):
        node.fetch(Want(JANE, 1, [(1, 9)]))
    assert (node.asked, node.used) == (1, 0)


LONG = 2**62


def forged(seq_num: int) -> bytes:
    """An entry of jane's that she has not signed."""
    log = LogBuilder(key(1), log_id=1).grow(seq_num)
    return log.entry(seq_num).encoded[:-64] + bytes(64)


@pytest.mark.parametrize(
    "entry",
    [b"garbage", forged(1), LogBuilder(key(1), log_id=1).grow(2).entry(2).encoded, LogBuilder(key(2)).append().encoded],
    ids=["garbage", "unsigned", "another place", "another log"],
)
def test_answer_that_does_not_bring_what_it_says_to_have_brought_ends_the_asking(entry: bytes) -> None:
    node = Answering(lambda want: Entries([(entry, None)], (0, want.after + 1)))
    with pytest.raises(BadAnswer, match="sends nothing"):
        node.fetch(Want(JANE, 1, [(1, LONG)]))
    assert (node.asked, node.used) == (1, 0)


def test_answer_that_goes_on_with_the_next_log_must_have_brought_something_of_the_one_before() -> None:
    wants = Want(JANE, 1, [(1, 9)]), Want(JANE, 2, [(1, 9)])
    with pytest.raises(BadAnswer, match="sends nothing"):
        Answering(lambda _: Entries([(b"garbage", None)], (1, 0))).fetch(*wants)
    first = LogBuilder(key(1), log_id=1).append().encoded
    answers = {1: Entries([(first, None)], (1, 0)), 2: Entries([], None)}
    honest = Answering(lambda want: answers[want.log_id])
    honest.fetch(*wants)
    assert (honest.asked, honest.used) == (2, 2)


@pytest.mark.parametrize("after", [9, 10, 2**62])
def test_answer_that_goes_on_behind_what_was_wanted_is_refused(after: int) -> None:
    log = LogBuilder(key(1), log_id=1).grow(10)
    items = [(entry.encoded, None) for entry in log.entries]
    with pytest.raises(BadAnswer, match="behind what it was asked for"):
        Answering(lambda _: Entries(items, (0, after))).fetch(Want(JANE, 1, [(1, 4), (7, 9)]))


def test_node_that_sends_its_own_endless_log_entry_by_entry_is_left() -> None:
    log = LogBuilder(key(1), log_id=1).grow(110)

    def drip(want: Want) -> Entries:
        return Entries([(log.entry(want.after + 1).encoded, None)], (0, want.after + 1))

    node = Answering(drip)
    with pytest.raises(EndlessAnswer):
        node.fetch(Want(JANE, 1, [(1, LONG)]))
    assert (node.asked, node.used) == (101, 100)


def test_node_that_fills_its_answers_may_take_as_many_as_it_needs() -> None:
    log = LogBuilder(key(1), log_id=1).grow(150)

    def fill(want: Want) -> Entries:
        place = want.after + 1
        return Entries([(log.entry(place).encoded, bytes(1024 * 1024))], (0, place) if place < 150 else None)

    node = Answering(fill)
    node.fetch(Want(JANE, 1, [(1, 150)]))
    assert (node.asked, node.used) == (150, 150)


def test_proof_that_is_too_long_for_entries_is_refused() -> None:
    with raises("parcel.bad-replication"):
        decode_heights(encode_heights(Heights([LogHeight(JANE, 2, 1, 1, (bytes(401), b"other"))], "MC4x", None)))

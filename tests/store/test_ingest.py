"""Taking entries in: what is stored, refused or kept as evidence (docs/protocol.md section 2)."""

from typing import Any

from inkgrove.core import Entry, Flavour, NextEntry, certificate_pool, decode_entry, hash_entry, verify_signed
from inkgrove.core.errors import InkgroveError
from inkgrove.store.logs import (
    IngestKind,
    IngestReceipt,
    IngestStatus,
    LogStore,
    LogValidity,
    drop_payloads,
    find_fork_proof,
    find_log,
    messages_between,
    newest_offset,
    read_entries,
    read_ingests,
    read_logs,
    read_next_entry,
)
from tests.support.logs import LogBuilder, key, resign, sparse_log


def items(log: LogBuilder, *seq_nums: int, payloads: bool = True) -> list[tuple[Entry, bytes | None]]:
    """The entries of these places, or all."""
    numbers = seq_nums or range(1, len(log.entries) + 1)
    return [(log.entry(n), log.payloads[n - 1] if payloads else None) for n in numbers]


def with_wrong_size(log: LogBuilder, seq_num: int) -> Entry:
    """The entry as its author would sign it with a wrong payload size."""
    entry = log.entry(seq_num)
    wrong = bytearray(entry.encoded)
    wrong[len(wrong) - 64 - len(entry.payload_hash) - 1] += 1
    return decode_entry(resign(log.secret, bytes(wrong)))


def said(receipts: list[IngestReceipt]) -> list[str]:
    """Status or error code of each receipt."""
    return [receipt.error.code if receipt.error else receipt.status.value for receipt in receipts]


def happened(store: LogStore) -> list[tuple[str, int | None]]:
    rows, _ = store.read(read_ingests)
    return list({row.offset: (row.what.value, row.seq_num) for row in rows}.values())


def standing(store: LogStore, log: LogBuilder) -> LogValidity:
    state = store.read(find_log, log.secret.public, log.log_id)
    assert state is not None
    return state.standing


def test_whole_log_is_stored_and_read_back(store: LogStore) -> None:
    log = LogBuilder().grow(50)
    assert said(store.ingest(items(log))) == ["stored"] * 50
    found = store.read(read_entries, log.secret.public, 1)
    assert [item.entry for item in found] == log.entries
    assert [item.payload for item in found] == log.payloads
    assert {item.refusal for item in found} == {None}
    assert store.heights() == {(log.secret.public, 1): 50}
    state = store.read(find_log, log.secret.public, 1)
    assert state is not None
    assert (state.height, state.held, state.is_whole, state.invalid_from) == (50, 50, True, None)


def test_part_of_a_log_is_read(store: LogStore) -> None:
    log = LogBuilder().grow(9)
    store.ingest(items(log))
    assert [item.entry.seq_num for item in store.read(read_entries, log.secret.public, 1, 3, 5)] == [3, 4, 5]
    assert store.read(read_entries, log.secret.public, 2) == []
    assert store.read(find_log, log.secret.public, 2) is None


def test_bytes_entries_and_signed_entries_are_taken(store: LogStore) -> None:
    log = LogBuilder().grow(3)
    offered: list[tuple[Any, bytes | None]] = [
        (log.entry(1).encoded, log.payloads[0]),
        (log.entry(2), None),
        (verify_signed(log.entry(3)), log.payloads[2]),
    ]
    assert said(store.ingest(offered)) == ["stored"] * 3
    assert [item.payload for item in store.read(read_entries, log.secret.public, 1)] == [
        b"payload 1",
        None,
        b"payload 3",
    ]


def test_batch_in_reverse_order_is_stored(store: LogStore) -> None:
    log = LogBuilder().grow(20)
    assert said(store.ingest(items(log)[::-1])) == ["stored"] * 20


def test_several_logs_in_one_batch(store: LogStore) -> None:
    logs = [
        LogBuilder(key(number), log_id, flavour)
        for number in (1, 2)
        for log_id in (0, 1)
        for flavour in [Flavour.YASMF]
    ]
    offered = [item for log in logs for item in items(log.grow(5))]
    assert said(store.ingest(offered)) == ["stored"] * 20
    assert len(store.heights()) == 4


def test_known_entries_change_nothing(store: LogStore) -> None:
    log = LogBuilder().grow(5)
    store.ingest(items(log))
    before = store.read(newest_offset)
    assert said(store.ingest(items(log))) == ["known"] * 5
    assert said(store.ingest(items(log, payloads=False))) == ["known"] * 5
    assert store.read(newest_offset) == before


def test_one_entry_twice_in_a_batch(store: LogStore) -> None:
    log = LogBuilder().grow(1)
    offered = [(log.entry(1), None), (log.entry(1), log.payloads[0]), (log.entry(1), log.payloads[0])]
    assert sorted(said(store.ingest(offered))) == ["completed", "known", "stored"]
    assert store.read(read_entries, log.secret.public, 1)[0].payload == b"payload 1"


def test_late_payload_is_added_once(store: LogStore) -> None:
    log = LogBuilder().grow(2)
    store.ingest(items(log, payloads=False))
    assert said(store.ingest(items(log, 2))) == ["completed"]
    assert said(store.ingest(items(log, 2))) == ["known"]
    assert happened(store) == [("entry", 1), ("entry", 2), ("payload", 2)]


def test_rubbish_payload_is_dropped_and_the_entry_kept(store: LogStore) -> None:
    log = LogBuilder().grow(1)
    (receipt,) = store.ingest([(log.entry(1), b"something else")])
    assert (receipt.status, said([receipt])) == (IngestStatus.STORED, ["payload.hash-mismatch"])
    assert store.read(read_entries, log.secret.public, 1)[0].payload is None
    (receipt,) = store.ingest([(log.entry(1), b"something else")])
    assert (receipt.status, said([receipt])) == (IngestStatus.KNOWN, ["payload.hash-mismatch"])


def test_bad_items_do_not_keep_the_others_out(store: LogStore) -> None:
    log = LogBuilder().grow(3)
    broken = bytearray(log.entry(2).encoded)
    broken[-1] ^= 1
    large = LogBuilder(log_id=2**63).grow(1)
    offered: list[tuple[Any, bytes | None]] = [
        (b"rubbish", None),
        (log.entry(1), log.payloads[0]),
        (bytes(broken), None),
        (large.entry(1), None),
        (log.entry(3), None),
    ]
    receipts = store.ingest(offered)
    assert said(receipts) == [
        "entry.bad-tag", "stored", "entry.bad-signature", "limit.integer-too-large", "entry.no-path-to-first",
    ]  # fmt: skip
    assert [receipt.hash for receipt in receipts[3:]] == [large.hash(1), log.hash(3)]


def test_entry_without_path_leaves_no_trace(store: LogStore) -> None:
    log = LogBuilder().grow(5)
    assert said(store.ingest(items(log, 5))) == ["entry.no-path-to-first"]
    assert store.heights() == {}
    assert store.read(read_ingests)[0] == []


def test_certificate_pool_is_a_partial_log(store: LogStore) -> None:
    log = LogBuilder().grow(60)
    pool = certificate_pool(33, 60)
    assert set(said(store.ingest(items(log, *pool, payloads=False)))) == {"stored"}
    state = store.read(find_log, log.secret.public, 1)
    assert state is not None
    assert (state.held, state.is_whole) == (len(pool), False)
    assert set(said(store.ingest(items(log)))) == {"completed", "stored"}
    state = store.read(find_log, log.secret.public, 1)
    assert state is not None
    assert state.is_whole


def test_branch_is_kept_as_evidence_and_ends_the_log(store: LogStore) -> None:
    log = LogBuilder().grow(6)
    branch = log.fork_at(4).grow(3)
    store.ingest(items(log))
    receipts = store.ingest(items(branch, 4, 5))
    assert [receipt.status for receipt in receipts] == [IngestStatus.EVIDENCE, IngestStatus.EVIDENCE]
    assert said(receipts) == ["log.forked", "log.forked"]
    assert standing(store, log) == LogValidity(forked_at=4)
    assert happened(store)[-3:] == [("entry", 4), ("fork", 4), ("entry", 5)]
    found = store.read(read_entries, log.secret.public, 1)
    assert [item.entry.seq_num for item in found] == [1, 2, 3, 4, 4, 5, 5, 6]
    assert [item.refusal for item in found] == [None] * 3 + ["log.forked"] * 5
    proof = store.read(find_fork_proof, log.secret.public, 1)
    assert proof is not None
    assert (proof.seq_num, {proof.first.hash, proof.second.hash}) == (4, {log.hash(4), branch.hash(4)})
    assert said(store.ingest(items(log.grow(1), 7))) == ["log.forked"]


def test_earlier_fork_lowers_a_known_one(store: LogStore) -> None:
    log = LogBuilder().grow(8)
    store.ingest(items(log))
    store.ingest(items(log.fork_at(6), 6))
    late = log.fork_at(3).grow(5)
    assert store.ingest(items(late, 7))[0].status is IngestStatus.EVIDENCE  # it links to 6, where the fork is known
    assert standing(store, log) == LogValidity(forked_at=6)
    assert store.ingest(items(late, 6))[0].status is IngestStatus.EVIDENCE  # it links to 5
    assert standing(store, log) == LogValidity(forked_at=5)
    assert store.ingest(items(late, 4))[0].status is IngestStatus.EVIDENCE
    assert standing(store, log) == LogValidity(forked_at=3)
    proof = store.read(find_fork_proof, log.secret.public, 1)
    assert proof is not None
    assert proof.seq_num == 3


def test_claims_about_entries_that_are_not_held_show_a_fork(store: LogStore) -> None:
    log = LogBuilder().grow(13)
    branch = log.fork_at(7)
    store.ingest(items(log, 1, 2, 3, 4, 8))
    # Entry 8 claims a hash for entry 7, which nobody has sent.
    assert said(store.ingest(items(branch, 5, 6))) == ["stored", "stored"]
    assert store.ingest(items(branch, 7))[0].status is IngestStatus.EVIDENCE
    assert standing(store, log) == LogValidity(forked_at=7)


def test_lie_about_the_size_invalidates_from_there(store: LogStore) -> None:
    log = LogBuilder().grow(3)
    log.entries[2] = with_wrong_size(log, 3)
    log.grow(1)
    store.ingest(items(log, 1, 2))
    store.ingest(items(log, 3, payloads=False))
    assert said(store.ingest(items(log, 4))) == ["stored"]
    (receipt,) = store.ingest(items(log, 3))
    assert (receipt.status, said([receipt])) == (IngestStatus.EVIDENCE, ["payload.size-mismatch"])
    assert standing(store, log) == LogValidity(lied_at=3)
    assert happened(store)[-2:] == [("payload", 3), ("lie", 3)]
    assert [item.refusal for item in store.read(read_entries, log.secret.public, 1)] == [
        None, None, "log.invalid-since", "log.invalid-since",
    ]  # fmt: skip
    assert said(store.ingest(items(log.grow(1), 5))) == ["log.invalid-since"]
    assert store.write(drop_payloads, [log.hash(3), log.hash(1)]) == 1  # the lie stays provable


def test_earlier_lie_lowers_a_known_one(store: LogStore) -> None:
    log = LogBuilder()
    for seq_num in range(1, 6):
        log.append()
        if seq_num in (2, 4):
            log.entries[-1] = with_wrong_size(log, seq_num)
    store.ingest(items(log, payloads=False))
    for seq_num, lied_at in ((4, 4), (2, 2)):
        store.ingest(items(log, seq_num))
        assert standing(store, log) == LogValidity(lied_at=lied_at)


def test_nothing_follows_the_end(store: LogStore) -> None:
    log = LogBuilder().grow(2)
    log.append(is_end_of_log=True)
    store.ingest(items(log))
    assert said(store.ingest(items(log.grow(1), 4))) == ["entry.after-end-of-log"]
    assert standing(store, log) == LogValidity(ended_at=3)


def test_end_that_comes_late_takes_the_entries_behind_it_out(store: LogStore) -> None:
    log = LogBuilder().grow(5)
    log.append(is_end_of_log=True)
    log.grow(7)
    store.ingest(items(log, 1, 2, 3, 4, 13))
    store.ingest(items(log, 5, 6))
    assert happened(store)[-3:] == [("entry", 5), ("entry", 6), ("ended", 6)]
    assert store.read(read_entries, log.secret.public, 1)[-1].refusal == "entry.after-end-of-log"
    state = store.read(find_log, log.secret.public, 1)
    assert state is not None
    assert [m.seq_num for m in store.read(messages_between, state.id)] == [1, 2, 3, 4, 5, 6]
    branch = log.fork_at(13)
    branch.entries.pop()
    branch.append(is_end_of_log=True)
    assert store.ingest([(branch.entry(13), None)])[0].status is IngestStatus.EVIDENCE
    assert standing(store, log) == LogValidity(forked_at=13, ended_at=6)  # an end in the invalid part ends nothing


# publishing


def test_next_place_of_logs_in_every_state(store: LogStore) -> None:
    log, author = LogBuilder().grow(12), key(1).public
    assert store.read(read_next_entry, author, 1) == NextEntry(author, 1, 1, None, None, Flavour.YAMF)
    store.ingest(items(log))
    assert store.read(read_next_entry, author, 1) == NextEntry(author, 1, 13, log.hash(4), log.hash(12), Flavour.YAMF)
    store.ingest(items(log.fork_at(12), 12))
    assert refused(store, log) == "log.forked"
    ended = LogBuilder(log_id=2)
    ended.append(is_end_of_log=True)
    store.ingest(items(ended))
    assert refused(store, ended) == "log.ended"
    partial = LogBuilder(log_id=3).grow(16)
    store.ingest(items(partial, 1, 4, 13, 14, 15, 16)[:3])
    store.ingest(items(partial, 14, 15, 16))
    assert store.read(read_next_entry, author, 3).seq_num == 17
    lacking = LogBuilder(log_id=4).grow(11)
    store.ingest(items(lacking, 1, 4, 8, 9, 10, 11))
    assert store.read(read_next_entry, author, 4).lipmaa_link == lacking.hash(8)
    missing = LogBuilder(log_id=5).grow(40)
    store.ingest(items(missing, 1, 4, 13, 40))
    assert store.read(read_next_entry, author, 5).lipmaa_link is None  # entry 41 has only a backlink


def refused(store: LogStore, log: LogBuilder) -> str:
    try:
        store.read(read_next_entry, log.secret.public, log.log_id)
    except InkgroveError as error:
        return error.code
    raise AssertionError


def test_publishing_takes_only_the_next_entry(store: LogStore) -> None:
    log = LogBuilder().grow(6)
    assert said(store.ingest(items(log, 1, 2, 3), must_be_next=True)) == ["stored"] * 3
    assert said(store.ingest(items(log, 5), must_be_next=True)) == ["log.stale"]
    assert said(store.ingest(items(log, 3, 4), must_be_next=True)) == ["known", "stored"]


def test_publisher_that_comes_second_learns_the_next_place_and_forks_nothing(store: LogStore) -> None:
    log = LogBuilder().grow(4)
    store.ingest(items(log), must_be_next=True)
    rival = log.fork_at(4).grow(1)
    for seq_num in (4, 5):
        (receipt,) = store.ingest(items(rival, seq_num), must_be_next=True)
        assert said([receipt]) == ["log.stale"]
        assert receipt.error is not None
        assert receipt.error.data["next"] == store.read(read_next_entry, log.secret.public, 1)
    assert standing(store, log) == LogValidity()
    assert store.read(newest_offset).position == 4


def test_publishing_refuses_wrong_payloads_and_closed_logs(store: LogStore) -> None:
    log = LogBuilder().grow(1)
    assert said(store.ingest([(log.entry(1), b"other")], must_be_next=True)) == ["payload.hash-mismatch"]
    liar = with_wrong_size(log, 1)
    assert said(store.ingest([(liar, log.payloads[0])], must_be_next=True)) == ["payload.size-mismatch"]
    assert store.heights() == {}
    ended = LogBuilder(log_id=2).grow(1)
    ended.append(is_end_of_log=True)
    ended.grow(1)
    assert said(store.ingest(items(ended), must_be_next=True)) == ["stored", "stored", "log.ended"]
    store.ingest(items(log))
    store.ingest(items(LogBuilder().fork_at(1), 1))
    assert said(store.ingest(items(log.grow(1), 2), must_be_next=True)) == ["log.forked"]


def test_what_values_are_those_that_readers_know() -> None:
    assert {what.value for what in IngestKind} == {
        "entry", "payload", "payload-dropped", "fork", "lie", "ended", "branch", "registered", "unregistered",
    }  # fmt: skip


def test_lines_of_a_log_are_read_by_what_is_held_however_high_it_is(store: LogStore) -> None:
    sparse = sparse_log(key(3), 39)
    assert sparse[-1].seq_num == 2_026_277_576_509_488_133
    store.ingest([(entry, b"sparse") for entry in sparse])
    log = LogBuilder(key(4)).grow(5)
    branch = log.fork_at(3)
    store.ingest(items(log))
    store.ingest([(branch.entry(3), None)])
    numbers = {state.author: state.id for state in store.read(read_logs).values()}
    wanted = [(entry.encoded, b"sparse") for entry in sparse]
    assert list(store.lines_of(numbers[key(3).public], page=10)) == wanted
    # Two entries are at place 3; no page may lose one of them.
    forked = sorted([*items(log), (branch.entry(3), None)], key=lambda item: (item[0].seq_num, hash_entry(item[0])))
    for page in (1, 2, 3, 100):
        found = list(store.lines_of(numbers[key(4).public], page))
        assert found == [(entry.encoded, payload) for entry, payload in forked]

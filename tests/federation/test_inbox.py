"""What becomes of parcels that do not hold, or come at a bad time."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Connection

from inkgrove.core import (
    Entry,
    Hash,
    IdentityId,
    SignedEntry,
    certificate_pool,
    identity_of,
    union_of_pools,
    verify_signed,
)
from inkgrove.core.errors import LacksCreate, StoreUnavailable
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers import PeerResponse
from inkgrove.federation.sharing import (
    read_receipts,
    receive_delivery,
    receive_parcel,
    receive_request,
    release_waiting,
)
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    Delivery,
    Parcel,
    SchemaVersion,
    Update,
    decode_delivery,
    delivery,
    encode_delivery,
    encode_message,
)
from inkgrove.node.identity import create_identity
from inkgrove.node.publishing import MAX_REQUESTS_OF_SENDER, DeliveryDecision, find_held_instance
from inkgrove.node.publishing import local_delivery as requests
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import (
    RemoteIdentity,
    add_request,
    count_requests,
    find_remote_identity,
    find_request,
    lock_box,
    put_remote_identity,
    remove_requests,
)
from inkgrove.store.logs import find_entry, find_fork_proof
from inkgrove.store.node import put_key, put_relation_state, shares_of
from tests.federation.conftest import Clock
from tests.support.logs import LogBuilder, key
from tests.support.races import Meanwhile, begin_before_commit

SCHEMA = SchemaVersion(key(7).public, 1, 2)
JANE = identity_of(key(1).public)


def parcel(log: LogBuilder, seq_num: int, to: IdentityId) -> Parcel:
    entries = [
        (log.entry(n).encoded, log.payloads[n - 1] if n == seq_num else None)
        for n in certificate_pool(seq_num, len(log.entries))
    ]
    return Parcel(log.hash(seq_num), (to,), entries)


def part(log: LogBuilder, to: IdentityId, *seq_nums: int) -> Parcel:
    """Some messages of the instance that the log begins with."""
    entries = [
        (log.entry(n).encoded, log.payloads[n - 1] if n in seq_nums else None)
        for n in union_of_pools(seq_nums, seq_nums[-1])
    ]
    return Parcel(log.hash(1), (to,), entries)


def test_fork_is_kept_as_evidence_and_nobody_gets_the_second_branch(node: Node) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"})))
    log.append(encode_message(Create(SCHEMA, {"subject": "two"})))
    other = LogBuilder()
    other.entries, other.payloads = log.entries[:1], log.payloads[:1]
    other.append(encode_message(Create(SCHEMA, {"subject": "another two"})))

    (receipt,) = receive_parcel(node, JANE, parcel(log, 2, john))
    assert receipt.decision is DeliveryDecision.ACCEPTED
    (receipt,) = receive_parcel(node, JANE, parcel(other, 2, john))
    assert (receipt.decision, receipt.code) == (DeliveryDecision.REFUSED, "log.forked")
    assert node.database.read(lambda c: shares_of(c, other.hash(2))) == []
    evidence = node.store.read(find_entry, other.hash(2))
    assert evidence is not None
    assert evidence.payload is None
    assert node.store.read(find_fork_proof, key(1).public, 1) is not None


def test_end_that_does_not_hold_takes_nothing_else_of_the_delivery_down(node: Node) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "never sent"})))
    log.append(encode_message(Delete(1)))
    log.append(encode_message(Delete(1)))
    log.append(encode_message(Create(SCHEMA, {"subject": "good"})))
    payloads = {2: log.payloads[1], 3: b"not what the entry says"}
    entries = [(log.entry(n).encoded, payloads.get(n)) for n in union_of_pools([2, 3], 4)]
    ended = Parcel(log.hash(1), (john,), entries)

    first, second = receive_delivery(node, Delivery(JANE, [ended, parcel(log, 4, john)]))
    assert (first.decision, first.code) == (DeliveryDecision.REFUSED, "payload.hash-mismatch")
    assert second.decision is DeliveryDecision.ACCEPTED
    # What does not hold says nothing about the end either: the create is taken when it comes.
    (receipt,) = receive_parcel(node, JANE, parcel(log, 1, john))
    assert receipt.decision is DeliveryDecision.ACCEPTED


def test_request_that_comes_late_takes_nothing_newer_out_of_the_box(node: Node) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"})))
    log.append(encode_message(Update(SCHEMA, 1, {"subject": "two"})))
    payloads = dict(enumerate(log.payloads, start=1))

    def send(*seq_nums: int) -> tuple[DeliveryDecision, str | None]:
        entries = [(log.entry(n).encoded, payloads[n] if n in seq_nums else None) for n in union_of_pools(seq_nums, 2)]
        (receipt,) = receive_parcel(node, JANE, Parcel(log.hash(1), (john,), entries))
        return receipt.decision, receipt.code

    def waiting() -> list[int]:
        found = node.database.read(lambda c: find_request(c, john, JANE, log.hash(1)))
        if found is None:
            return []
        (parcel,) = decode_delivery(found).parcels
        return [n for n, (_, payload) in enumerate(parcel.entries, start=1) if payload is not None]

    assert send(1) == (DeliveryDecision.HELD, None)
    assert send(2) == (DeliveryDecision.REFUSED, "parcel.lacks-create")
    assert waiting() == [1]
    assert send(1, 2) == (DeliveryDecision.HELD, None)
    # What its sender has given up and sent again since then arrives after all.
    assert send(2) == (DeliveryDecision.REFUSED, "parcel.lacks-create")
    assert send(1) == (DeliveryDecision.HELD, None)
    assert waiting() == [1, 2]
    log.append(encode_message(Delete(1)))
    payloads[3] = log.payloads[2]
    entries = [(log.entry(n).encoded, payloads[n] if n == 3 else None) for n in certificate_pool(3, 3)]
    receive_parcel(node, JANE, Parcel(log.hash(1), (john,), entries))
    assert waiting() == []
    assert send(1, 2) == (DeliveryDecision.REFUSED, "parcel.ended-before")


def test_full_disk_refuses_nothing_for_good(tmp_path: Path) -> None:
    node = Node(tmp_path, NodeSettings(), home=tmp_path)
    try:
        john = create_identity(node, "john.haiku.ink", None).id
        node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
        log = LogBuilder()
        log.append(encode_message(Create(SCHEMA, {"subject": "x" * 100_000})))
        with node.database.reading() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreUnavailable, match="full"):
            receive_parcel(node, JANE, parcel(log, 1, john))
        with node.database.reading() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1000000")
        (receipt,) = receive_parcel(node, JANE, parcel(log, 1, john))
        assert receipt.decision is DeliveryDecision.ACCEPTED
    finally:
        node.close()


def john_who_knows_alice(node: Node) -> tuple[IdentityId, IdentityId, LogBuilder]:
    """Somebody hosted here, somebody whom they know, and jane's log with an instance that changes twice."""
    john = create_identity(node, "john.haiku.ink", None).id
    alice = identity_of(key(2).public)
    node.database.write(lambda c: put_relation_state(c, john, alice, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"})))
    log.append(encode_message(Update(SCHEMA, 1, {"subject": "two"})))
    log.append(encode_message(Update(SCHEMA, 1, {"subject": "three"})))
    return john, alice, log


def test_what_waits_of_an_instance_comes_with_the_next_change_when_the_sender_is_a_stranger_no_more(node: Node) -> None:
    john, alice, log = john_who_knows_alice(node)

    assert receive_parcel(node, JANE, part(log, john, 1, 2))[0].decision is DeliveryDecision.HELD
    assert (
        receive_parcel(node, alice, part(log, john, 1))[0].decision is DeliveryDecision.ACCEPTED
    )  # passed on as it was at first
    assert receive_parcel(node, JANE, part(log, john, 3))[0].decision is DeliveryDecision.ACCEPTED
    held = [node.store.read(find_entry, log.hash(seq_num)) for seq_num in (1, 2, 3)]
    assert [item is not None and item.payload for item in held] == log.payloads
    assert node.database.read(lambda c: find_request(c, john, JANE, log.hash(1))) is None


def test_newest_that_waits_of_an_instance_comes_with_the_next_change(node: Node) -> None:
    john, alice, log = john_who_knows_alice(node)
    assert receive_parcel(node, JANE, part(log, john, 1))[0].decision is DeliveryDecision.HELD
    assert receive_parcel(node, alice, part(log, john, 1))[0].decision is DeliveryDecision.ACCEPTED  # passed on
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))

    def put_newer(connection: Connection) -> None:
        """What another process does that took jane for a stranger a moment ago."""
        lock_box(connection, john)
        remove_requests(connection, john, JANE, log.hash(1))
        newer = encode_delivery(Delivery(JANE, [part(log, john, 1, 2)]))
        add_request(connection, john, JANE, log.hash(1), newer, str(SCHEMA.schema_id), 0)

    receipts = begin_before_commit(node.database, put_newer, lambda: receive_parcel(node, JANE, part(log, john, 3)))
    assert receipts[0].decision is DeliveryDecision.ACCEPTED
    held = [node.store.read(find_entry, log.hash(seq_num)) for seq_num in (1, 2, 3)]
    assert [item is not None and item.payload for item in held] == log.payloads
    assert node.database.read(lambda c: find_request(c, john, JANE, log.hash(1))) is None


def test_change_for_one_who_is_addressed_in_what_still_waits_asks_for_all_of_it(node: Node) -> None:
    alice, john = (create_identity(node, f"{name}.haiku.ink", None).id for name in ("alice", "john"))
    node.database.write(lambda c: put_relation_state(c, alice, JANE, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"}, Access("closed", (alice,)))))
    log.append(encode_message(Update(SCHEMA, 1, access=Access("closed", (alice, john)))))
    log.append(encode_message(Update(SCHEMA, 1, {"subject": "three"})))
    assert receive_parcel(node, JANE, part(log, alice, 1))[0].decision is DeliveryDecision.ACCEPTED
    assert receive_parcel(node, JANE, part(log, john, 1, 2))[0].decision is DeliveryDecision.HELD
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    # What is held for alice is from before john was addressed: not a word that he is not.
    (refused,) = receive_parcel(node, JANE, part(log, john, 3))
    assert (refused.decision, refused.code) == (DeliveryDecision.REFUSED, LacksCreate.code)
    assert receive_parcel(node, JANE, part(log, john, 1, 2, 3))[0].decision is DeliveryDecision.ACCEPTED
    assert set(node.database.read(lambda c: shares_of(c, log.hash(1)))) == {alice, john}


def test_change_for_one_who_has_nothing_of_it_asks_for_all_of_it(node: Node) -> None:
    """Others on the node may have less than what the sender believes this recipient to have."""
    john, alice = (create_identity(node, f"{name}.haiku.ink", None).id for name in ("john", "alice"))
    for me in (john, alice):
        node.database.write(lambda c, me=me: put_relation_state(c, me, JANE, "accepted", 0))  # type: ignore[misc]
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"})))
    for text in ("two", "three"):
        log.append(encode_message(Update(SCHEMA, 1, {"subject": text})))
    log.append(encode_message(Delete(1)))

    def send(to: IdentityId, *seq_nums: int) -> tuple[DeliveryDecision, str | None]:
        (receipt,) = receive_parcel(node, JANE, part(log, to, *seq_nums))
        return receipt.decision, receipt.code

    assert send(alice, 1) == (DeliveryDecision.ACCEPTED, None)
    assert send(john, 3) == (DeliveryDecision.REFUSED, LacksCreate.code)
    assert node.database.read(lambda c: shares_of(c, log.hash(1))) == [alice]
    assert send(alice, 2) == (DeliveryDecision.ACCEPTED, None)
    assert send(john, 1, 2, 3) == (DeliveryDecision.ACCEPTED, None)
    assert send(john, 4) == (DeliveryDecision.ACCEPTED, None)


def test_one_stranger_fills_no_box(node: Node) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    eve, mallory = identity_of(key(2).public), identity_of(key(3).public)
    logs = [LogBuilder(key(2)), LogBuilder(key(3))]
    for log in logs:
        for _ in range(MAX_REQUESTS_OF_SENDER + 1):
            log.append(encode_message(Create(SCHEMA, {"subject": "Buy!"})))
    spam = [receive_parcel(node, eve, parcel(logs[0], n, john))[0] for n in range(1, len(logs[0].entries) + 1)]
    assert [receipt.decision for receipt in spam] == [
        *[DeliveryDecision.HELD] * MAX_REQUESTS_OF_SENDER,
        DeliveryDecision.REFUSED,
    ]
    assert spam[-1].code == "federation.request-box-full"
    assert receive_parcel(node, mallory, parcel(logs[1], 1, john))[0].decision is DeliveryDecision.HELD


def test_box_that_strangers_filled_has_room_again_after_90_days(node: Node, clock: Clock) -> None:
    john, alice = (create_identity(node, f"{name}.haiku.ink", None).id for name in ("john", "alice"))
    for number in range(10, 20):
        log = LogBuilder(key(number))
        for _ in range(MAX_REQUESTS_OF_SENDER):
            log.append(encode_message(Create(SCHEMA, {"subject": "Buy!"})))
        parcels = [parcel(log, n, john) for n in range(1, MAX_REQUESTS_OF_SENDER + 1)]
        receive_delivery(node, Delivery(identity_of(key(number).public), parcels))
    receive_parcel(node, JANE, parcel(log, 1, alice))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "Hello"})))
    for days, fate in ((0, DeliveryDecision.REFUSED), (89, DeliveryDecision.REFUSED), (2, DeliveryDecision.HELD)):
        clock.go_on(days * 24 * 3600)
        assert receive_parcel(node, JANE, parcel(log, 1, john))[0].decision is fate
    assert node.database.read(lambda c: count_requests(c, john, JANE))[:2] == (1, 1)
    assert node.database.read(lambda c: count_requests(c, alice, JANE))[:2] == (1, 1)


@pytest.mark.both_databases
def test_request_that_comes_several_times_at_once_waits_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUESTS_OF_SENDER", 8)
    john = create_identity(node, "john.haiku.ink", None).id
    log = LogBuilder()
    for _ in range(12):
        log.append(encode_message(Create(SCHEMA, {"subject": "Hello"})))
    log.append(encode_message(Delete(1)))
    start = Barrier(4)

    def send(number: int) -> list[DeliveryDecision]:
        start.wait()
        parcels = [parcel(log, seq_num, john) for seq_num in range(1, 13)]
        ended = Parcel(Hash(b"\x00\x40" + bytes(64)), (john,), parcel(log, 13, john).entries)
        return [receive_parcel(node, JANE, item)[0].decision for item in (ended, *parcels[number:], *parcels[:number])]

    with ThreadPoolExecutor(4) as pool:
        fates = [fate for some in pool.map(send, range(4)) for fate in some]
    assert len(fates) == 52
    # Never more than there is room for, however many look at once.
    assert node.database.read(lambda c: count_requests(c, john, JANE))[:2] == (8, 8)


@pytest.mark.both_databases
def test_end_that_is_told_while_its_create_is_taken_in_is_heeded(node: Node, clock: Clock) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"})))
    log.append(encode_message(Delete(1)))
    end = Meanwhile(lambda: receive_parcel(node, JANE, part(log, john, 2)))

    def now() -> int:
        end()
        return clock()

    node.clock = now
    assert receive_parcel(node, JANE, part(log, john, 1))[0].decision is DeliveryDecision.ACCEPTED
    assert end.result()[0].decision is DeliveryDecision.ACCEPTED
    held = node.database.read(lambda c: find_held_instance(c, log.hash(1)))
    assert held is not None
    assert held.is_deleted


@pytest.mark.both_databases
def test_what_comes_while_the_box_is_emptied_stays_in_it(node: Node, clock: Clock) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    log = LogBuilder()
    for subject in ("one", "two"):
        log.append(encode_message(Create(SCHEMA, {"subject": subject})))
    assert [receipt.decision for receipt in receive_parcel(node, JANE, parcel(log, 1, john))] == [DeliveryDecision.HELD]
    node.database.write(lambda c: put_relation_state(c, JANE, john, "accepted", 0))
    # Another process took jane for a stranger a moment ago.
    put = partial(add_request, recipient=john, via=JANE, instance=log.hash(2), parcel=b"late", schema="", now=0)
    late = Meanwhile(lambda: node.database.write(put))

    def now() -> int:
        late()
        return clock()

    node.clock = now
    assert [receipt.decision for receipt in release_waiting(node, john, JANE)] == [DeliveryDecision.ACCEPTED]
    late.result()
    waiting = [node.database.read(lambda c: find_request(c, john, JANE, log.hash(n))) for n in (1, 2)]  # noqa: B023
    assert waiting == [None, b"late"]


def test_box_is_full_by_bytes_too(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUEST_BYTES", 10_000)
    john = create_identity(node, "john.haiku.ink", None).id
    log = LogBuilder()
    for _ in range(3):
        log.append(encode_message(Create(SCHEMA, {"subject": "x" * 4_000})))
    fates = [receive_parcel(node, JANE, parcel(log, n, john))[0].decision for n in (1, 2, 3)]
    assert fates == [DeliveryDecision.HELD, DeliveryDecision.HELD, DeliveryDecision.REFUSED]


def test_what_comes_again_is_recognised_without_its_signatures(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    log = LogBuilder()
    for number in range(9):
        log.append(encode_message(Create(SCHEMA, {"subject": f"number {number}"})))
    verified: list[Entry] = []

    def count(entry: Entry) -> SignedEntry:
        verified.append(entry)
        return verify_signed(entry)

    monkeypatch.setattr(delivery, "verify_signed", count)
    counts = []
    for seq_num in (9, 9, 6):
        verified.clear()
        assert receive_parcel(node, JANE, parcel(log, seq_num, john))[0].decision is DeliveryDecision.ACCEPTED
        counts.append(len(verified))
    first, third = (set(certificate_pool(seq_num, 9)) for seq_num in (9, 6))
    assert counts == [len(first), 0, len(third - first)]
    assert third - first
    # A signature that differs is another entry, and a bad one.
    entries = [*parcel(log, 9, john).entries]
    bent = entries[-1][0][:-1] + bytes([entries[-1][0][-1] ^ 1])
    forged = Parcel(log.hash(9), (john,), [*entries[:-1], (bent, entries[-1][1])])
    assert receive_parcel(node, JANE, forged)[0].code == "entry.bad-signature"


def test_sender_is_looked_up_once_for_a_key_that_is_nobodys(node: Node, clock: Clock) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    names = JANE, "jane.haiku.ink", "https://jane.haiku.ink"

    def known() -> RemoteIdentity:
        return RemoteIdentity(*names, key(1).public, 1, key(8).public, clock(), clock() + 3_600_000_000)

    def send(number: int) -> str:
        log = LogBuilder(key(number))
        log.append(encode_message(Create(SCHEMA, {"subject": "Hello"}, Access("closed", (john,)))))
        body = encode_delivery(Delivery(JANE, [parcel(log, 1, john)]))
        try:
            (receipt,) = read_receipts(PeerResponse(200, (), receive_request(node, known(), body))).values()
        except FederationError as error:
            if error.code != "federation.sender-unreachable":
                raise
            return f"again after {error.data['retry_after']} s"
        return str(receipt.get("code"))

    def is_to_be_asked() -> bool:
        found = node.database.read(lambda c: find_remote_identity(c, JANE))
        return found is not None and found.expires <= clock()

    node.database.write(lambda c: put_remote_identity(c, known()))
    assert send(2) == "again after 1 s"
    assert is_to_be_asked()
    # It was asked, and the key is not among those that it names; the next one has to wait for its turn.
    node.database.write(lambda c: put_remote_identity(c, known()))
    assert send(2) == "federation.not-to-be-passed-on"
    assert [send(number) for number in (3, 4)] == ["again after 10 s"] * 2
    assert not is_to_be_asked()
    clock.go_on(11)
    assert [send(number) for number in (3, 4)] == ["again after 1 s", "again after 10 s"]
    # A key that is known to be somebody else's leaves no doubt.
    node.database.write(lambda c: put_key(c, key(5).public, identity_of(key(5).public)))
    assert send(5) == "federation.not-to-be-passed-on"

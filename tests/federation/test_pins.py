"""The pool of a pin travels with every instance of its log (docs/protocol.md sections 7.2 and 8.4)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from inkgrove.core import Hash, IdentityId, certificate_pool, decode_entry, identity_of, parse_hash, shortest_path
from inkgrove.federation.replication import take_fork_proof
from inkgrove.federation.sharing import receive_parcel
from inkgrove.messages import (
    Access,
    Create,
    FurtherKey,
    IdentityDocument,
    Parcel,
    RevokedLog,
    SchemaVersion,
    encode_message,
)
from inkgrove.node.identity import create_identity, edit_document
from inkgrove.node.publishing import DeliveryDecision, find_held_instance, pack_parcel
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import find_missing_ranges, offered_logs, read_offered, update_public_index
from inkgrove.store.logs import LogValidity, find_log, messages_between, read_entries, verified_among
from inkgrove.store.node import put_relation_state
from tests.federation.conftest import World
from tests.federation.test_control import look_up
from tests.federation.test_ends import add_phone, by_phone
from tests.support.federated import until, wait_for
from tests.support.logs import LogBuilder, key
from tests.support.publishing import Signer, schema_id
from tests.support.revocations import Revoking

SCHEMA = SchemaVersion(key(7).public, 1, 2)
FIRST, FURTHER = 41, 42
JANE = identity_of(key(FIRST).public)
LAST = 20


def notes(log: LogBuilder, height: int, text: str) -> LogBuilder:
    while len(log.entries) < height:
        log.append(encode_message(Create(SCHEMA, {"text": f"{text} {len(log.entries)}"}, Access("public"))))
    return log


LOG = notes(LogBuilder(key(FURTHER)), LAST, "mine")
STOLEN = notes(LOG.fork_at(3), LAST + 5, "stolen")


def pairs(log: LogBuilder) -> list[tuple[bytes, bytes | None]]:
    return [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]


@pytest.fixture
def home(node: Node, tmp_path: Path) -> Iterator[Node]:
    """Jane's node: it holds her log, and she has revoked its key and pinned the log."""
    away = Node(tmp_path / "janes", NodeSettings(), home=tmp_path / "janes", clock=node.clock)
    away.store.ingest([*pairs(LOG), *pairs(STOLEN)])
    revoking().tell(away.store)
    try:
        yield away
    finally:
        away.close()


def revoking() -> Revoking:
    return Revoking(FIRST, FURTHER).say(((1, LAST, LOG.hash(LAST)),))


def packed(node: Node, instance: Hash, to: IdentityId) -> Parcel:
    def work(connection: Connection) -> Parcel | None:
        held = find_held_instance(connection, instance)
        assert held is not None
        return pack_parcel(connection, held, [to], after=0, deletions_only=False)

    parcel = node.database.read(work)
    assert parcel is not None
    return parcel


def stolen_parcel(seq_num: int, to: IdentityId) -> Parcel:
    pool = certificate_pool(seq_num, len(STOLEN.entries))
    entries = [(STOLEN.entry(n).encoded, STOLEN.payloads[n - 1] if n == seq_num else None) for n in pool]
    return Parcel(STOLEN.hash(seq_num), (to,), entries)


def counted(node: Node) -> list[Hash]:
    log = node.store.read(find_log, key(FURTHER).public, 1)
    assert log is not None
    return [m.hash for m in node.store.read(messages_between, log.id) if m.payload is not None and not m.invalid_code]


def test_parcel_brings_the_pool_of_the_pin_and_settles_a_fork(node: Node, home: Node) -> None:
    john = create_identity(node, "john.b.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    parcel = packed(home, LOG.hash(9), john)
    seqs = [decode_entry(entry).seq_num for entry, _ in parcel.entries]
    assert set(shortest_path(LAST, 1)) <= set(seqs)
    assert max(seqs) == LAST
    # The thief was faster.
    assert receive_parcel(node, JANE, stolen_parcel(9, john))[0].decision is DeliveryDecision.ACCEPTED
    assert counted(node) == [STOLEN.hash(9)]
    revoking().tell(node.store)
    (receipt,) = receive_parcel(node, JANE, parcel)
    assert (receipt.decision, receipt.code) == (DeliveryDecision.ACCEPTED, None)
    assert counted(node) == [LOG.hash(9)]
    log = node.store.read(find_log, key(FURTHER).public, 1)
    assert log is not None
    assert (log.is_pinned, log.standing) == (True, LogValidity(revoked_after=LAST))
    # Whatever else the thief signs is evidence.
    (receipt,) = receive_parcel(node, JANE, stolen_parcel(11, john))
    assert (receipt.decision, receipt.code) == (DeliveryDecision.REFUSED, "log.other-branch")
    assert counted(node) == [LOG.hash(9)]
    assert take_fork_proof(node, LOG.entry(3).encoded, STOLEN.entry(3).encoded).seq_num == 3


def test_replication_fetches_the_path_of_a_pin_then_the_rest(node: Node, home: Node) -> None:
    node.store.ingest(pairs(STOLEN))
    node.store.ingest(pairs(LOG)[2:3])
    revoking().tell(node.store)
    assert counted(node) == [LOG.hash(1), LOG.hash(2)]
    with home.database.writing() as connection:
        while update_public_index(connection, 0) is not None:
            continue
    offered, _ = home.store.read(offered_logs, None, after=0, limit=100, now=0)
    (mine,) = (item for item in offered if (item.author, item.log_id) == (key(FURTHER).public, 1))
    assert (mine.height, mine.proof is not None) == (LAST, True)
    for _ in range(2):
        ranges = node.store.read(find_missing_ranges, key(FURTHER).public, 1, mine.height, most=50)
        given = home.store.read(
            read_offered, key(FURTHER).public, 1, ranges, after=0, most=1000, most_bytes=10**6, now=0
        )
        node.store.ingest(given.entries)
    assert counted(node) == [LOG.hash(n) for n in range(1, LAST + 1)]
    assert node.store.read(verified_among, [LOG.hash(LAST), STOLEN.hash(4)]) == {LOG.hash(LAST)}
    assert node.store.read(find_missing_ranges, key(FURTHER).public, 1, mine.height, most=50) == []


# Between two nodes


def stolen_from(phone: Signer, node: Node, log_id: int, seq_num: int) -> LogBuilder:
    """The log of a phone up to an entry, and behind it what a thief of its key signs."""
    log = LogBuilder(phone.secret, log_id=log_id)
    for item in node.store.read(read_entries, phone.secret.public, log_id, 1, seq_num - 1):
        log.entries.append(item.entry)
        log.payloads.append(item.payload or b"")
    return log


def row_counts(node: Node, instance: str) -> bool:
    return node.store.read(verified_among, [parse_hash(instance)]) == {parse_hash(instance)}


def test_revocation_brings_the_pool_of_its_pin_to_who_has_a_copy(world: World) -> None:
    phone = add_phone(world, key(6))
    here, there = world.them.nodes["a"].node, world.them.nodes["b"].node
    mail = by_phone(world, phone)
    version = SchemaVersion(*schema_id(world.schema), 2)
    for number in range(3):  # what john's node never gets, the entry that is pinned among it
        note = Create(version, {"subject": f"A note {number}"}, salt=bytes(16))
        assert phone.publish(note, world.schema).status_code == 201
    (log_id,) = {log for author, log in here.store.heights() if author == key(6).public and log}
    # A thief of the phone forks its log, and John's node hears of that.
    stolen = stolen_from(phone, here, log_id, 1)
    stolen.append(encode_message(Create(version, {"subject": "Stolen"}, salt=bytes(16))))
    there.store.ingest(pairs(stolen))
    assert not row_counts(there, mail)
    assert world.jane.delete(f"/me/keys/{key(6).public.hex()}").status_code == 200
    until(lambda: row_counts(there, mail))
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    log = there.store.read(find_log, key(6).public, log_id)
    assert log is not None
    assert (log.is_pinned, log.standing) == (True, LogValidity(revoked_after=4))
    assert there.store.read(verified_among, [stolen.hash(1)]) == set()


def test_branch_that_a_newer_document_pins_is_taken_although_another_one_was_pinned(world: World) -> None:
    phone = add_phone(world, key(6))
    here, there = world.them.nodes["a"].node, world.them.nodes["b"].node
    first = by_phone(world, phone)
    (log_id,) = {log for author, log in here.store.heights() if author == key(6).public and log}
    version = SchemaVersion(*schema_id(world.schema), 2)
    stolen = stolen_from(phone, here, log_id, 2)
    stolen.append(encode_message(Create(version, {"subject": "Stolen"}, salt=bytes(16))))
    there.store.ingest(pairs(stolen))
    second = by_phone_alone(world, phone)
    mine = here.store.read(find_log, key(6).public, log_id)
    assert mine is not None

    def pin(at: int, name: Hash) -> None:
        def edit(_: object, document: IdentityDocument) -> IdentityDocument:
            kept = tuple(item for item in document.keys if item.key != key(6).public)
            return replace(document, keys=(*kept, FurtherKey(key(6).public, (RevokedLog(log_id, at, name),))))

        edit_document(here, world.jane.id, edit)

    # Jane takes the branch of the thief for hers at first, and John's node learns of that.
    pin(2, stolen.hash(2))
    look_up(there, "jane.a.ink")
    assert there.store.read(verified_among, [stolen.hash(2)]) == {stolen.hash(2)}
    pin(2, parse_hash(second))
    answer = world.jane.post(f"/instances/{second}/share", json={"recipients": ["john.b.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.jane, second, john_b="delivered")
    assert (row_counts(there, first), row_counts(there, second)) == (True, True)
    assert there.store.read(verified_among, [stolen.hash(2)]) == set()


def by_phone_alone(world: World, phone: Signer) -> str:
    version = SchemaVersion(*schema_id(world.schema), 2)
    answer = phone.publish(Create(version, {"subject": "The second"}, salt=bytes(16)), world.schema)
    assert answer.status_code == 201, answer.text
    instance: str = answer.json()["hash"]
    return instance

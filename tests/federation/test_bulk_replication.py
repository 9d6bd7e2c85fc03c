"""Catching up with very much: an archive that Spark imports in a process of its own, with the same result."""

import asyncio
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from inkgrove.core import SecretKey, identity_of
from inkgrove.federation.errors import BadAnswer
from inkgrove.federation.peers import WELL_KNOWN_PATH as WELL_KNOWN
from inkgrove.federation.peers import Discovery, PeerRequest, PeerResponse
from inkgrove.federation.replication import (
    HEIGHTS_PATH,
    ArchiveImporter,
    BulkIntake,
    ImportedArchive,
    IntakeCounts,
    Replicator,
    SyncResult,
)
from inkgrove.messages import (
    Access,
    Create,
    Entries,
    FurtherKey,
    Heights,
    IdentityDocument,
    KeyOf,
    LogHeight,
    RevokedLog,
    SchemaVersion,
    decode_wants,
    encode_entries,
    encode_heights,
    encode_message,
)
from inkgrove.node.identity import create_identity
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import add_peer
from inkgrove.store.node import find_key_status
from tests.support.errors import raises
from tests.support.federated import federation
from tests.support.logs import LogBuilder, key
from tests.support.peers import Elsewhere, run
from tests.support.publishing import make_schema, schema_id
from tests.support.replication import SPARK, held, sync


def identity_with_revoked_key(schema: SchemaVersion) -> list[LogBuilder]:
    """ann's first key and one that she has revoked behind the 5th entry of its log 1, each with public notes."""
    first, second = key(52), key(53)
    said = LogBuilder(second, log_id=0)
    said.append(encode_message(KeyOf(identity_of(first.public))))
    document = LogBuilder(first, log_id=0)
    keys = (FurtherKey(second.public, (RevokedLog(1, 5),)),)
    document.append(encode_message(IdentityDocument("ann.c.ink", "https://ann.c.ink", keys=keys)))
    return [document, said, notes(first, schema, 20), notes(second, schema, 20)]


def notes(secret: SecretKey, schema: SchemaVersion, count: int) -> LogBuilder:
    log = LogBuilder(secret, log_id=1)
    for number in range(count):
        log.append(encode_message(Create(schema, {"stars": number}, Access("public"))))
    return log


def test_import_brings_the_same_as_batches_do(tmp_path: Path) -> None:
    with federation(tmp_path, "abc") as them:
        jane = them.person("jane", "a")
        them.person("carol", "b")
        them.person("dora", "c")
        schema = SchemaVersion(*schema_id(make_schema(jane)), 2)
        mixed = LogBuilder(key(51), log_id=1)
        for number in range(60):
            access = Access("public") if number % 3 else None
            mixed.append(encode_message(Create(schema, {"stars": number}, access)))
        for log in (mixed, *reversed(identity_with_revoked_key(schema))):
            them.nodes["a"].node.store.ingest(
                (entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)
            )
        b, c = them.nodes["b"], them.nodes["c"]
        batches = sync(c, "jane.a.ink")
        bulk = sync(b, "jane.a.ink", bulk=10)

        assert (batches.in_bulk, bulk.in_bulk) == (False, True)
        assert batches.refused == bulk.refused == {"log.key-revoked": 15}
        assert (batches.received, batches.stored) == (bulk.received, bulk.stored)
        of_key = [{place: payload for place, payload in held(n.node).items() if place[0] == key(51).public.hex()}
                  for n in (b, c)]  # fmt: skip
        assert of_key[0] == of_key[1]
        assert sum(payload is not None for payload in of_key[0].values()) == 40
        for node in (b.node, c.node):
            places = sorted((author, place) for author, log_id, place in held(node) if log_id == 1)
            assert [place for author, place in places if author == key(52).public.hex()] == list(range(1, 21))
            assert [place for author, place in places if author == key(53).public.hex()] == [1, 2, 3, 4, 5]
            standing = node.database.read(lambda connection: find_key_status(connection, key(53).public))
            assert standing == (identity_of(key(52).public), {1: 5})
        assert list((b.home / "replication").rglob("*.parquet")) == []


async def import_nothing(node: Node, archive: Path) -> ImportedArchive:
    raise AssertionError(f"{archive} of {node.home} is not to be imported")


def bulk_intake(
    node: Node, taken: IntakeCounts, few: int = 5_000, *, importer: ArchiveImporter = import_nothing
) -> BulkIntake:
    return BulkIntake(node, taken, node.home / "replication", importer, asyncio.Semaphore(1), few=few)


def test_two_intakes_at_once_have_an_archive_each_and_leave_none(node: Node) -> None:
    """As the running node and a command that sync with the same peer."""
    logs = [LogBuilder(key(54)).grow(30), LogBuilder(key(55)).grow(40)]
    left = node.home / "replication" / "of a process that was killed"
    left.mkdir(parents=True)
    (left / "archive.parquet").write_bytes(b"half")
    imported: list[int] = []

    async def count(node: Node, archive: Path) -> ImportedArchive:
        rows = pq.read_table(archive).num_rows
        imported.append(rows)
        await asyncio.sleep(0.05)
        return ImportedArchive(rows, {})

    taken = [IntakeCounts(), IntakeCounts(), IntakeCounts()]

    async def work() -> None:
        intakes = [bulk_intake(node, item, few=10, importer=count) for item in taken]
        for intake, log in zip(intakes, [*logs, logs[0]], strict=True):
            await intake.ingest(Entries(_items(log), None), {(log.secret.public, 1)})
        assert not left.exists()
        await asyncio.gather(*(intake.finish() for intake in intakes[:2]))
        await asyncio.gather(*(intake.close() for intake in intakes))  # the third one was broken off

    run(work())
    assert sorted(imported) == [30, 40]
    assert [item.stored for item in taken] == [30, 40, 0]
    assert [path for path in (node.home / "replication").iterdir() if path.is_dir()] == []


def _items(log: LogBuilder) -> list[tuple[bytes, bytes | None]]:
    return [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]


def test_entries_of_logs_that_were_not_asked_for_never_come_into_the_archive(node: Node) -> None:
    asked, other, identity = LogBuilder(key(54)).grow(2), LogBuilder(key(55)).grow(2), LogBuilder(key(55), log_id=0)
    identity.append(encode_message(IdentityDocument("eve.c.ink", "https://eve.c.ink")))
    taken = IntakeCounts()

    async def work() -> None:
        for log in (other, identity):
            intake = bulk_intake(node, taken, few=1)
            both = [(part.entry(1).encoded, part.payloads[0]) for part in (asked, log)]
            with pytest.raises(BadAnswer, match="not asked for"):
                await intake.ingest(Entries(both, None), {(key(54).public, 1)})
            await intake.finish()
            await intake.close()

    run(work())
    assert held(node) == {}
    assert (taken.received, taken.stored) == (0, 0)


def test_much_that_was_promised_as_little_goes_into_an_archive_after_all(tmp_path: Path) -> None:
    """The peer says that it has nothing to offer, and sends 40 entries where 25 are for batches."""
    node, log = Node(tmp_path / "b", NodeSettings(), home=tmp_path / "b"), LogBuilder(key(54)).grow(40)
    peer = Elsewhere("eve.c.ink", 60)
    create_identity(node, "john.b.ink", None)
    node.database.write(lambda connection: add_peer(connection, "eve.c.ink", 0))

    class Lying:
        """A network with nobody but the peer."""

        async def send(self, request: PeerRequest) -> PeerResponse:
            if request.url.endswith(WELL_KNOWN):
                return PeerResponse(200, (), peer.page())
            if request.url.endswith(HEIGHTS_PATH):
                listed = [LogHeight(key(54).public, 1, 40, 0)]
                return PeerResponse(200, (), encode_heights(Heights(listed, "MC4x", None)))
            (want,) = decode_wants(request.body)
            last = want.after + 10
            following = (0, last) if last < 40 else None
            return PeerResponse(200, (), encode_entries(Entries(_items(log)[want.after : last], following)))

    async def work(bulk: int) -> SyncResult:
        transport = Lying()
        replicator = Replicator(node, transport, Discovery(node, transport), importer=SPARK, bulk=bulk)
        return await replicator.sync("eve.c.ink")

    try:
        synced = run(work(25))
        assert (synced.in_bulk, synced.received, synced.stored) == (True, 40, 40)
        assert sorted(place for author, _, place in held(node) if author == key(54).public.hex()) == [*range(1, 41)]
    finally:
        node.close()


def test_little_that_was_promised_as_much_is_taken_in_without_spark(node: Node) -> None:
    log = LogBuilder(key(54)).grow(3)
    items = _items(log)
    taken = IntakeCounts()

    async def work() -> None:
        intake = bulk_intake(node, taken)
        await intake.ingest(Entries([*items, (b"garbage", None)], None), {(key(54).public, 1)})
        await intake.finish()

    run(work())
    assert sorted(place for _, _, place in held(node)) == [1, 2, 3]
    assert (taken.received, taken.stored, sum(taken.refused.values())) == (4, 3, 1)
    assert not (node.home / "replication").exists()


def test_import_that_fails_says_why_and_with_which_exit_code(node: Node) -> None:
    archive = node.home / "archive.parquet"
    archive.write_bytes(b"half")

    async def work() -> None:
        await SPARK(node, archive)

    with raises("federation.import-failed", match=r"ended with code 1: error: .*archive\.parquet") as raised:
        run(work(), seconds=120)
    assert raised.value.data["exit_code"] == 1


def test_without_an_importer_however_much_comes_in_batches(tmp_path: Path) -> None:
    with federation(tmp_path, "ab") as them:
        jane = them.person("jane", "a")
        them.person("carol", "b")
        schema = SchemaVersion(*schema_id(make_schema(jane)), 2)
        log = notes(key(56), schema, 40)
        them.nodes["a"].node.store.ingest(_items(log))
        synced = sync(them.nodes["b"], "jane.a.ink", bulk=10, importer=None)
        assert not synced.in_bulk
        assert {place for author, _, place in held(them.nodes["b"].node) if author == key(56).public.hex()} == {
            *range(1, 41)
        }

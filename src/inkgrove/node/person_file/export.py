"""Writes the file of a person, in one pass and with little memory (docs/person-file.md).

Logs, copies and rows are read in one transaction, so they are of one moment; the bytes of blobs, which never change,
are read after it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Any, NamedTuple

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import Delivery, SchemaId, Timestamp, encode_delivery
from inkgrove.messages.person_file import (
    MAX_BLOB_PART,
    RECORD_BYTES,
    ROWS,
    LogHeader,
    LogPart,
    PersonHeader,
    SealedSecret,
    encode_copy,
    encode_entries,
    encode_header,
    encode_log,
    encode_record,
    encode_rows,
)
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity import find_identity_of_key, read_newest_document
from inkgrove.node.person_file.container import FileWriter
from inkgrove.node.publishing import HeldInstance, find_held_instance, mode_of, pack_next_parcel, pack_parcel
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import LogState, find_log, read_encoded_entries, read_entry_bytes
from inkgrove.store.node import find_identity, keys_of
from inkgrove.store.person import (
    BlobInFile,
    find_followed_logs,
    find_own_logs_of,
    list_creates_for_followers,
    list_file_blobs,
    list_received,
    read_person_rows,
    schemas_named_in,
)

_ENTRIES = 1_000
"""How many entries are read at a time, and are in one record at most."""

OnProgress = Callable[[str, int, int | None], None]
"""Hears what is being written, how much of it, and of how much if that is known; may raise to end the work."""


class WrittenFile(NamedTuple):
    """What was written."""

    size: int
    digest: bytes
    """BLAKE2b-512 of everything before the seal."""
    counts: dict[str, int]


def write_person_file(
    node: Node,
    identity: IdentityId,
    file: IO[bytes],
    *,
    secret: SealedSecret | None = None,
    on_progress: OnProgress = lambda _what, _done, _total: None,
) -> WrittenFile:
    """Write everything that this node has of a hosted identity to a file; returns when it is on the disk.

    `secret`: its first key, sealed with a passphrase. Raises `UnknownIdentity` or `storage.low-disk`.
    """
    export = _Export(node, identity, FileWriter(file), on_progress)
    with node.database.reading() as connection:
        export.write_database(connection, secret)
    export.write_blobs()
    export.writer.write(encode_record("end", counts=dict(sorted(export.counts.items()))))
    digest = export.writer.seal()
    return WrittenFile(export.writer.size, digest, dict(export.counts))


class _Export:
    """One file that is being written."""

    def __init__(self, node: Node, identity: IdentityId, writer: FileWriter, on_progress: OnProgress) -> None:
        self._node, self._identity, self.writer, self._on_progress = node, identity, writer, on_progress
        self.counts: Counter[str] = Counter()
        self._schemas: set[SchemaId] = set()

    def _write(self, body: bytes) -> None:
        self._node.disk.require()
        self.writer.write(body)

    def write_database(self, connection: Connection, secret: SealedSecret | None) -> None:
        hosted = find_identity(connection, self._identity)
        if hosted is None:
            raise UnknownIdentity(f"no identity {self._identity} is hosted here")
        _, document = read_newest_document(connection, hosted.key)
        made = Timestamp(self._node.clock())
        self._write(encode_header(PersonHeader(self._identity, hosted.key, hosted.fqdn, document.endpoint, made)))
        listed = (item.key for item in document.keys if find_identity_of_key(connection, item.key) == self._identity)
        further = {*keys_of(connection, self._identity), *listed} - {hosted.key}
        keys = [hosted.key, *sorted(further)]
        own = find_own_logs_of(connection, keys)
        total = sum(log.held for log in own)
        for log in own:
            self._write_log(connection, log, "own", total)
        self._schemas |= schemas_named_in(connection, [log.id for log in own])
        for instance in self._received(connection):
            self._write_copy(connection, instance)
        for schema in sorted(item for item in self._schemas if item.author not in keys):
            found = find_log(connection, *schema)
            if found is not None:
                self._write_log(connection, found, "schema", None)
        for table in ROWS:
            self._write_rows(connection, table)
        if secret is not None:
            self._write(
                encode_record(
                    "secret",
                    salt=secret.salt,
                    operations=secret.operations,
                    memory=secret.memory,
                    sealed=secret.sealed,
                )
            )
            self.counts["secrets"] += 1

    def _write_log(self, connection: Connection, log: LogState, part: LogPart, total: int | None) -> None:
        standing = log.standing
        is_whole = log.is_whole and not log.aside and standing.lied_at is None
        is_whole = is_whole and standing.ended_at in (None, log.height)
        self._write(encode_log(LogHeader(part, log.author, log.log_id, log.height, log.held + log.aside, is_whole)))
        self.counts["logs" if part == "own" else "schemas"] += 1
        after = (0, b"")
        while found := read_encoded_entries(connection, log.id, after, _ENTRIES):
            for some in _in_records([(line.encoded, line.payload) for line in found], _entry_size):
                self._write(encode_entries(some))
            after = found[-1].seq_num, found[-1].hash
            if part == "own":
                self.counts["entries"] += len(found)
                self._on_progress("entries", self.counts["entries"], total)

    # Copies

    def _received(self, connection: Connection) -> Iterator[HeldInstance]:
        """Yield the instances of others that the identity has, with everything that is held of them."""
        after = None
        while page := list_received(connection, self._identity, after):
            for instance, _ in page:
                held = find_held_instance(connection, instance)
                if held is not None and not held.is_deleted:
                    yield held
            after = page[-1][0]
        for log in find_followed_logs(connection, self._identity):
            seq_num = 0
            while creates := list_creates_for_followers(connection, log.id, self._identity, seq_num):
                for _, instance in creates:
                    held = find_held_instance(connection, instance)
                    if held is not None and not held.is_deleted and mode_of(held.access) in ("public", "relations"):
                        yield held
                seq_num = creates[-1][0]

    def _write_copy(self, connection: Connection, held: HeldInstance) -> None:
        self._schemas.add(held.schema)
        after, create = 0, None
        while (packed := pack_next_parcel(connection, held, [], after=after, deletions_only=False)) is not None:
            parcel, reached = packed
            self._write(encode_copy(parcel, create))
            if reached >= held.last_seq:
                break
            after = reached
            create = read_entry_bytes(connection, held.log, [held.create_seq])[held.create_seq]
        self.counts["copies"] += 1
        self._on_progress("copies", self.counts["copies"], None)

    # Rows

    def _write_rows(self, connection: Connection, table: str) -> None:
        rows: Iterable[tuple[Any, ...]] = read_person_rows(connection, self._identity, table)
        if table == "requests":
            rows = self._with_parcels(connection, rows)
        if table == "moves":
            rows = ((other, bool(as_follower), *rest) for other, as_follower, *rest in rows)
        for some in _in_records(rows, _row_size):
            self._write(encode_rows(table, some))
            self.counts[table] += len(some)
            self._on_progress(table, self.counts[table], None)

    def _with_parcels(self, connection: Connection, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Pack what somebody on this node has sent, which lies in the logs and not in the box."""
        for via, instance, parcel, *rest in rows:
            encoded = parcel or self._pack_request(connection, IdentityId(via), Hash(instance))
            if encoded is not None:
                yield (via, instance, encoded, *rest)

    def _pack_request(self, connection: Connection, via: IdentityId, instance: Hash) -> bytes | None:
        held = find_held_instance(connection, instance)
        if held is None or held.is_deleted:
            return None
        packed = pack_parcel(connection, held, [self._identity], after=0, deletions_only=False)
        return encode_delivery(Delivery(via, [packed])) if packed is not None else None

    # Blobs

    def write_blobs(self) -> None:
        """Write the blobs that the identity has a right to, or that its instances name, in short transactions."""
        after: Hash | None = None
        while page := self._node.database.read(
            lambda connection, after=after: list_file_blobs(connection, self._identity, after)  # type: ignore[misc]
        ):
            for blob in page:
                self._write_blob(blob)
            after = page[-1].hash

    def _write_blob(self, blob: BlobInFile) -> None:
        path = self._node.blobs.path_of(blob.hash)
        # One that was removed meanwhile, or is lacking on the disk, is not in the file.
        with suppress(FileNotFoundError), path.open("rb") as content:
            self._write(encode_record("blob", hash=bytes(blob.hash), size=blob.size, type=blob.media_type))
            while part := content.read(MAX_BLOB_PART):
                self._write(encode_record("bytes", bytes=part))
                self.counts["blob_bytes"] += len(part)
                self._on_progress("bytes of blobs", self.counts["blob_bytes"], None)
            self.counts["blobs"] += 1


def _entry_size(item: tuple[bytes, bytes | None]) -> int:
    return len(item[0]) + len(item[1] or b"")


def _row_size(row: tuple[Any, ...]) -> int:
    return 16 + sum(len(value) if isinstance(value, bytes | str) else 8 for value in row)


def _in_records(items: Iterable[Any], size_of: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Group items so that a record has about `RECORD_BYTES`, or one item that is larger."""
    some: list[Any] = []
    size = 0
    for item in items:
        length = size_of(item)
        if some and (size + length > RECORD_BYTES or len(some) >= _ENTRIES):
            yield some
            some, size = [], 0
        some.append(item)
        size += length
    if some:
        yield some

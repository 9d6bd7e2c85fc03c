"""Takes a verified file of a person into the node, in bounded transactions (docs/person-file.md).

The file is read a second time, and a record is taken only if it is the one that was checked. Whatever is there already
stays as it is; an import that was killed goes on when it is done again, and comes to the same. Whole logs are appended
in bulk, all others entry by entry as if another node had sent them.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from inkgrove.core import Hash, IdentityId, SecretKey, decode_entry, hash_entry, trust_signed
from inkgrove.core.errors import PersonFileError
from inkgrove.messages import Create, Update, decode_if_valid
from inkgrove.messages.person_file import (
    BlobHeader,
    LogHeader,
    changed,
    decode_record,
    read_blob,
    read_copy,
    read_entries,
    read_log,
    read_part,
    read_rows,
)
from inkgrove.messages.person_verification import digest_record
from inkgrove.node.blobs import note_references, update_blob_references
from inkgrove.node.identity import IDENTITY_LOG, apply_identity_log, require_receiving
from inkgrove.node.person_file.container import FileReader
from inkgrove.node.person_file.hosting import host_with_secret
from inkgrove.node.person_file.secret import open_secret
from inkgrove.node.person_file.verify import OnProgress, VerifiedPerson, kind_of, verify_person
from inkgrove.node.publishing import HeldInstance, LocalShare, deliver_locally, find_held_instance, may_pass_on
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.files import Draft
from inkgrove.store.logs import (
    IngestItem,
    IngestReceipt,
    IngestStatus,
    LogAtVerification,
    LogBatch,
    VerifiedLine,
    append_verified,
    by_log,
    find_held_payloads,
    find_log,
    ingest_batch,
    prepare_items,
    read_content,
)
from inkgrove.store.node import StoredAmounts, add_usage, lives_here, living_among
from inkgrove.store.person import grant_copies, keep_sendable, lend_received, put_person_rows
from inkgrove.store.views import own_media_type, put_blob, put_right, size_of

CHUNK: Final = 20_000
"""How many entries go into one transaction, unless they are large."""
_CHUNK_BYTES: Final = 16 * 1024 * 1024
_CAREFUL: Final = 2_000
_COPIES: Final = 100
_MOST_PEOPLE: Final = 1_000
"""How many names of others are noted: the list of a node has room for ten times as many."""
_ALWAYS: Final = ("withheld",)
"""Tables whose rows count wherever the identity lives."""


@dataclass(slots=True)
class ImportedPerson:
    """What became of a file."""

    identity: IdentityId
    fqdn: str
    new: Counter[str] = field(default_factory=Counter)
    """By kind, what the node did not have."""
    known: Counter[str] = field(default_factory=Counter)
    """By kind, what it had already."""
    refused: Counter[str] = field(default_factory=Counter)
    """Entries and copies that do not count here, by code: branches of forks, entries behind a revocation."""
    waiting: Counter[str] = field(default_factory=Counter)
    """Rows that wait until the identity lives here; the file has to be imported again then."""
    people: list[tuple[IdentityId, str]] = field(default_factory=list)
    """Others whom rows are about, each with the name under which they can be asked for: a claim, not proved."""
    lives_here: bool = False
    is_hosted_now: bool = False
    """Whether this import has made it live here, with the key from the file."""


def import_person(
    node: Node,
    path: Path,
    *,
    expected: IdentityId | None = None,
    passphrase: str | None = None,
    allow_older: bool = False,
    chunk: int = CHUNK,
    admit: Callable[[VerifiedPerson], None] = lambda _verified: None,
    on_progress: OnProgress = lambda _what, _done, _total: None,
) -> ImportedPerson:
    """Check a file and take it in; raises a `PersonFileError`, after which nothing has changed, or `storage.low-disk`.

    `expected`: whose file it has to be. `passphrase`: opens the first key in the file, with which the identity then
    lives here. `allow_older`: take in what is lacking although the node holds newer entries. `admit` is called after
    everything was checked and before anything is taken in, and raises if the file is too much for this node.
    """
    with FileReader(path) as reader:
        if expected is not None and reader.header.identity != expected:
            raise PersonFileError(
                "file.not-yours",
                f"this is the file of {reader.header.fqdn} ({reader.header.identity}), not of {expected}: choose the"
                " file of that identity; nothing was taken in",
            )
        node.disk.require()
        verified = verify_person(reader, node.store, allow_older=allow_older, on_progress=on_progress)
        secret = None
        if passphrase is not None:
            if verified.secret is None:
                raise PersonFileError(
                    "file.bad-passphrase", "the file holds no secret key: import it without a passphrase"
                )
            secret = open_secret(verified.secret, passphrase, reader.header.key)
        admit(verified)
        return _Import(node, reader, verified, secret, chunk, on_progress).run()


def import_rows(node: Node, path: Path, expected: IdentityId, digest: bytes) -> ImportedPerson:
    """Put in the rows of a file that was taken in before, when the identity did not live here yet.

    `digest` is that of the file which was checked then; raises `file.changed` for another one.
    """
    with FileReader(path) as reader:
        if (reader.header.identity, reader.digest) != (expected, digest):
            raise changed("it is another one than when it was checked")
        for _ in reader.records():
            pass  # compares the digest
        verified = VerifiedPerson(reader.header)
        return _Import(node, reader, verified, None, CHUNK, lambda _what, _done, _total: None).run_rows()


class _Import:
    def __init__(
        self,
        node: Node,
        reader: FileReader,
        verified: VerifiedPerson,
        secret: SecretKey | None,
        chunk: int,
        on_progress: OnProgress,
    ) -> None:
        self._node, self._reader, self._verified, self._secret = node, reader, verified, secret
        self._identity = reader.header.identity
        self._on_progress = on_progress
        self.report = ImportedPerson(self._identity, reader.header.fqdn)
        self._logs = _LogLoader(node, self._identity, chunk, self.report)
        self._copies: list[tuple[Hash, list[IngestItem]]] = []
        self._blob: _ArrivingBlob | None = None
        self._is_settled = False
        self._is_newcomer = False
        """Whether it comes with a key of this node's own: others can hold nothing newer of that."""

    def run(self) -> ImportedPerson:
        try:
            for number, record in enumerate(self._reader.records()):
                if digest_record(record.body) != self._verified.digests[number]:
                    raise changed("it is another one than when it was checked")
                self._take(record.body)
                self._on_progress("taking in", record.offset, self._reader.size)
        finally:
            if self._blob is not None:
                self._blob.discard()
        self._settle()
        update_blob_references(self._node)
        return self.report

    def run_rows(self) -> ImportedPerson:
        self._is_newcomer = True
        self._settle()
        for record in self._reader.records():
            if kind_of(record.body) == "rows":
                self._write_rows(*read_rows(decode_record(record.body)))
        return self.report

    def _take(self, body: bytes) -> None:
        record = decode_record(body)
        kind = record["kind"]
        if kind == "entries":
            self._logs.add([(entry, payload) for entry, payload in read_entries(record)])
        elif kind == "log":
            self._logs.begin(read_log(record))
        elif kind == "copy":
            instance, _, entries = read_copy(record)
            self._copies.append((instance, [(_trusted(entry), payload) for entry, payload in entries]))
            if len(self._copies) >= _COPIES:
                self._write_copies()
        elif kind == "rows":
            self._settle()
            self._write_rows(*read_rows(record))
        elif kind == "blob":
            self._settle()
            self._blob = _ArrivingBlob(self._node, self._identity, read_blob(record), self.report)
            self._finish_blob()
        elif kind == "bytes":
            assert self._blob is not None
            self._blob.write(read_part(record))
            self._finish_blob()

    def _settle(self) -> None:
        """Finish logs and copies; what comes after them depends on whether the identity lives here."""
        if self._is_settled:
            return
        self._is_settled = True
        self._logs.flush()
        self._write_copies()
        if self._secret is not None:
            self.report.is_hosted_now = host_with_secret(self._node, self._secret, self._reader.header)
        self.report.lives_here = self._node.database.read(lambda c: lives_here(c, self._identity))

    # Copies

    def _write_copies(self) -> None:
        some, self._copies = self._copies, []
        self._logs.flush()
        if some:
            self._node.disk.require()
            counts = self._node.database.write(lambda connection: self._store_copies(connection, some))
            self.report.new["copies"] += counts["new"]
            self.report.known["copies"] += counts["known"]
            self.report.refused.update({code: n for code, n in counts.items() if code not in ("new", "known")})

    def _store_copies(self, connection: Connection, some: list[tuple[Hash, list[IngestItem]]]) -> Counter[str]:
        counts: Counter[str] = Counter()
        granted = []
        for instance, items in some:
            prepared, _ = prepare_items(items)
            receipts = ingest_batch(connection, by_log(prepared), must_be_next=False)
            is_news = any(item.status in _NEWS for item in receipts.values())
            held = find_held_instance(connection, instance)
            if held is None or not may_have(held, self._identity):
                refusal = next((item.error.code for item in receipts.values() if item.error is not None), None)
                counts[refusal or "federation.not-addressed"] += 1
                continue
            if is_news:
                for item in held.messages:
                    message = decode_if_valid(item.payload)
                    if isinstance(message, Create | Update):
                        note_references(self._node, connection, instance, message, held.author)
            granted.append(instance)
            counts["new" if is_news else "known"] += 1
        grant_copies(connection, self._identity, granted, self._node.clock())
        return counts

    # Rows

    def _write_rows(self, table: str, rows: list[dict[str, Any]]) -> None:
        if not self.report.lives_here and table not in _ALWAYS:
            self.report.waiting[table] += len(rows)
            return
        if table == "people":
            self._note_people(rows)
            return
        put = self._node.database.write(lambda c: self._put_rows(c, table, rows))
        self.report.new[table] += put
        if len(rows) > put:
            self.report.refused[table] += len(rows) - put

    def _put_rows(self, connection: Connection, table: str, rows: list[dict[str, Any]]) -> int:
        now = self._node.clock()
        put = put_person_rows(connection, self._identity, table, rows, now)
        if table == "deliveries":
            waiting = {
                LocalShare(IdentityId(row["recipient"]), Hash(row["instance"]), self._identity)
                for row in rows
                if row["state"] == "waiting"
            }
            deliver_waiting(connection, self._identity, waiting, now)
        return put

    def _note_people(self, rows: list[dict[str, Any]]) -> None:
        """Note under which names others can be asked; who is there is proved when they are."""
        for row in rows:
            if self.report.new["people"] < _MOST_PEOPLE:
                if not self._is_newcomer:  # anybody can come, and these must answer before a restored node signs
                    self._node.receivers.add(row["fqdn"])
                self.report.people.append((IdentityId(row["identity"]), row["fqdn"]))
                self.report.new["people"] += 1

    # Blobs

    def _finish_blob(self) -> None:
        assert self._blob is not None
        if self._blob.is_complete:
            self._blob.keep()
            self._blob = None


def deliver_waiting(connection: Connection, identity: IdentityId, waiting: Collection[LocalShare], now: int) -> None:
    """Deliver to people of this node what an identity has sent them, as if it had lived here then.

    Raises `identity.recipient-leaving`.
    """
    here = living_among(connection, {item.recipient for item in waiting} - {identity})
    sendable = keep_sendable(connection, identity, {item.instance for item in waiting})
    sent = [item for item in waiting if item.recipient in here and item.instance in sendable]
    if sent:
        require_receiving(connection, here)
        deliver_locally(connection, sent, now)


def may_have(held: HeldInstance, identity: IdentityId) -> bool:
    """Whether the messages of an instance let an identity have it: it may be passed on, or they name the identity."""
    if may_pass_on(held.access):
        return True
    for item in held.messages:
        message = decode_if_valid(item.payload)
        if isinstance(message, Create | Update) and message.access is not None and identity in message.access.to:
            return True
    return False


_NEWS: Final = (IngestStatus.STORED, IngestStatus.COMPLETED)


def _trusted(encoded: bytes) -> Any:
    """An entry whose signature was checked when the file was read for the first time."""
    entry = decode_entry(encoded)
    return trust_signed(entry, hash_entry(entry))


# Logs


class _LogLoader:
    """Writes the entries of logs in chunks: whole logs in bulk, those with gaps or branches one by one."""

    def __init__(self, node: Node, identity: IdentityId, chunk: int, report: ImportedPerson) -> None:
        self._node, self._identity, self._chunk, self._report = node, identity, chunk, report
        self._log: LogHeader | None = None
        self._seen: LogAtVerification | None = None
        """The log as it is here, with what was gathered; None if its entries are taken one by one."""
        self._runs: list[LogBatch] = []
        self._run: LogBatch | None = None
        self._careful: list[IngestItem] = []
        self._lines = self._bytes = 0
        self._own = False

    def begin(self, log: LogHeader) -> None:
        """Begin with the entries of another log."""
        if log.log_id == IDENTITY_LOG or self._careful or (self._log is not None and self._log.part != log.part):
            self.flush()
        held = self._node.store.read(find_log, log.author, log.log_id)
        self._log, self._run = log, None
        self._own = log.part == "own"
        is_clean = held is None or (held.is_whole and held.standing.invalid_from is None)
        self._seen = None
        if log.is_whole and log.log_id != IDENTITY_LOG and is_clean:
            height = held.height if held is not None else 0
            self._seen = LogAtVerification(log.author, log.log_id, height, height)

    def add(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Take entries of the log in their order."""
        if self._seen is None:
            self._careful += [(_trusted(entry), payload) for entry, payload in items]
            self._bytes += sum(len(entry) + len(payload or b"") for entry, payload in items)
        else:
            self._gather(items, self._seen)
        if self._lines >= self._chunk or len(self._careful) >= _CAREFUL or self._bytes >= _CHUNK_BYTES:
            self.flush()

    def _gather(self, items: list[tuple[bytes, bytes | None]], seen: LogAtVerification) -> None:
        lines = []
        held_lines = []
        for encoded, payload in items:
            entry = decode_entry(encoded)
            line = (entry, hash_entry(entry), payload)
            if entry.seq_num <= seen.height:
                held_lines.append(line)
                continue
            content = read_content(payload) if payload is not None else None
            lines.append(VerifiedLine(entry.seq_num, line[1], encoded, payload, content, entry.is_end_of_log))
            self._bytes += len(encoded) + len(payload or b"")
        if held_lines:
            held = self._node.store.read(find_held_payloads, [entry_hash for _, entry_hash, _ in held_lines])
            for entry, entry_hash, payload in held_lines:
                if held.get(entry_hash) is False and payload is not None:
                    self._careful.append((trust_signed(entry, entry_hash), payload))
                else:
                    self._count("known", 1)
        if lines:
            if self._run is None:
                self._run = LogBatch(seen, [])
                self._runs.append(self._run)
            self._run.lines += lines
            self._lines += len(lines)

    def flush(self) -> None:
        """Write what has gathered."""
        runs, self._runs, self._run = self._runs, [], None
        if runs:
            self._node.disk.require()
            moved = self._node.database.write(lambda connection: self._append(connection, runs))
            for run in runs:
                is_moved = any(run is item for item in moved)
                if is_moved:  # somebody else has written to the log meanwhile: its entries go one by one
                    self._careful += [
                        (trust_signed(decode_entry(line.encoded), line.hash), line.payload) for line in run.lines
                    ]
                else:
                    self._count("new", len(run.lines))
                self._go_on_behind(run, is_moved=is_moved)
        while self._careful:
            some, self._careful = self._careful[:_CAREFUL], self._careful[_CAREFUL:]
            self._node.disk.require()
            self._tell(self._node.database.write(lambda connection, some=some: self._ingest(connection, some)))  # type: ignore[misc]
        self._lines = self._bytes = 0

    def _go_on_behind(self, run: LogBatch, *, is_moved: bool) -> None:
        if self._log is not None and (run.log.author, run.log.log_id) == (self._log.author, self._log.log_id):
            held = run.log.held + len(run.lines)
            self._seen = None if is_moved else run.log._replace(height=run.lines[-1].seq_num, held=held)

    def _append(self, connection: Connection, runs: list[LogBatch]) -> list[LogBatch]:
        moved = append_verified(connection, runs)
        taken = [line for run in runs if all(run is not item for item in moved) for line in run.lines]
        self._spend(connection, len(taken), sum(len(line.payload or b"") for line in taken))
        return moved

    def _ingest(self, connection: Connection, items: list[IngestItem]) -> list[IngestReceipt]:
        prepared, _ = prepare_items(items)
        batch = by_log(prepared)
        receipts = ingest_batch(connection, batch, must_be_next=False)
        stored = [
            item for item in prepared if receipts[item.number].status in (IngestStatus.STORED, IngestStatus.EVIDENCE)
        ]
        self._spend(connection, len(stored), sum(len(item.payload or b"") for item in stored))
        for author, log_id in batch:
            if log_id == IDENTITY_LOG:
                apply_identity_log(connection, author)
        return list(receipts.values())

    def _spend(self, connection: Connection, entries: int, payload_bytes: int) -> None:
        if self._own and entries:
            add_usage(connection, self._identity, StoredAmounts(entries, payload_bytes))

    def _tell(self, receipts: list[IngestReceipt]) -> None:
        for receipt in receipts:
            if receipt.status is IngestStatus.REFUSED:
                self._report.refused[receipt.error.code if receipt.error is not None else "entry.no-path-to-first"] += 1
            else:
                self._count("known" if receipt.status is IngestStatus.KNOWN else "new", 1)

    def _count(self, what: str, count: int) -> None:
        counts = self._report.new if what == "new" else self._report.known
        counts["entries" if self._own else "schema_entries"] += count


class _ArrivingBlob:
    """A blob whose bytes are being written, unless they are here."""

    def __init__(self, node: Node, identity: IdentityId, header: BlobHeader, report: ImportedPerson) -> None:
        self._node, self._identity, self._header, self._report = node, identity, header, report
        self._left = header.size
        self._draft: Draft | None = None
        if not node.database.read(self._is_here):
            self._draft = node.blobs.new_draft()

    def _is_here(self, connection: Connection) -> bool:
        content, media_type = self._header.hash, self._header.media_type
        is_held = size_of(connection, content) is not None and self._node.blobs.path_of(content).is_file()
        has_right = media_type is None or own_media_type(connection, content, self._identity) is not None
        return is_held and has_right

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have come."""
        return self._left == 0

    def write(self, part: bytes) -> None:
        """Add bytes."""
        self._left -= len(part)
        if self._draft is not None:
            self._node.disk.require()
            self._draft.write(part)

    def keep(self) -> None:
        """Keep the blob, with the right to it."""
        if self._draft is not None:
            self._draft.sync()
        self._node.database.write(self._store, durable=True)
        self.discard()
        counts = self._report.known if self._draft is None else self._report.new
        counts["blobs"] += 1
        counts["blob_bytes"] += self._header.size

    def _store(self, connection: Connection) -> None:
        header = self._header
        if self._draft is not None:
            put_blob(connection, header.hash, header.size, self._node.clock())
            if header.media_type is not None and put_right(connection, header.hash, self._identity, header.media_type):
                add_usage(connection, self._identity, StoredAmounts(blob_bytes=header.size))
        lend_received(connection, self._identity, header.hash)
        # Inside of the transaction: a collection that takes the same blob waits, or has ended.
        if self._draft is not None and self._draft.path.exists():
            self._node.blobs.keep(self._draft)

    def discard(self) -> None:
        """Leave no draft behind."""
        if self._draft is not None:
            self._draft.discard()

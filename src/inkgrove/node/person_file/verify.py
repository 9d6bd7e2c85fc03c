"""Reads a person's file from the first byte to the last and checks everything, before anything is taken in.

docs/person-file.md. Signatures, hashes, links, the order of the records, the digest; then that the file is not older
than what the node holds and contradicts none of it. Records of entries and copies are checked by several processes if
there are many. Nothing is changed here.
"""

from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from inkgrove.core import Flavour, PublicKey
from inkgrove.core.errors import PersonFileError
from inkgrove.messages.person_check import CheckedRecord
from inkgrove.messages.person_file import (
    SECTIONS,
    BlobHeader,
    LogHeader,
    PersonHeader,
    Record,
    SealedSecret,
    changed,
    decode_record,
    encode_record,
    read_blob,
    read_counts,
    read_log,
    read_part,
    read_rows,
    read_secret,
)
from inkgrove.messages.person_verification import ChainCheck, check_request, digest_record, says_key_of
from inkgrove.node.person_file.checkers import RecordCheckers
from inkgrove.node.person_file.container import FileReader
from inkgrove.store.db import Connection
from inkgrove.store.logs import LogState, LogStore, find_log, read_entries

_STARTS: Final = {
    encode_record("entries", entries=[])[:-1]: "entries",
    encode_record("bytes", bytes=b"")[:-1]: "bytes",
}
"""How the two kinds of records begin that are many, in the form in which they are written."""

OnProgress = Callable[[str, int, int | None], None]


@dataclass(slots=True)
class VerifiedPerson:
    """What was found in a file in which everything holds."""

    header: PersonHeader
    digests: list[bytes] = field(default_factory=list)
    """Of each record, in order: a second reading takes nothing else."""
    counts: Counter[str] = field(default_factory=Counter)
    secret: SealedSecret | None = None
    payload_bytes: int = 0
    """How many bytes of payloads the own logs have."""
    largest_blob: int = 0


def verify_person(
    reader: FileReader,
    store: LogStore,
    *,
    allow_older: bool = False,
    on_progress: OnProgress = lambda _what, _done, _total: None,
) -> VerifiedPerson:
    """Check all of a file; raises `file.changed`, `file.not-yours`, `file.older` or `file.forks`.

    `allow_older`: the node may hold newer entries than the file.
    """
    with RecordCheckers(reader.size) as checkers:
        return _Verification(reader, store, checkers, allow_older=allow_older, on_progress=on_progress).run()


# The file


class _Verification:
    def __init__(
        self,
        reader: FileReader,
        store: LogStore,
        checkers: RecordCheckers,
        *,
        allow_older: bool,
        on_progress: OnProgress,
    ) -> None:
        self._reader, self._store, self._checkers = reader, store, checkers
        self._allow_older, self._on_progress = allow_older, on_progress
        self._verified = VerifiedPerson(reader.header)
        self._under_way: deque[tuple[int, _OpenLog | None, Future[CheckedRecord]]] = deque()
        self._section = 0
        self._log: _OpenLog | None = None
        self._blob: _OpenBlob | None = None
        self._keys = {reader.header.key}
        self._seen: set[tuple[PublicKey, int]] = set()
        self._unfinished: set[_OpenLog] = set()
        self._copied: bytes | None = None
        """The instance whose copy came last."""
        self._told: dict[str, int] | None = None

    def run(self) -> VerifiedPerson:
        verified = self._verified
        for record in self._reader.records():
            verified.digests.append(b"")
            self._take(len(verified.digests) - 1, record.body)
            while len(self._under_way) > self._checkers.ahead:
                self._finish_one()
            self._on_progress("checking", record.offset, self._reader.size)
        while self._under_way:
            self._finish_one()
        if self._unfinished:
            raise changed("a log has not as many entries as it says")
        if self._told is None:
            raise changed("the last record is missing")
        if self._told != {name: count for name, count in verified.counts.items() if count}:
            raise changed("it holds not as many of everything as it says")
        return verified

    def _take(self, number: int, body: bytes) -> None:
        kind = kind_of(body)
        if kind == "entries":
            if self._log is None:
                raise changed("entries stand under no log")
            if self._log.header.log_id == 0 and self._log.header.part == "own":
                self._note_key(body)
            self._queue(number, body, self._log)
            return
        if kind == "bytes":
            self._take_bytes(number, body)
            return
        self._end_open()
        record = decode_record(body)
        self._verified.digests[number] = digest_record(body)
        log = read_log(record) if kind == "log" else None
        self._enter(log.part if log is not None else kind)
        if log is not None:
            self._begin_log(log)
        elif kind == "copy":
            self._begin_copy(record)
            self._queue(number, body, None)
        elif kind == "rows":
            table, rows = read_rows(record)
            self._verified.counts[table] += len(rows)
            if table == "requests":
                for row in rows:
                    check_request(row)
        elif kind == "secret":
            self._verified.secret = read_secret(record)
            self._verified.counts["secrets"] += 1
        elif kind == "blob":
            self._blob = _OpenBlob(read_blob(record))
            self._verified.largest_blob = max(self._verified.largest_blob, self._blob.header.size)
            self._verified.counts["blobs"] += 1
            self._finish_blob()
        else:
            self._told = read_counts(record)

    def _begin_copy(self, record: Record) -> None:
        """Check that a further part of a copy follows its create, whose content alone shows that they have it."""
        if record.get("create") is None:
            self._copied = record.get("instance")
            self._verified.counts["copies"] += 1
        elif record.get("instance") != self._copied:
            raise changed("a part of a copy stands without its beginning")

    def _enter(self, section: str) -> None:
        """Check the order of the sections."""
        if self._told is not None:
            raise changed("something follows the last record")
        place = SECTIONS.index(section) if section in SECTIONS else -1
        if place < max(1, self._section) or (section == "secret" and self._verified.secret is not None):
            raise changed(f"a record {section[:20]!r} stands where none should")
        self._section = place

    def _queue(self, number: int, body: bytes, log: "_OpenLog | None") -> None:
        place = log.place if log is not None else 0
        self._under_way.append(
            (number, log, self._checkers.submit(body, log.header if log is not None else None, place))
        )

    def _finish_one(self) -> None:
        number, log, checking = self._under_way.popleft()
        found = checking.result()
        if isinstance(found, str):
            raise PersonFileError("file.changed", found)
        if isinstance(found, bytes):
            self._verified.digests[number] = found
            return
        assert log is not None
        self._verified.digests[number] = found.digest
        log.chain.add(found)
        log.found |= set(found.found)
        log.taken += found.count
        if log.header.part == "own":
            self._verified.counts["entries"] += found.count
            self._verified.payload_bytes += found.payload_bytes
        if log.taken >= log.header.count:
            log.finish(self._store)
            self._unfinished.discard(log)

    # Logs

    def _begin_log(self, header: LogHeader) -> None:
        name = (header.author, header.log_id)
        if name in self._seen:
            raise changed("a log stands in it twice")
        self._seen.add(name)
        if header.part == "own" and header.log_id != 0 and header.author not in self._keys:
            raise PersonFileError(
                "file.not-yours",
                f"the file holds a log of the key {header.author.hex()}, which nothing in it shows to be one of"
                f" {self._reader.header.identity}; nothing of it was taken in",
            )
        held = self._store.read(find_log, *name)
        if header.part == "own" and held is not None and held.height > header.height and not self._allow_older:
            raise PersonFileError(
                "file.older",
                f"the node holds entry {held.height} of log {header.log_id}, and the file, of"
                f" {self._reader.header.made}, ends with entry {header.height}: use a newer file, or take in only what"
                " is lacking (--older)",
                held=held.height,
                in_file=header.height,
            )
        self._verified.counts["logs" if header.part == "own" else "schemas"] += 1
        self._log = _OpenLog(header, held)
        self._unfinished.add(self._log)

    def _note_key(self, body: bytes) -> None:
        assert self._log is not None
        if says_key_of(body, self._reader.header.identity):
            self._keys.add(self._log.header.author)

    def _end_open(self) -> None:
        if self._blob is not None:
            raise changed("a blob is shorter than it says")
        self._log = None

    # Blobs

    def _take_bytes(self, number: int, body: bytes) -> None:
        if self._blob is None:
            raise changed("bytes stand under no blob")
        part = read_part(decode_record(body))
        self._verified.digests[number] = digest_record(body)
        self._blob.digest.update(part)
        self._blob.size += len(part)
        self._verified.counts["blob_bytes"] += len(part)
        self._finish_blob()

    def _finish_blob(self) -> None:
        """Check the hash of a blob that has all its bytes."""
        blob = self._blob
        assert blob is not None
        if blob.size < blob.header.size:
            return
        if blob.size > blob.header.size or Flavour.YAMF.value + blob.digest.digest() != blob.header.hash:
            raise changed("the bytes of a blob have another hash")
        self._blob = None


def kind_of(body: bytes) -> str:
    """The kind of a record; those that are many are not decoded for it."""
    for start, kind in _STARTS.items():
        if body.startswith(start):
            return kind
    return str(decode_record(body)["kind"])


class _OpenLog:
    """A log whose entries are being read."""

    def __init__(self, header: LogHeader, held: LogState | None) -> None:
        self.header, self.chain = header, ChainCheck(header)
        self.place = min(held.height, header.height) if held is not None else 0
        self.found: set[bytes] = set()
        self.taken = 0

    def finish(self, store: LogStore) -> None:
        """Check that the log is complete, and that the entries held here are those of the file."""
        self.chain.finish()
        if not self.place or not self.found:
            return
        held = store.read(_hashes_at, self.header, self.place)
        if held and not held & self.found:
            raise PersonFileError(
                "file.forks",
                f"entry {self.place} of log {self.header.log_id} of the key {self.header.author.hex()} is another one"
                " here than in the file: somebody has signed that place twice; nothing was taken in",
                seq_num=self.place,
                log_id=self.header.log_id,
            )


def _hashes_at(connection: Connection, log: LogHeader, seq_num: int) -> set[bytes]:
    return {bytes(item.hash) for item in read_entries(connection, log.author, log.log_id, seq_num, seq_num)}


class _OpenBlob:
    """A blob whose bytes are being read."""

    def __init__(self, header: BlobHeader) -> None:
        self.header, self.digest, self.size = header, blake2b(), 0

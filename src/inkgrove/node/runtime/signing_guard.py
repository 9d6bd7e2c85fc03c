"""Guards signing: nothing is signed while the database may be older than it was (docs/protocol.md section 7.4).

A database that was put back from a copy lacks entries that others hold: to sign for their sequence numbers again would
fork the logs, for good. So each commit leaves a mark in a file beside the database. A database that lacks a marked
entry is *behind*: nothing is signed until everybody who can hold our logs was asked
(`federation/replication/recovery.py`), or the operator decides.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from typing import Final, TypeVar
from zlib import crc32

from inkgrove.core import Hash, is_hash, parse_secret_key
from inkgrove.core.errors import InkgroveError, StoreUnavailable
from inkgrove.node.errors import Restored
from inkgrove.store.db import Connection, Database, lock_schema_changes
from inkgrove.store.files import write_new_file
from inkgrove.store.locks import locked_file
from inkgrove.store.logs import keep_held_hashes
from inkgrove.store.node import (
    Epoch,
    begin_epoch,
    has_logs_of,
    hosts_anybody,
    lacks_any,
    newest_entry,
    newest_of_all,
    note_behind,
    note_current,
    note_waiting,
    read_epoch,
)

# The mark: the newest entries that were appended for people of this node. The file is written after each commit and not
# synced: a power cut leaves it older than the database, never newer, and so raises no false alarm; a killed process
# loses nothing of it. It holds the newest 64, as processes that commit at one moment write in any order.

SLOTS: Final = 64
"""More than processes that publish at once: of each, at most one commit is not in the file yet."""
_MAGIC: Final = b"inkgrove mark 1\n"
_HEAD: Final = Struct(">16sQQQ")
"""What it is, which file it was written to (`_identity_of`), how many entries were ever written, and how often the
database had been resumed (`Epoch.resumed`) when entries that it lacks were last taken out."""
_SLOT: Final = Struct(">B67sI")
"""Length and bytes of a hash, and a checksum of both."""
_SIZE: Final = _HEAD.size + SLOTS * _SLOT.size
_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800


def path_of(home: Path, name: str) -> Path:
    """Where the mark of a database is."""
    return home / f"signed-{name}.mark"


def all_marks(home: Path) -> list[Path]:
    """The marks in a home, of whatever databases."""
    return sorted(home.glob("signed-*.mark"))


class HighWaterMark:
    """An open mark; safe for threads, and for several processes of one home."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    @property
    def is_own(self) -> bool:
        """Whether this is the file that was made here; a copy of it says nothing of what came after the copy."""
        magic, identity, _, _ = self._head()
        return magic == _MAGIC and identity == _identity_of(self._file)

    def hashes(self) -> list[Hash]:
        """The entries that the database must hold."""
        with self._locked(shared=True):
            return self._read()

    def add(self, entry: Hash) -> None:
        """Note an entry that is committed, in place of the oldest."""
        with self._locked():
            magic, identity, count, resumed = self._head()
            os.pwrite(self._file, _slot_of(entry), _HEAD.size + count % SLOTS * _SLOT.size)
            os.pwrite(self._file, _HEAD.pack(magic, identity, count + 1, resumed), 0)

    def reset(self, resumed: int = 0) -> None:
        """Begin anew without any entry; on the disk when this returns."""
        with self._locked():
            self._write([], resumed)

    @property
    def resumed(self) -> int:
        """How often the database had been resumed when entries that it lacks were last taken out of this file."""
        return self._head()[3]

    def remove(self, gone: Collection[Hash], resumed: int) -> None:
        """Ask for some entries no longer: the database was resumed without them; on the disk when this returns."""
        with self._locked():
            self._write([entry for entry in self._read() if entry not in gone], resumed)

    def _read(self) -> list[Hash]:
        content = os.pread(self._file, _SIZE, 0)
        found = []
        for start in range(_HEAD.size, len(content) - _SLOT.size + 1, _SLOT.size):
            length, text, check = _SLOT.unpack_from(content, start)
            if check == _check(length, text) and is_hash(text[:length]):
                found.append(Hash(text[:length]))
        return found

    def _write(self, entries: list[Hash], resumed: int) -> None:
        head = _HEAD.pack(_MAGIC, _identity_of(self._file), len(entries), resumed)
        content = head + b"".join(_slot_of(entry) for entry in entries)
        os.pwrite(self._file, content.ljust(_SIZE, b"\0"), 0)
        os.fsync(self._file)

    def _head(self) -> tuple[bytes, int, int, int]:
        content = os.pread(self._file, _HEAD.size, 0).ljust(_HEAD.size, b"\0")
        magic, identity, count, resumed = _HEAD.unpack(content)
        return magic, identity, count, resumed

    @contextmanager
    def _locked(self, *, shared: bool = False) -> Iterator[None]:
        with self._lock, locked_file(self._file, shared=shared):
            yield


def find_mark(home: Path, name: str) -> HighWaterMark | None:
    """The mark of a database; None if there is none in this home."""
    try:
        return HighWaterMark(path_of(home, name))
    except FileNotFoundError:
        return None


def make_mark(home: Path, name: str) -> HighWaterMark:
    """The mark of a database, made if there is none: a new one asks for nothing yet."""
    with suppress(FileExistsError):
        write_new_file(path_of(home, name), bytes(_SIZE), 0o600)
        mark = HighWaterMark(path_of(home, name))
        mark.reset()
        return mark
    return HighWaterMark(path_of(home, name))


def _slot_of(entry: Hash) -> bytes:
    text = bytes(entry).ljust(67, b"\0")
    return _SLOT.pack(len(entry), text, _check(len(entry), text))


def _check(length: int, text: bytes) -> int:
    return crc32(bytes([length]) + text)


def _identity_of(file: int) -> int:
    """A number that a copy of a file does not share: of its inode, and of when that was made.

    The inode alone is not enough: who removes a home and copies a backup there may well get the same one.
    """
    made = f"{os.fstat(file).st_ino} {_birth_of(file)}"
    return int.from_bytes(blake2b(made.encode(), digest_size=8).digest(), "big")


def _birth_of(file: int) -> tuple[int, int]:
    """When a file was made (seconds, nanoseconds), which Python does not tell on Linux; zeros where nobody knows."""
    buffer = ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(file, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer)
    except (OSError, AttributeError):
        return 0, 0
    (mask,) = Struct("=I").unpack_from(buffer, 0)
    if failed or not mask & _STATX_BTIME:
        return 0, 0
    seconds, nanoseconds = Struct("=qI").unpack_from(buffer, 80)
    return seconds, nanoseconds


OLDER: Final = "the database lacks entries that were signed with it: it is older than it was"
NO_MARK: Final = "the home has no mark of this database: nobody knows whether it is as new as it was"
COPIED: Final = "the home is a copy: nobody knows what was signed after it was made"
FROM_BEFORE: Final = "the database is from before marks were kept, and the home is not"
AUTHOR_KEY: Final = Path("keys") / "author.key"
"""In a home: the key that signs the schemas made by command; it belongs to no identity."""
_CHECKED: Final = "inkgrove_mark_checked"
_RETRY_SECONDS: Final = 10

_Result = TypeVar("_Result")


class _IsBehind(Exception):
    """Found in a transaction that was to sign something."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class SigningGuard:
    """Guards one database from one home; safe for threads."""

    def __init__(
        self, database: Database, home: Path, clock: Callable[[], int], random_bytes: Callable[[int], bytes]
    ) -> None:
        self._database = database
        self._home = home
        self._clock = clock
        self._random_bytes = random_bytes
        self._mark: HighWaterMark | None = None
        self._observed: Hash | None = None
        self.is_newly_older = False
        """Whether this opening found that the database is older: what was derived from it may be newer than it is."""
        self._open()

    def close(self) -> None:
        """Close the mark."""
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()

    # Opening

    def _open(self) -> None:
        """Look at the database and its mark; what is found is noted in the database before the file is touched."""
        try:
            if self._is_known():
                return
            with self._database.writing(durable=True) as connection:
                lock_schema_changes(connection)
                name, is_reset = self._note(connection)
            self.close()
            self._mark = make_mark(self._home, name)
            if is_reset:
                self._mark.reset()
        except OSError as err:
            raise StoreUnavailable(
                f"the mark in {self._home} cannot be written ({err.strerror}): check the disk and who may write there"
            ) from err

    def _is_known(self) -> bool:
        """Whether there is nothing to note: the usual case, which writes nothing."""

        def work(connection: Connection) -> bool:
            epoch = read_epoch(connection)
            mark = self._mark = find_mark(self._home, epoch.name) if epoch is not None else None
            return epoch is not None and mark is not None and _reason(connection, mark, epoch) is None

        return self._database.read(work)

    def _note(self, connection: Connection) -> tuple[str, bool]:
        """The name of the database, and whether its mark begins anew; notes why it is behind, if it is."""
        epoch, signs = read_epoch(connection), signs_anything(connection, self._home)
        if epoch is None:
            name = self._random_bytes(8).hex()
            begin_epoch(connection, name)
            reason = FROM_BEFORE if all_marks(self._home) else None
        else:
            name = epoch.name
            mark = find_mark(self._home, name)  # again: another process may just have made it
            reason = NO_MARK
            if mark is not None:
                reason = _reason(connection, mark, epoch)
                mark.close()
        if reason is not None and signs and note_behind(connection, reason, self._clock()):
            self.is_newly_older = reason == OLDER
        return name, reason == COPIED or not signs

    # Signing

    def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run work that appends entries of our own, durably; raises `Restored` while the database is behind."""

        def guarded(connection: Connection) -> tuple[_Result, HighWaterMark, Hash | None]:
            mark = self._check(connection)
            return work(connection), mark, newest_entry(connection)

        try:
            result, mark, newest = self._database.write(guarded, durable=True)
        except _IsBehind as found:
            self._note_behind(found.reason)
            raise _restored() from found
        if newest is not None:
            mark.add(newest)
        return result

    def _check(self, connection: Connection, *, marked: Collection[Hash] | None = None) -> HighWaterMark:
        """Return the mark if entries may be signed in this transaction, else raise `Restored` or `_IsBehind`.

        `marked`: what the mark had before this transaction began, to be compared although this connection was before.
        """
        epoch = read_epoch(connection)
        if epoch is None:
            raise _IsBehind(FROM_BEFORE)
        if epoch.behind_since is not None:
            raise _restored()
        mark = self._mark
        if mark is None or mark.path.stem != f"signed-{epoch.name}":
            raise _IsBehind(NO_MARK)  # another database was put in the place of ours
        # A server that was put back has broken the connections: a new one may lead to an older database.
        seen = (id(mark), epoch.resumed)
        if marked is not None or connection.info.get(_CHECKED) != seen:
            reason = _reason(connection, mark, epoch, marked)
            if reason is not None:
                raise _IsBehind(reason)
            connection.info[_CHECKED] = seen
        return mark

    def mark_newest(self) -> None:
        """On PostgreSQL: mark the newest entry of any author, and record if the database lacks a marked one.

        Called every few seconds. So a home that signs seldom still notices that a database, to which others write too,
        was put back. Does next to nothing while nothing is written.
        """
        if not self._database.is_postgresql:
            return  # one home writes to the file, and has marked all that it signed
        # Before the database is looked at: what other processes commit meanwhile is marked, and not seen there.
        marked = self._mark.hashes() if self._mark is not None else []

        def work(connection: Connection) -> tuple[HighWaterMark, Hash | None] | None:
            newest = newest_of_all(connection)
            if newest == self._observed:
                return None
            return self._check(connection, marked=marked), newest

        try:
            found = self._database.read(work)
        except Restored:
            return
        except _IsBehind as error:
            self._note_behind(error.reason)
            return
        if found is not None:
            mark, self._observed = found
            if self._observed is not None and self._observed not in mark.hashes():
                mark.add(self._observed)

    def _note_behind(self, reason: str) -> None:
        now = self._clock()
        self._database.write(lambda connection: note_behind(connection, reason, now), durable=True)

    # State

    def read_behind_state(self) -> Epoch | None:
        """Why nothing is signed, and who is still to be asked; None while entries are signed."""
        epoch = self._database.read(read_epoch)
        return epoch if epoch is not None and epoch.behind_since is not None else None

    def require_current(self) -> None:
        """Raise `Restored` while nothing is signed."""
        if self.read_behind_state() is not None:
            raise _restored()

    def set_waiting_for(self, waits_for: dict[str, str]) -> None:
        """Who is still to be asked, each with why."""
        self._database.write(lambda connection: note_waiting(connection, waits_for))

    def resume(self) -> None:
        """Sign again from here on: everybody was asked, or the operator has decided."""

        def work(connection: Connection) -> str:
            note_current(connection)
            epoch = read_epoch(connection)
            assert epoch is not None
            return epoch.name

        name = self._database.write(work, durable=True)
        if self._mark is None or self._mark.path != path_of(self._home, name):
            self.close()  # another database was put in the place of ours: it has a mark of its own
            self._mark = make_mark(self._home, name)
        mark = self._mark
        self._database.read(lambda connection: _give_up_lost(connection, mark))


def find_reason(database: Database, home: Path) -> str | None:
    """Why a database is behind, as it is noted or would be at the next opening; changes nothing in the database."""

    known = database.read(read_epoch)
    mark = find_mark(home, known.name) if known is not None else None
    marked = mark.hashes() if mark is not None else []

    def work(connection: Connection) -> str | None:
        epoch = read_epoch(connection)
        if epoch is not None and epoch.behind_since is not None:
            return epoch.reason
        if epoch is None or not signs_anything(connection, home):
            return None
        return NO_MARK if mark is None else _reason(connection, mark, epoch, marked)

    try:
        return database.read(work)
    finally:
        if mark is not None:
            mark.close()


def require_not_behind(database: Database, home: Path) -> None:
    """Raise `Restored` if a database is behind, for who signs without a node."""
    if find_reason(database, home) is not None:
        raise _restored()


def signs_anything(connection: Connection, home: Path) -> bool:
    """Whether entries of a log in this database may be signed from a home.

    True if an identity is hosted, or if the database holds a log of the home's own key for schemas.
    """
    if hosts_anybody(connection):
        return True
    try:
        author = parse_secret_key((home / AUTHOR_KEY).read_text().strip()).public
    except (OSError, ValueError, InkgroveError):
        return False
    return has_logs_of(connection, author)


def _reason(
    connection: Connection, mark: HighWaterMark, epoch: Epoch, marked: Collection[Hash] | None = None
) -> str | None:
    """Return why a database with this mark is behind, or None if it is not.

    If another home let the database be signed on without entries that are lost, they are taken out of this mark first.
    `marked`: what the mark had before the transaction began, if that sees nothing that is committed later.
    """
    if not mark.is_own:
        return COPIED
    if mark.resumed > epoch.resumed:
        return OLDER
    if mark.resumed < epoch.resumed:
        _give_up_lost(connection, mark)
    asked_for = mark.hashes()
    if marked is not None:
        asked_for = [entry for entry in asked_for if entry in marked]
    return OLDER if lacks_any(connection, asked_for) else None


def _give_up_lost(connection: Connection, mark: HighWaterMark) -> None:
    """Take the entries out of a mark that a database lacks which was resumed without them."""
    epoch, known = read_epoch(connection), mark.hashes()
    assert epoch is not None
    mark.remove(set(known) - keep_held_hashes(connection, known), epoch.resumed)


def _restored() -> Restored:
    return Restored(
        "this node may have been put back from a copy and signs nothing until it has asked the nodes that hold its logs"
        " what it lacks: try again later; `inkgrove resume` says what it waits for",
        retry_after=_RETRY_SECONDS,
    )

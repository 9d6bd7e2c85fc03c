"""Backups of a home: one directory with all that a node needs, written while it runs, checked, and put back.

A backup holds the database as it was at one moment, every blob that it names, settings, keys and schema logs of the
home, and a manifest with the size and the hash of each file; `vault.key` only if it is asked for. Views are built
again.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Any, Final

from inkgrove.core import Hash
from inkgrove.core.errors import StoreError, StoreUnavailable
from inkgrove.messages import Timestamp
from inkgrove.node.errors import BackupError
from inkgrove.node.runtime.erasure_journal import ERASED, ErasureJournal, apply_journal
from inkgrove.node.runtime.home import READERS, RECEIVERS, HomeLock, NameFile
from inkgrove.node.runtime.signing_guard import AUTHOR_KEY, make_mark, path_of
from inkgrove.store.db import FILE_NAME, Connection, Database, is_any_run_alive, parse_store_url
from inkgrove.store.files import BlobFiles, make_directory, rename_durably, sync_directory, sync_file, write_new_file
from inkgrove.store.logs import (
    NEWEST,
    OLDEST,
    check_snapshot,
    checkpoint,
    count_table_rows,
    load_rows,
    open_store,
    others_connected,
    read_logs,
    snapshot_revision,
    too_old,
    write_snapshot,
)
from inkgrove.store.node import Epoch, end_all_sign_ins, hosts_anybody, note_behind, read_epoch, rename_epoch
from inkgrove.store.rot import compact_files
from inkgrove.store.views import FILE_NAME as VIEWS_FILE
from inkgrove.store.views import drop_all_views, list_blobs, open_views

BACKUP_FORMAT: Final = "inkgrove backup 1"
MANIFEST: Final = "manifest.json"
VAULT_KEY: Final = "vault.key"
SINGLE_FILES: Final = ("inkgrove.toml", RECEIVERS, READERS, ERASED)
FOLDERS: Final = ("keys", "schemas")
_PIECE: Final = 1024 * 1024

OnProgress = Callable[[str, int, int | None], None]
"""Hears what is being done, how much of it, and of how much if that is known."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds."""

    created: int
    store: str
    """`sqlite` or `postgresql`."""
    revision: str
    files: Mapping[str, tuple[int, str]]
    """Size and BLAKE2b-512 of each file, by its path."""
    rows: Mapping[str, int]
    """By table."""
    missing_blobs: int
    """Blobs that the database names and that were not on the disk."""

    @property
    def has_vault_key(self) -> bool:
        """Whether the file is in it that opens the keys."""
        return VAULT_KEY in self.files

    @property
    def bytes(self) -> int:
        """How large all files are together."""
        return sum(size for size, _ in self.files.values())


def write_backup(
    database: Database,
    home: Path,
    target: Path,
    *,
    vault_key: Path | None,
    now: int,
    on_progress: OnProgress = lambda _what, _done, _total: None,
) -> Manifest:
    """Write a backup to a directory that does not exist yet, and check it; `vault_key`: the file to put into it."""
    if target.exists():
        raise BackupError("backup.exists", f"{target} is there already: name a directory that is not")
    make_directory(target.parent)
    draft = target.with_name(f".{target.name}.{token_hex(8)}")
    draft.mkdir(mode=0o700)
    try:
        manifest = _fill(database, home, draft, vault_key, now, on_progress)
        rename_durably(draft, target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return manifest


def _fill(
    database: Database, home: Path, draft: Path, vault_key: Path | None, now: int, on_progress: OnProgress
) -> Manifest:
    file = write_snapshot(database, draft, lambda table, rows: on_progress(f"copying {table}", rows, None))
    for left in draft.glob(f"{FILE_NAME}-*"):
        left.unlink()
    on_progress("checking the copy", 0, None)
    rows, revision = check_snapshot(file), snapshot_revision(file)
    missing = _copy_blobs(file, BlobFiles(home / "blobs"), BlobFiles(draft / "blobs"), on_progress)
    for name in _files_of(home):
        copy_file(home / name, draft / name)
    if vault_key is not None:
        copy_file(vault_key, draft / VAULT_KEY)
    paths = sorted(path for path in draft.rglob("*") if path.is_file())
    files: dict[str, tuple[int, str]] = {}
    for number, path in enumerate(paths):
        files[path.relative_to(draft).as_posix()] = digest_of(path)
        on_progress("reading what was written", number + 1, len(paths))
    kind = "postgresql" if database.is_postgresql else "sqlite"
    manifest = Manifest(now, kind, revision or "", files, rows, missing)
    write_new_file(draft / MANIFEST, _render(manifest), 0o600)
    for folder in (path for path in draft.rglob("*") if path.is_dir()):
        sync_directory(folder)
    sync_directory(draft)
    return manifest


def _files_of(home: Path) -> Iterator[str]:
    """Files of a home beside database, blobs and the key of the vault."""
    yield from (name for name in SINGLE_FILES if (home / name).is_file())
    for folder in FOLDERS:
        for path in sorted((home / folder).glob("*")):
            if path.is_file() and not path.name.startswith("."):
                yield f"{folder}/{path.name}"


def _copy_blobs(snapshot: Path, source: BlobFiles, target: BlobFiles, on_progress: OnProgress) -> int:
    """Copy every blob that the database names; how many are not there."""
    database = Database(parse_store_url(snapshot.parent))
    try:
        named = database.read(list_blobs)
    finally:
        database.close()
        for left in snapshot.parent.glob(f"{FILE_NAME}-*"):
            left.unlink()
    missing = 0
    for number, content in enumerate(named):
        path = target.path_of(content)
        try:
            copy_file(source.path_of(content), path)
        except FileNotFoundError:  # collected meanwhile, or fetched again when somebody asks
            missing += 1
        else:
            if digest_of(path)[1] != content.hex()[4:]:
                raise BackupError(
                    "backup.damaged", f"the blob {content.hex()} has other bytes than its name says: look at the disk"
                )
        on_progress("copying blobs", number + 1, len(named))
    return missing


def copy_file(source: Path, target: Path) -> None:
    """Copy a file for its owner alone; its bytes are then on the disk, and its directory is still to be synced."""
    with source.open("rb") as file:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as copy:
            shutil.copyfileobj(file, copy, _PIECE)
    sync_file(target)


def digest_of(path: Path) -> tuple[int, str]:
    """Size and BLAKE2b-512 of a file, as the disk has it."""
    digest, size = blake2b(), 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


# Reading one


def read_manifest(backup: Path) -> Manifest:
    """What a backup says of itself; raises `backup.damaged` if it is none."""
    try:
        value: Any = json.loads((backup / MANIFEST).read_bytes())
        if value["form"] != BACKUP_FORMAT:
            raise BackupError(
                "backup.damaged",
                f"{backup} is of the form {str(value['form'])[:60]!r}, and this version knows {BACKUP_FORMAT!r}",
            )
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in value["files"].items()}
        rows = {str(name): int(count) for name, count in value["rows"].items()}
        created, store, revision = int(value["created"]), str(value["store"]), str(value["revision"])
        manifest = Manifest(created, store, revision, files, rows, int(value["missing_blobs"]))
    except OSError as err:
        raise BackupError(
            "backup.damaged", f"{backup} is no backup: {MANIFEST} cannot be read ({err.strerror})"
        ) from err
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise BackupError("backup.damaged", f"{backup / MANIFEST} cannot be read") from err
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or FILE_NAME not in files:
            raise BackupError(
                "backup.damaged", f"{backup / MANIFEST} names a file that belongs to no backup: {name[:80]!r}"
            )
    return manifest


def check_backup(backup: Path, on_progress: OnProgress = lambda _what, _done, _total: None) -> Manifest:
    """Read every file of a backup and compare it with the manifest; raises `backup.damaged` if one is not as it was."""
    manifest = read_manifest(backup)
    for number, (name, expected) in enumerate(manifest.files.items()):
        try:
            found = digest_of(backup / name)
        except OSError as err:
            raise BackupError(
                "backup.damaged", f"{backup / name} cannot be read ({err.strerror}): take another backup"
            ) from err
        if found != expected:
            raise BackupError("backup.damaged", f"{backup / name} is not as it was written: take another backup")
        on_progress("reading the backup", number + 1, len(manifest.files))
    rows = check_snapshot(backup / FILE_NAME)
    if rows != manifest.rows:
        raise BackupError("backup.damaged", f"the database in {backup} has other rows than its manifest says")
    return manifest


def _render(manifest: Manifest) -> bytes:
    value = {
        "form": BACKUP_FORMAT,
        "created": manifest.created,
        "created_at": str(Timestamp(manifest.created)),
        "store": manifest.store,
        "revision": manifest.revision,
        "rows": dict(manifest.rows),
        "missing_blobs": manifest.missing_blobs,
        "files": {name: list(file) for name, file in manifest.files.items()},
    }
    return (json.dumps(value, indent=1) + "\n").encode()


# Restoring (docs/protocol.md section 7.4). Nothing of the home changes before the whole backup was compared with its
# manifest, and the database is replaced in one step. It is marked as behind: the node asks others before it signs.

_ASIDE: Final = "replaced-"
_HANG_UP_SECONDS: Final = 5.0
"""A server ends the connection of a process that is gone a moment later, or more if it has much to do."""


@dataclass(frozen=True, slots=True)
class RestoredHome:
    """What was put back."""

    manifest: Manifest
    vault_key: str
    """`restored`, `kept` (there was one in the home) or `missing`."""
    moved_to: Path | None
    """Where the files are that were there before."""
    skipped_files: Collection[str]
    """Files of the backup that the home had already, and that were left as they are."""


def restore_backup(
    backup: Path,
    home: Path,
    store_url: str,
    *,
    vault_key: Path,
    replace: bool,
    now: int,
    on_progress: OnProgress = lambda _what, _done, _total: None,
) -> RestoredHome:
    """Replace what a home and its database hold by a backup; raises `backup.would-replace` if there is something.

    `replace`: replace it nevertheless.
    """
    manifest = check_backup(backup, on_progress)
    is_postgresql = "://" in store_url
    if (manifest.store == "postgresql") is not is_postgresql:
        raise BackupError(
            "backup.other-store",
            f"the backup is of a store in {manifest.store}: name one with --store, or leave that away",
        )
    if manifest.revision > NEWEST:
        raise StoreError(
            "store.too-new", f"a newer Inkgrove has written the backup (revision {manifest.revision}): use that one"
        )
    if "" < manifest.revision < OLDEST:
        raise too_old(manifest.revision)
    make_directory(home)
    lock = HomeLock(home, alone=True)
    try:
        before = _check_target(home, store_url, replace=replace)
        draft = home / f".restore-{token_hex(8)}"
        draft.mkdir(mode=0o700)
        try:
            name = _prepare(backup, draft, manifest, home, now)
            kept = _put_files(backup, home, manifest, on_progress)
            vault = _put_vault_key(backup, vault_key, manifest)
            if is_postgresql:
                aside = None
                _put_postgresql(draft, store_url, on_progress)
            else:
                aside = _put_sqlite(draft, home, now)
            _put_mark(home, name, before)
            on_progress("erasing what was erased before", 0, None)
            _erase_again(home, store_url, now)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    finally:
        lock.close()
    return RestoredHome(manifest, vault, aside, kept)


def _check_target(home: Path, store_url: str, *, replace: bool) -> Epoch | None:
    """What the database to be replaced says of itself; None if there is none, or it is too damaged to say anything.

    Raises if somebody works on it, or if it holds something and nobody said that this may go.
    """
    if is_any_run_alive(home):
        raise BackupError("backup.in-use", f"a pipeline works on {home}: end it first")
    if "://" not in store_url and not (home / FILE_NAME).exists():
        return None
    try:
        epoch, entries, is_empty = _read_target(store_url)
    except StoreUnavailable:
        if "://" in store_url or not replace:
            raise
        return None
    if not is_empty and not replace:
        raise BackupError(
            "backup.would-replace",
            f"there are {entries:,} entries in the store, which may be newer than the backup: with --replace they give"
            " way to it",
        )
    return epoch


def _count_others(database: Database) -> int:
    """How many others are connected to a PostgreSQL database, once those who have just hung up are gone."""
    until = time.monotonic() + _HANG_UP_SECONDS
    while (others := others_connected(database)) and time.monotonic() < until:
        time.sleep(0.1)
    return others


def _read_target(store_url: str) -> tuple[Epoch | None, int, bool]:
    """What a database says of itself, how many entries it holds, and whether nobody has anything in it."""
    with open_store(store_url) as store:
        if store.database.is_postgresql and (others := _count_others(store.database)):
            raise BackupError("backup.in-use", f"{others} others are connected to the database: end them first")
        entries = sum(state.held for state in store.read(read_logs).values())
        is_empty = not entries and not store.database.read(hosts_anybody)
        return store.database.read(read_epoch), entries, is_empty


def _prepare(backup: Path, draft: Path, manifest: Manifest, home: Path, now: int) -> str:
    """Make the database in a draft as it shall be: the newest tables, and a note that it is older than it was."""
    copy_file(backup / FILE_NAME, draft / FILE_NAME)
    name = token_hex(8)
    reason = f"the home was restored from a backup of {Timestamp(manifest.created)}"

    def work(connection: Connection) -> None:
        rename_epoch(connection, name)
        end_all_sign_ins(connection)  # some may have been ended after the backup was made
        has_author_key = AUTHOR_KEY.as_posix() in manifest.files or (home / AUTHOR_KEY).exists()
        if hosts_anybody(connection) or has_author_key:
            note_behind(connection, reason, now)

    with open_store(draft) as store:
        store.database.write(work, durable=True)
    return name


def _put_sqlite(draft: Path, home: Path, now: int) -> Path | None:
    """Exchange the database in one step; what was there is kept aside, views are built again.

    At every moment there is a whole database under the name, the old one or the new one.
    """
    with open_store(draft) as store:
        checkpoint(store.database)
    sync_file(draft / FILE_NAME)
    old = home / FILE_NAME
    if not old.exists() and not any(home.glob(f"{VIEWS_FILE}*")):
        rename_durably(draft / FILE_NAME, old)
        return None
    aside = home / f"{_ASIDE}{now}"
    aside.mkdir(mode=0o700)
    if old.exists():
        try:
            with open_store(home) as store:
                checkpoint(store.database)
        except StoreUnavailable:
            pass  # a damaged file is kept as it is
    # Views follow from the logs. What SQLite keeps beside a file is taken for a part of whatever has its name.
    for path in [*home.glob(f"{VIEWS_FILE}*"), *home.glob(f"{FILE_NAME}-*")]:
        path.rename(aside / path.name)
    if old.exists():
        try:
            (aside / FILE_NAME).hardlink_to(old)
        except OSError:  # a disk without hard links
            copy_file(old, aside / FILE_NAME)
    sync_directory(aside)
    rename_durably(draft / FILE_NAME, old)
    return aside


def _put_postgresql(draft: Path, store_url: str, on_progress: OnProgress) -> None:
    with open_store(store_url) as store, open_store(draft) as source:
        expected = source.database.read(count_table_rows)
        with store.database.writing() as connection:
            load_rows(draft, connection, lambda table, rows: on_progress(f"writing {table}", rows, None))
            found = count_table_rows(connection)
            if found != expected:
                raise BackupError(
                    "backup.damaged", "the database does not hold what was written to it; nothing was changed"
                )
    views = open_views(store_url)
    try:
        views.database.write(drop_all_views)
    finally:
        views.close()


def _erase_again(home: Path, store_url: str, now: int) -> None:
    """Take out of the database that was put back what the journal of the home says was erased."""
    with open_store(store_url) as store:
        if apply_journal(store.database, home, now, from_start=True):
            compact_files(store.database)


def _put_files(backup: Path, home: Path, manifest: Manifest, on_progress: OnProgress) -> list[str]:
    """Put back blobs and the files of the home; return those that were there already and differ."""
    kept = []
    blobs, folders = BlobFiles(home / "blobs"), set()
    for number, name in enumerate(manifest.files):
        path = home / name
        if name.startswith("blobs/"):
            path = blobs.path_of(Hash.fromhex(Path(name).name))
            if not path.exists() or path.stat().st_size != manifest.files[name][0]:
                copy_file(backup / name, path)
                folders.add(path.parent)
        elif name in (RECEIVERS, READERS):
            for fqdn in sorted(NameFile(backup / name).names()):
                NameFile(path).add(fqdn)
        elif name == ERASED:
            known = set(ErasureJournal(home).read())
            ErasureJournal(home).append([item for item in ErasureJournal(backup).read() if item not in known])
        elif name in SINGLE_FILES or name.split("/")[0] in FOLDERS:
            if not path.exists():
                write_new_file(path, (backup / name).read_bytes(), 0o600)
            elif digest_of(path) != manifest.files[name]:
                kept.append(name)
        on_progress("putting files back", number + 1, len(manifest.files))
    for folder in folders:
        sync_directory(folder)
    if folders:
        sync_directory(blobs.directory)
        sync_directory(home)
    return kept


def _put_vault_key(backup: Path, vault_key: Path, manifest: Manifest) -> str:
    if vault_key.exists():
        return "kept"
    if not manifest.has_vault_key:
        return "missing"
    write_new_file(vault_key, (backup / VAULT_KEY).read_bytes(), 0o600)
    return "restored"


def _put_mark(home: Path, name: str, before: Epoch | None) -> None:
    """A mark of the restored database, which has a name of its own: that of the one before says nothing any more."""
    make_mark(home, name).close()
    if before is not None:
        path_of(home, before.name).unlink(missing_ok=True)

"""Puts a backup in the place of a home, and notes that it is older than it was: the node asks before it signs.

docs/protocol.md section 7.4. Nothing of the home changes before the whole backup has been read and compared with its
manifest, and the database is exchanged in one step.
"""

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.errors import StoreError, StoreUnavailable
from inkgrove.core.hashing import Hash
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node.backup import (
    FOLDERS,
    SINGLE_FILES,
    VAULT_KEY,
    Manifest,
    OnProgress,
    check_backup,
    copy_file,
    digest_of,
    end_sign_ins,
    remove_tree,
)
from inkgrove.node.errors import BackupError
from inkgrove.node.home_lock import HomeLock
from inkgrove.node.mark import make_mark, path_of
from inkgrove.node.receivers import READERS, RECEIVERS, NameFile
from inkgrove.node.signing import AUTHOR_KEY
from inkgrove.store.db import (
    FILE_NAME,
    BlobFiles,
    Database,
    is_any_run_alive,
    make_directory,
    rename_durably,
    sync_directory,
    sync_file,
    write_new_file,
)
from inkgrove.store.logs import (
    NEWEST,
    OLDEST,
    LogStore,
    count_table_rows,
    load_rows,
    open_store,
    others_connected,
    too_old,
)
from inkgrove.store.node import Epoch, hosts_anybody, note_behind, read_epoch, rename_epoch
from inkgrove.store.views import FILE_NAME as VIEWS_FILE
from inkgrove.store.views import drop_all_views, open_views

_ASIDE: Final = "replaced-"
_HANG_UP_SECONDS: Final = 5.0
"""A server ends the connection of a process that is gone a moment later, or more if it has much to do."""


@dataclass(frozen=True, slots=True)
class RestoredHome:
    """What was put back."""

    manifest: Manifest
    vault_key: str
    """`restored`, `kept` (there was one in the home) or `missing`."""
    aside: Path | None
    """Where the files are that were there before."""
    kept: Collection[str]
    """Files of the backup that the home had already, and that were left as they are."""


def restore_backup(
    backup: Path,
    home: Path,
    place: str,
    *,
    vault_key: Path,
    replace: bool,
    now: int,
    on_progress: OnProgress = lambda _what, _done, _total: None,
) -> RestoredHome:
    """Put a backup in the place of what a home and its database hold; `replace`: also if that is something."""
    manifest = check_backup(backup, on_progress)
    is_postgresql = "://" in place
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
        before = _check_target(home, place, replace=replace)
        draft = home / f".restore-{token_hex(8)}"
        draft.mkdir(mode=0o700)
        try:
            name = _prepare(backup, draft, manifest, home, now)
            kept = _put_files(backup, home, manifest, on_progress)
            vault = _put_vault_key(backup, vault_key, manifest)
            if is_postgresql:
                aside = None
                _put_postgresql(draft, place, on_progress)
            else:
                aside = _put_sqlite(draft, home, now)
            _put_mark(home, name, before)
        finally:
            remove_tree(draft)
    finally:
        lock.close()
    return RestoredHome(manifest, vault, aside, kept)


def _check_target(home: Path, place: str, *, replace: bool) -> Epoch | None:
    """What the database to be replaced says of itself; None if there is none, or it is too damaged to say anything.

    Raises if somebody works on it, or if it holds something and nobody said that this may go.
    """
    if is_any_run_alive(home):
        raise BackupError("backup.in-use", f"a pipeline works on {home}: end it first")
    if "://" not in place and not (home / FILE_NAME).exists():
        return None
    try:
        epoch, entries, is_empty = _look_at_target(place)
    except StoreUnavailable:
        if "://" in place or not replace:
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


def _look_at_target(place: str) -> tuple[Epoch | None, int, bool]:
    """What a database says of itself, how many entries it holds, and whether nobody has anything in it."""
    with open_store(place) as store:
        if store.database.is_postgresql and (others := _count_others(store.database)):
            raise BackupError("backup.in-use", f"{others} others are connected to the database: end them first")
        entries = sum(state.held for state in store.logs().values())
        is_empty = not entries and not store.database.read(hosts_anybody)
        return store.database.read(read_epoch), entries, is_empty


def _prepare(backup: Path, draft: Path, manifest: Manifest, home: Path, now: int) -> str:
    """Make the database in a draft as it shall be: the newest tables, and a note that it is older than it was."""
    copy_file(backup / FILE_NAME, draft / FILE_NAME)
    name = token_hex(8)
    reason = f"the home was restored from a backup of {Timestamp(manifest.created)}"

    def work(connection: Connection) -> None:
        rename_epoch(connection, name)
        end_sign_ins(connection)
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
        _finish_file(store)
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
                _finish_file(store)
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


def _finish_file(store: LogStore) -> None:
    """Bring everything into the one file that is given its name."""
    with store.database.engine.connect() as connection:
        driver = connection.connection.driver_connection
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # type: ignore[union-attr]
        connection.invalidate()


def _put_postgresql(draft: Path, place: str, on_progress: OnProgress) -> None:
    with open_store(place) as store, open_store(draft) as source:
        expected = source.database.read(count_table_rows)
        with store.database.writing() as connection:
            load_rows(draft, connection, lambda table, rows: on_progress(f"writing {table}", rows, None))
            found = count_table_rows(connection)
            if found != expected:
                raise BackupError(
                    "backup.damaged", "the database does not hold what was written to it; nothing was changed"
                )
    views = open_views(place)
    try:
        views.database.write(drop_all_views)
    finally:
        views.close()


def _put_files(backup: Path, home: Path, manifest: Manifest, on_progress: OnProgress) -> list[str]:
    """Put back blobs and the files of the home; those that are there stay, and are told."""
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
                NameFile(path).note(fqdn)
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

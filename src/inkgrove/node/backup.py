"""Backups of a home: one directory with all that a node needs, written while it runs, checked, and put back.

A backup holds the database as it was at one moment, every blob that it names, settings, keys and schema logs of the
home, and a manifest with the size and the hash of each file; `vault.key` only if it is asked for. Views are built
again.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import Connection, delete, select

from inkgrove.core.hashing import Hash
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node.errors import BackupError
from inkgrove.node.receivers import READERS, RECEIVERS
from inkgrove.store.db import (
    FILE_NAME,
    BlobFiles,
    Database,
    blobs,
    codes,
    make_directory,
    parse_store_url,
    rename_durably,
    sessions,
    sync_directory,
    sync_file,
    tokens,
    write_new_file,
)
from inkgrove.store.logs import check_snapshot, snapshot_revision, write_snapshot

FORM: Final = "inkgrove backup 1"
MANIFEST: Final = "manifest.json"
VAULT_KEY: Final = "vault.key"
SINGLE_FILES: Final = ("inkgrove.toml", RECEIVERS, READERS)
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
        named = [Hash(found) for found in database.read(lambda c: list(c.scalars(select(blobs.c.hash))))]
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
        if value["form"] != FORM:
            raise BackupError(
                "backup.damaged",
                f"{backup} is of the form {str(value['form'])[:60]!r}, and this version knows {FORM!r}",
            )
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in value["files"].items()}
        rows = {str(name): int(count) for name, count in value["rows"].items()}
        facts = int(value["created"]), str(value["store"]), str(value["revision"])
        manifest = Manifest(*facts, files, rows, int(value["missing_blobs"]))
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
        "form": FORM,
        "created": manifest.created,
        "created_at": str(Timestamp(manifest.created)),
        "store": manifest.store,
        "revision": manifest.revision,
        "rows": dict(manifest.rows),
        "missing_blobs": manifest.missing_blobs,
        "files": {name: list(facts) for name, facts in manifest.files.items()},
    }
    return (json.dumps(value, indent=1) + "\n").encode()


def end_sign_ins(connection: Connection) -> None:
    """End what a backup brings back to life: sign-ins and tokens that may have been ended after it was made."""
    for table in (sessions, codes, tokens):
        connection.execute(delete(table))


def remove_tree(path: Path) -> None:
    """Remove a directory that may not be there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path)

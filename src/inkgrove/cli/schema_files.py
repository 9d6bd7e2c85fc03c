"""The schemas of a home directory: a log file for each in `schemas/`, signed with the key in `keys/author.key`."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inkgrove.cli.files import read_secret_key, read_text, read_valid_log, render_entry_line, write_new
from inkgrove.core import (
    KEY_BYTES,
    PublicKey,
    SecretKey,
    VerifiedEntry,
    find_next_entry,
    lipmaa,
    sign_entry,
    sign_next,
    verify_entry,
)
from inkgrove.core.errors import InputError, KeysError
from inkgrove.messages import SchemaId, SchemaMessage, encode_message
from inkgrove.schema import Schema, append_version, fold_schema
from inkgrove.store.files import make_directory, replace_file
from inkgrove.store.locks import FileLock

if TYPE_CHECKING:
    from inkgrove.store.logs import LogStore

_STORE_FILE = "node.db"
"""As `store/db/connection.py` has it, which takes long to import."""


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema of the home directory: its log file, the verified entries, and the folded schema."""

    path: Path
    schema: Schema
    verified: dict[int, VerifiedEntry]


def author_key(home: Path) -> SecretKey:
    """Read the key that signs the schemas of a home; raises `input.unreadable-file` if there is none."""
    return read_secret_key(home / "keys" / "author.key")


def _author_key_or_new(home: Path) -> SecretKey:
    path = home / "keys" / "author.key"
    if not path.exists():
        write_new(path, secrets.token_bytes(KEY_BYTES).hex().encode() + b"\n", mode=0o600)
    return read_secret_key(path)


def schema_paths(home: Path) -> list[Path]:
    """List the log files of the schemas of a home."""
    return sorted((home / "schemas").glob("*.jsonl"))


def find_schema(home: Path, name: str | None) -> SchemaFile:
    """Read the schema of a name, or the only one of the home; raises `input.unknown-schema` if none or several."""
    paths = schema_paths(home)
    if name is not None:
        paths = [path for path in paths if path.stem == name]
    if len(paths) != 1:
        known = ", ".join(path.stem for path in schema_paths(home)) or "none"
        wanted = f"no schema {name!r}" if name is not None else "name the schema with --schema"
        raise InputError(
            "input.unknown-schema", f"{wanted}; in {home} there are: {known}. `inkgrove schema init NAME` makes one."
        )
    return read_schema_file(paths[0])


def read_schema_file(path: Path) -> SchemaFile:
    """Read the log of a schema from a file; raises what is wrong with it if it is not complete and valid."""
    log = read_valid_log(path)
    first = log.verified[1].entry
    return SchemaFile(path, fold_schema(SchemaId(first.author, first.log_id), log.payloads), log.verified)


def publish_schema_messages(
    home: Path, store: str | None, name: str | None, messages: Sequence[SchemaMessage]
) -> Schema:
    """Append messages to a schema's log; if one is invalid, all are refused before anything is signed.

    Raises `Restored` if the store, in the home or at the URL `store`, may be older than it was.
    """
    find_schema(home, name)  # before the lock, which would make the directory of a home that is not there
    with _locked(home):
        file = _with_newer(home, store, find_schema(home, name))
        key = author_key(home)
        if key.public != file.schema.id.author:
            raise KeysError(
                "key.mismatch", f"{file.path} is a log of {file.schema.id.author}, this home's key is {key.public}"
            )
        after = file.schema
        for message in messages:
            after = append_version(after, message)
        verified, lines = dict(file.verified), []
        for message in messages:
            following = find_next_entry(verified)
            payload = encode_message(message)
            entry = sign_next(key, payload, following)
            before, lipmaa_link = verified[following.seq_num - 1], verified.get(lipmaa(following.seq_num))
            verified[following.seq_num] = verify_entry(entry, backlink=before, lipmaa_link=lipmaa_link)
            lines.append(render_entry_line(entry, payload))
        _append_lines(file.path, lines)
    return after


def create_schema(home: Path, store: str | None, name: str, message: SchemaMessage) -> Schema:
    """Sign the first entry of a new log for a schema, in a file of the home.

    Raises `Restored` if the store, in the home or at the URL `store`, may be older than it was.
    """
    with _locked(home):
        key = _author_key_or_new(home)
        # Log ids are never used again, also if a file was removed: two logs under one id would be a fork.
        counter = home / "schemas" / "last-log-id"
        log_ids = [read_schema_file(path).schema.id.log_id for path in schema_paths(home)]
        last = int(read_text(counter)) if counter.exists() else 0
        schema_id = SchemaId(key.public, max([last, *log_ids, *_stored_logs(home, store, key.public)]) + 1)
        schema = append_version(Schema(schema_id, ()), message)
        payload = encode_message(message)
        entry = sign_entry(key, payload, log_id=schema_id.log_id, seq_num=1)
        write_new(home / "schemas" / f"{name}.jsonl", f"{render_entry_line(entry, payload)}\n".encode())
        replace_file(counter, f"{schema_id.log_id}\n".encode())
    return schema


def _with_newer(home: Path, store: str | None, file: SchemaFile) -> SchemaFile:
    """Append the entries that only the store has to a schema's file, which may have been restored from a copy."""
    with _open_current(home, store) as opened:
        if opened is None:
            return file
        from inkgrove.store.logs import read_entries

        newer = opened.read(read_entries, *file.schema.id, len(file.verified) + 1)
    lines = [render_entry_line(item.entry, item.payload) for item in newer if item.refusal is None]
    if not lines:
        return file
    _append_lines(file.path, lines)
    return read_schema_file(file.path)


def _stored_logs(home: Path, store: str | None, author: PublicKey) -> list[int]:
    """List the ids of an author's logs in the store; none if there is no store."""
    with _open_current(home, store) as opened:
        if opened is None:
            return []
        from inkgrove.store.logs import read_logs

        states = opened.read(read_logs).values()
        return [state.log_id for state in states if state.author == author]


@contextmanager
def _open_current(home: Path, store: str | None) -> Iterator["LogStore | None"]:
    """Open the store that a command works with, or give None if there is none; raises `Restored` if it may be older."""
    if store is None and not (home / _STORE_FILE).exists():
        yield None
        return
    from inkgrove.core.errors import NoStore
    from inkgrove.node.runtime import require_not_behind
    from inkgrove.store.logs import open_store

    try:
        opened = open_store(store or home, create=False)
    except NoStore:
        yield None
        return
    with opened:
        require_not_behind(opened.database, home)
        yield opened


def _append_lines(path: Path, lines: Sequence[str]) -> None:
    try:
        is_last_line_open = not path.read_bytes().endswith(b"\n")
        with path.open("ab") as file:
            file.write(("\n" * is_last_line_open + "".join(f"{line}\n" for line in lines)).encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as err:
        raise InputError("input.unreadable-file", f"cannot write {path}: {err.strerror or err}") from err


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock of a home: one writer at a time, across processes."""
    try:
        make_directory(home)
        lock = FileLock(home / ".lock")
    except OSError as err:
        raise InputError("input.unreadable-file", f"cannot write to {home}: {err.strerror or err}") from err
    with lock:
        yield

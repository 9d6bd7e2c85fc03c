"""Files that commands read and write; `-` is standard input, and all failures are `input.unreadable-file`."""

import json
import sys
from binascii import unhexlify
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inkgrove.core import (
    Entry,
    HeldEntry,
    SecretKey,
    VerifiedEntry,
    decode_entry,
    parse_secret_key,
    verify_log,
    verify_signed,
)
from inkgrove.core.errors import BadLine, InputError
from inkgrove.store.files import write_new_file


def read_bytes(path: Path) -> bytes:
    """Read a file or standard input."""
    if str(path) == "-" and sys.stdin is None:
        raise InputError("input.unreadable-file", "standard input is closed")
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as err:
        raise InputError("input.unreadable-file", f"cannot read {path}: {err.strerror or err}") from err


def read_text(path: Path) -> str:
    """Read a file or standard input as UTF-8."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as err:
        raise InputError("input.unreadable-file", f"{path} is not UTF-8 text") from err


def write_new(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write a file that does not exist yet, and sync it to the disk; raises `input.unreadable-file` if it exists."""
    try:
        write_new_file(path, data, mode)
    except FileExistsError as err:
        raise InputError("input.unreadable-file", f"{path} exists already; choose another name") from err
    except OSError as err:
        raise InputError("input.unreadable-file", f"cannot write {path}: {err.strerror or err}") from err


def read_secret_key(path: Path) -> SecretKey:
    """Read a key file: 64 hex characters, as `inkgrove key new --out` writes it; else raises `key.bad-key`."""
    return parse_secret_key(read_text(path).strip())


def parse_hex(text: str) -> bytes:
    """Parse hex given as an argument, `-` from standard input; raises `input.bad-hex`."""
    if text == "-":
        text = read_text(Path("-")).strip()
    try:
        return unhexlify(text)
    except ValueError as err:
        raise InputError("input.bad-hex", f"{text[:40]!r} is not hex: pairs of 0-9 and a-f") from err


@dataclass(frozen=True, slots=True)
class EntryLine:
    """A line of a log file, decoded no further than hex."""

    number: int
    entry: bytes
    payload: bytes | None


def read_entry_lines(path: Path) -> Iterator[EntryLine | tuple[int, BadLine]]:
    """Yield the lines of a file of entries, without blank ones; for a bad line, its number and the error."""
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield parse_entry_line(number, line)
        except BadLine as error:
            yield number, error


def parse_entry_line(number: int, line: bytes) -> EntryLine:
    """Parse a JSON line with `entry` and `payload` in hex; raises `BadLine` for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise BadLine("the line is not JSON") from err
    if not isinstance(value, dict) or not isinstance(value.get("entry"), str):
        raise BadLine('the line is not an object with "entry" in hex')
    payload = value.get("payload")
    if payload is not None and not isinstance(payload, str):
        raise BadLine('"payload" is neither hex nor null')
    try:
        return EntryLine(number, unhexlify(value["entry"]), None if payload is None else unhexlify(payload))
    except ValueError as err:
        raise BadLine('"entry" or "payload" is not hex') from err


def render_entry_line(entry: Entry, payload: bytes | None) -> str:
    """Render an entry with its payload as a line of a log file."""
    return json.dumps({"entry": entry.encoded.hex(), "payload": None if payload is None else payload.hex()})


@dataclass(frozen=True, slots=True)
class ValidLog:
    """The verified entries and the payloads of a complete and valid log, by sequence number."""

    verified: dict[int, VerifiedEntry]
    payloads: dict[int, bytes]


def read_valid_log(path: Path) -> ValidLog:
    """Read a file that holds one log; raises the first error if a line, an entry or the log is not valid."""
    held = []
    for line in read_entry_lines(path):
        if isinstance(line, tuple):
            number, error = line
            raise BadLine(f"{path}, line {number}: {error.message}", line=number)
        held.append(HeldEntry(verify_signed(decode_entry(line.entry)), line.payload))
    if len({(item.signed.entry.author, item.signed.entry.log_id) for item in held}) != 1:
        raise InputError("input.unreadable-file", f"{path} must hold the entries of exactly one log")
    report = verify_log(held)
    for verdict in report.verdicts:
        if not isinstance(verdict, VerifiedEntry):
            raise verdict
    payloads = {item.signed.entry.seq_num: item.payload for item in held if item.payload is not None}
    return ValidLog(report.verified, payloads)

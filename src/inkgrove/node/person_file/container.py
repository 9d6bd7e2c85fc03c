"""Writes and reads the container of a person's file: byte strings one after the other, and a seal at the end.

docs/person-file.md. A reader looks at the seal first: a file without it was cut off. Whatever is found to be wrong in a
file that has one was changed.
"""

import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

from inkgrove.core.errors import InputError, PersonFileError
from inkgrove.messages.person_file import (
    MAX_HEAD,
    MAX_RECORD_BYTES,
    SEAL_SIZE,
    PersonHeader,
    changed,
    decode_head,
    decode_seal,
    encode_head,
    encode_seal,
    read_header,
)

_BUFFER: Final = 1024 * 1024


class FileWriter:
    """Appends records to a file that is open for writing."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = blake2b()
        self.size = 0
        """How many bytes were written so far."""

    def write(self, body: bytes) -> None:
        """Append a record."""
        if len(body) > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {len(body):,} bytes")
        for part in (encode_head(len(body)), body):
            self._file.write(part)
            self._digest.update(part)
            self.size += len(part)

    def seal(self) -> bytes:
        """Append the seal, return when all is on the disk; returns the digest of everything before the seal."""
        digest = self._digest.digest()
        seal = encode_seal(self.size, digest)
        self._file.write(seal)
        self.size += len(seal)
        self._file.flush()
        os.fsync(self._file.fileno())
        return digest


class FileRecord(NamedTuple):
    """A record, and where it begins."""

    offset: int
    body: bytes


class FileReader:
    """Reads the records of a file from the first to the last, as often as asked; memory for one record is enough."""

    def __init__(self, path: Path) -> None:
        """Raises `input.unreadable-file`, `file.unknown-form` or `file.cut-off`."""
        try:
            self._file = path.open("rb", buffering=_BUFFER)
        except OSError as err:
            raise InputError("input.unreadable-file", f"cannot read {path}: {err.strerror}") from err
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self.header, self._first = self._read_header()
            self.digest = self._read_seal()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_header(self) -> tuple[PersonHeader, int]:
        start = self._file.read(MAX_HEAD)
        try:
            head, size = decode_head(start)
        except PersonFileError:
            if self.size < MAX_HEAD:
                raise self._cut_off() from None
            raise PersonFileError("file.unknown-form", "this is no file of a person") from None
        if head + size > self.size:
            raise self._cut_off()
        self._file.seek(head)
        return read_header(self._file.read(size)), head + size

    def _read_seal(self) -> bytes:
        if self.size < self._first + SEAL_SIZE:
            raise self._cut_off()
        self._file.seek(self.size - SEAL_SIZE)
        seal = decode_seal(self._file.read(SEAL_SIZE))
        if seal is None:
            raise self._cut_off()
        if seal[0] != self.size - SEAL_SIZE:
            raise changed("the file is longer or shorter than its end says")
        return seal[1]

    def _cut_off(self) -> PersonFileError:
        return PersonFileError(
            "file.cut-off",
            f"the file has {self.size:,} bytes and does not come to its end: go on with the download where it stopped,"
            " or export again; nothing of it was taken in",
            size=self.size,
        )

    def records(self) -> Iterator[FileRecord]:
        """Yield every record but the first; raises `file.changed` if they are not what the seal says."""
        digest = blake2b()
        end = self.size - SEAL_SIZE
        self._file.seek(0)
        digest.update(self._file.read(self._first))
        offset = self._first
        while offset < end:
            self._file.seek(offset)
            start = self._file.read(min(MAX_HEAD, end - offset))
            head, size = decode_head(start)
            if offset + head + size > end:
                raise changed("a record is longer than the file")
            self._file.seek(offset + head)
            body = self._file.read(size)
            if len(body) < size:
                raise changed("the file has become shorter while it was read")
            digest.update(start[:head])
            digest.update(body)
            yield FileRecord(offset, body)
            offset += head + size
        if digest.digest() != self.digest:
            raise changed("its digest is another one")

"""Checks the signatures of many entries in a process of its own: `python -m inkgrove.signature_process`.

It stands at the top of the package and not in `core` because it starts a process, and `core` has no I/O; everything
above `core` may import it. libsodium runs without the interpreter's lock, but gives it up and takes it back for every
signature; beside threads that read and write these handovers cost more than they win. The process gets the entries of a
batch as bytes and answers with one byte for each. It is started with the first large batch and ends with the process
that started it (docs/adr/0013-signatures-in-a-process-of-their-own.md).
"""

import subprocess
import sys
from collections.abc import Sequence
from struct import pack, unpack
from threading import Lock
from typing import IO, Final

from inkgrove.core import KEY_BYTES, SIGNATURE_BYTES, PublicKey, verify_signature
from inkgrove.core.errors import BadSignature

FEW: Final = 100
"""Batches of fewer entries are checked on the spot."""


def are_signed(encoded: Sequence[bytes]) -> bytes:
    """Return a byte for each decoded entry: 1 if its signature holds, else 0."""
    return bytes(_is_signed(data) for data in encoded)


def _is_signed(data: bytes) -> bool:
    try:
        verify_signature(PublicKey(data[1 : 1 + KEY_BYTES]), data[:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:])
    except BadSignature:
        return False
    return True


class SignatureProcess:
    """Starts and asks the process; any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def are_signed(self, encoded: Sequence[bytes]) -> bytes:
        """Like the function `are_signed`; the process does it if there are enough entries and it can be started."""
        if len(encoded) < FEW:
            return are_signed(encoded)
        with self._lock:
            try:
                return self._ask(encoded)
            except BaseException as error:
                self._end()  # its answer would be taken for that to the next batch
                if not isinstance(error, OSError | EOFError):
                    raise
        # It could not be started, or was killed: the next batch starts another.
        return are_signed(encoded)

    def _ask(self, encoded: Sequence[bytes]) -> bytes:
        if self._is_closed:
            raise EOFError
        if self._process is None:
            # A session of its own: what ends the node from the keyboard must not end this under its feet.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],  # -P: nothing is loaded from the working directory
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        sizes = pack(f">I{len(encoded)}I", len(encoded), *map(len, encoded))
        _write(self._process.stdin, b"".join((sizes, *encoded)))
        return _read(self._process.stdout, len(encoded))

    def close(self) -> None:
        """End the process; later batches are checked on the spot."""
        with self._lock:
            self._is_closed = True
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()  # it holds nothing that could be lost
            process.communicate()


def _write(stream: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def _read(stream: IO[bytes], size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.read(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def serve_signature_checks(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer questions until their stream ends."""
    while True:
        try:
            (count,) = unpack(">I", _read(asked, 4))
        except EOFError:
            return
        sizes = unpack(f">{count}I", _read(asked, 4 * count))
        data = _read(asked, sum(sizes))
        encoded, start = [], 0
        for size in sizes:
            encoded.append(data[start : start + size])
            start += size
        _write(answers, are_signed(encoded))
        answers.flush()


if __name__ == "__main__":
    serve_signature_checks(sys.stdin.buffer, sys.stdout.buffer)

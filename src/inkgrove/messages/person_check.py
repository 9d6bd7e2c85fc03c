"""Checks records of a person's file in a process of its own: `python -m inkgrove.messages.person_check`.

The process that starts it writes pairs of a pickled `(log, place)` and a record, each with its length in four bytes, to
standard input, and reads a pickled result with its length for each. Both ends are of one installation, so pickles are
trusted. `node/person_file/verify.py` starts as many as there are cores.
"""

import pickle
import sys
from struct import pack, unpack
from typing import IO

from inkgrove.core.errors import PersonFileError
from inkgrove.messages.person_file import LogHeader
from inkgrove.messages.person_verification import RunFacts, check_copy, check_entries

CheckedRecord = RunFacts | bytes | str
"""What was found in a record of entries, the digest of a copy, or what is wrong."""


def check_record(body: bytes, log: LogHeader | None, place: int) -> CheckedRecord:
    """Check a record with entries of a log, or without one a copy; what is wrong is returned as text."""
    try:
        return check_copy(body)[0] if log is None else check_entries(body, log, place)
    except PersonFileError as error:
        return error.message


def write_part(stream: IO[bytes], data: bytes) -> None:
    """Write bytes with their length before them."""
    stream.write(pack(">I", len(data)))
    stream.write(data)


def read_part(stream: IO[bytes]) -> bytes:
    """Read what `write_part` wrote; raises `EOFError` if the stream ends."""
    head = stream.read(4)
    if len(head) < 4:
        raise EOFError
    (size,) = unpack(">I", head)
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve_record_checks(asked: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the stream of questions ends."""
    while True:
        try:
            log, place = pickle.loads(read_part(asked))  # noqa: S301  (from the process that started this one)
            body = read_part(asked)
        except EOFError:
            return
        write_part(answers, pickle.dumps(check_record(body, log, place)))
        answers.flush()


if __name__ == "__main__":
    serve_record_checks(sys.stdin.buffer, sys.stdout.buffer)

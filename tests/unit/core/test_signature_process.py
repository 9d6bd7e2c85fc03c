"""The process that checks signatures says what the function says, whatever happens to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from struct import pack
from time import sleep

import pytest

from inkgrove.core import SignedEntry, decode_entry, verify_all_signed, verify_signed
from inkgrove.core.errors import BadSignature
from inkgrove.signature_process import FEW, SignatureProcess, are_signed, serve_signature_checks
from tests.support.logs import LogBuilder, key

PROGRAM = r"""
import os, sys
from pathlib import Path
from inkgrove.signature_process import FEW, SignatureProcess

checker = SignatureProcess()
assert checker.are_signed([Path(sys.argv[1]).read_bytes()] * FEW) == b"\1" * FEW
print(checker._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def entries() -> list[bytes]:
    """A log, of which every third entry has a signature that does not hold."""
    log = LogBuilder(key(1))
    for number in range(FEW + 50):
        log.append(f"payload {number}".encode())
    encoded = [entry.encoded for entry in log.entries]
    return [data if number % 3 else data[:-1] + bytes((data[-1] ^ 1,)) for number, data in enumerate(encoded)]


@pytest.fixture
def checker() -> Iterator[SignatureProcess]:
    made = SignatureProcess()
    yield made
    made.close()


def number_of(checker: SignatureProcess) -> int:
    assert checker._process is not None
    return checker._process.pid


def expected(entries: list[bytes]) -> bytes:
    return bytes(bool(number % 3) for number in range(len(entries)))


def test_says_for_each_entry_whether_its_signature_holds(checker: SignatureProcess, entries: list[bytes]) -> None:
    assert are_signed(entries) == expected(entries)
    assert checker.are_signed(entries) == expected(entries)
    first = number_of(checker)
    assert checker.are_signed(entries[::-1]) == expected(entries)[::-1]
    assert number_of(checker) == first


def test_few_entries_need_no_process(checker: SignatureProcess, entries: list[bytes]) -> None:
    assert checker.are_signed([]) == b""
    assert checker.are_signed(entries[: FEW - 1]) == expected(entries)[: FEW - 1]
    assert checker._process is None


def test_process_that_was_killed_is_replaced(checker: SignatureProcess, entries: list[bytes]) -> None:
    checker.are_signed(entries)
    first = number_of(checker)
    os.kill(first, signal.SIGKILL)
    assert checker.are_signed(entries) == expected(entries)
    assert checker.are_signed(entries) == expected(entries)
    assert number_of(checker) != first


def test_works_where_no_process_can_be_started(
    checker: SignatureProcess, entries: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert checker.are_signed(entries) == expected(entries)


def test_closed_one_starts_nothing(checker: SignatureProcess, entries: list[bytes]) -> None:
    checker.are_signed(entries)
    number = number_of(checker)
    checker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert checker.are_signed(entries) == expected(entries)
    assert checker._process is None


def test_threads_get_their_own_answers(checker: SignatureProcess, entries: list[bytes]) -> None:
    parts = [entries[start : start + FEW] for start in range(50)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(checker.are_signed, parts))
    assert found == [expected(entries)[start : start + FEW] for start in range(50)]


def test_process_ends_with_whoever_started_it(entries: list[bytes], tmp_path: Path) -> None:
    """Even with one that is killed: its end of the pipe is closed then."""
    file = tmp_path / "entry"
    file.write_bytes(entries[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, file], capture_output=True, text=True, timeout=60, check=False
    )
    number = int(done.stdout)
    for _ in range(1000):
        try:
            state = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":  # it has ended, and whoever inherited it has not noticed yet
            return
        sleep(0.01)
    pytest.fail("the process outlived the one that started it")


def test_serves_until_nobody_asks(entries: list[bytes]) -> None:
    some = entries[:3]
    question = pack(">I3I", 3, *map(len, some)) + b"".join(some)
    answers = BytesIO()
    serve_signature_checks(BytesIO(question + pack(">I", 0) + question), answers)
    assert answers.getvalue() == expected(some) * 2


def test_verdicts_are_those_of_one_by_one(entries: list[bytes]) -> None:
    decoded = [decode_entry(data) for data in entries[:6]]
    for entry, verdict in zip(decoded, verify_all_signed(decoded, are_signed), strict=True):
        if isinstance(verdict, SignedEntry):
            assert verdict == verify_signed(entry)
        else:
            with pytest.raises(BadSignature) as caught:
                verify_signed(entry)
            assert (verdict.message, verdict.data) == (caught.value.message, caught.value.data)

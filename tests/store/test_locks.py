"""Locks of files: exclusive or shared, found by others, and free as soon as their process has ended."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from inkgrove.store.locks import FileLock, is_locked, locked_file, try_file_lock

HOLDER = """
import sys
from pathlib import Path
from inkgrove.store.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.write("mine")
print("locked", flush=True)
sys.stdin.read()
"""


def test_lock_is_for_one_and_shared_locks_are_for_many(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    assert not is_locked(path)
    assert not path.exists()
    with FileLock(path):
        assert is_locked(path)
        assert try_file_lock(path) is None
        assert try_file_lock(path, shared=True) is None
        with pytest.raises(BlockingIOError):
            FileLock(path, wait=False)
    with FileLock(path, shared=True), FileLock(path, shared=True):
        assert not is_locked(path)  # nobody has it for itself
        assert try_file_lock(path) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lock_that_is_not_to_be_made_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "none.lock", create=False)


def test_directories_and_open_files_are_locked_too(tmp_path: Path) -> None:
    with FileLock(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
    path = tmp_path / "open"
    with path.open("w") as file:
        with locked_file(file.fileno()):
            assert is_locked(path)
        with locked_file(file.fileno(), shared=True):
            assert not is_locked(path)
            assert try_file_lock(path) is None
        assert not is_locked(path)


def test_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "some.lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert is_locked(path)
        assert path.read_text() == "mine"
        holder.kill()
        FileLock(path).close()  # waits for no more than the kernel
    assert not is_locked(path)

"""Every file that must outlive a power cut is synced before it has its name, and its directory afterwards."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inkgrove.cli.files import write_new
from inkgrove.node.runtime import open_vault
from inkgrove.store.files import BlobFiles, replace_file, write_new_file
from tests.support.errors import raises

NAMING = (os.link, os.rename, os.replace)


def calls_of(work: Callable[[], Any]) -> list[str]:
    """The calls that sync or give a name, in order, as the interpreter makes them."""
    seen: list[str] = []

    def look(_frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called is os.fsync:
            seen.append("sync")
        elif event == "c_call" and called in NAMING:
            seen.append("name")

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def keep_blob(home: Path) -> None:
    files = BlobFiles(home / "blobs")
    draft = files.new_draft()
    draft.write(b"a picture")
    draft.sync()
    files.keep(draft)


@pytest.mark.parametrize(
    "write",
    [
        lambda home: open_vault(home / "vault.key"),
        lambda home: write_new(home / "me.key", b"00", 0o600),
        lambda home: replace_file(home / "last-log-id", b"1"),
        keep_blob,
    ],
    ids=["vault", "key", "counter", "blob"],
)
def test_file_is_synced_before_it_has_its_name_and_the_directory_after(
    write: Callable[[Path], Any], tmp_path: Path
) -> None:
    (tmp_path / "blobs").mkdir()
    calls = calls_of(lambda: write(tmp_path))
    at = calls.index("name")
    assert "sync" in calls[:at]
    assert "sync" in calls[at:]


def test_new_directories_are_synced_with_those_above_them(tmp_path: Path) -> None:
    there = calls_of(lambda: write_new_file(tmp_path / "file", b"1"))
    deep = calls_of(lambda: write_new_file(tmp_path / "a" / "b" / "file", b"1"))
    assert deep.count("sync") == there.count("sync") + 2


def test_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "me.key"
    write_new(file, b"first", 0o600)
    with raises("input.unreadable-file", match="exists already"):
        write_new(file, b"second", 0o600)
    assert file.read_bytes() == b"first"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["me.key"]

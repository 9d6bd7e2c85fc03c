"""The names beside the database of those who have had entries of ours (docs/protocol.md section 8.12)."""

import logging
from pathlib import Path

import pytest
import structlog

import inkgrove.node.runtime.home as module
from inkgrove.node.runtime import READERS, RECEIVERS, NameFile


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[structlog.typing.EventDict]:
    """What is logged: the module's logger may have been bound to another output by a test before."""
    found = structlog.testing.LogCapture()
    level = structlog.make_filtering_bound_logger(logging.WARNING)
    monkeypatch.setattr(module, "log", structlog.wrap_logger(None, [found], level))
    return found.entries


def test_every_receiver_of_a_domain_is_noted(tmp_path: Path, warnings: list[structlog.typing.EventDict]) -> None:
    receivers = NameFile(tmp_path / RECEIVERS)
    names = {f"person{number}.big.ink" for number in range(250)}
    for name in sorted(names):
        receivers.add(name)
    assert NameFile(tmp_path / RECEIVERS).names() == names
    assert warnings == []


def test_readers_of_a_domain_leave_room_for_those_of_others(tmp_path: Path) -> None:
    readers = NameFile(tmp_path / READERS)
    for number in range(150):
        readers.add(f"person{number}.big.ink")
    readers.add("jane.haiku.ink")
    assert len(readers.names()) == 101
    assert "jane.haiku.ink" in readers.names()


def test_name_for_which_a_file_has_no_room_is_warned_of_once(
    tmp_path: Path, warnings: list[structlog.typing.EventDict]
) -> None:
    path = tmp_path / RECEIVERS
    path.write_text("".join(f"person{number}.ink\n" for number in range(9_999)))
    receivers = NameFile(path)
    receivers.add("last.ink")
    assert len(receivers.names()) == 10_000
    assert warnings == []
    for name in ("john.ink", "kim.ink", "last.ink"):
        receivers.add(name)
    assert len(receivers.names()) == 10_000
    (warning,) = warnings
    assert (warning["log_level"], warning["file"], warning["name"]) == ("warning", RECEIVERS, "john.ink")

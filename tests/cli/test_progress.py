"""Progress bars: on a terminal people see how far and how fast; programs and pipes see nothing."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from tests.support.command import inkgrove
from tests.support.logs import LogBuilder, key
from tests.support.processes import PROGRAM


def on_a_terminal(*arguments: str) -> str:
    """What a command writes to standard error if that is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    ):
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 4096):
                written += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode())


def write_log(path: Path, count: int) -> Path:
    log = LogBuilder(key(1)).grow(count)
    path.write_text("".join(f'{{"entry": "{entry.encoded.hex()}", "payload": null}}\n' for entry in log.entries))
    return path


def test_bar_shows_how_many_of_how_many_and_goes(tmp_path: Path) -> None:
    feed = write_log(tmp_path / "feed.jsonl", 20)
    shown = on_a_terminal("log", "verify", str(feed))
    assert "verifying signatures ..." in shown
    assert "20/20 lines" in shown
    assert shown.rstrip().endswith("20 lines, 1 logs: all valid")
    assert "20/20 entries" in on_a_terminal("log", "ingest", str(feed), "--home", str(tmp_path))


def test_programs_and_pipes_see_no_bar(tmp_path: Path) -> None:
    feed = write_log(tmp_path / "feed.jsonl", 20)
    assert "verifying" not in on_a_terminal("log", "verify", str(feed), "--json")
    assert inkgrove("log", "verify", str(feed)).stderr == "20 lines, 1 logs: all valid\n"

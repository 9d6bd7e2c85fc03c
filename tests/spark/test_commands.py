"""The commands around the pipeline, one after another on one home: what people and programs read of them."""

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from inkgrove.cli.main import main
from inkgrove.messages import (
    Create,
    FieldChange,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    encode_message,
)
from inkgrove.store.logs import open_store, read_logs
from tests.spark.test_archive import lines_in, write_archive
from tests.support.logs import LogBuilder, key

NOTES = SchemaVersion(key(50).public, 10, 2)
ELSEWHERE = SchemaId(key(77).public, 7)
WRITER = key(60).public.hex()


class Terminal(io.StringIO):
    """What people see: a standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Home:
    """Runs commands on one home, in this process and with the session of the tests."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def run(self, *arguments: str, code: int = 0) -> str:
        """What a command prints."""
        terminal = Terminal()
        self._monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--home", str(self.folder)])
        self.shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
        assert ended.value.code == code, self.shown
        return self._capsys.readouterr().out

    def watch(self, *arguments: str) -> str:
        """What people see who have both outputs on one terminal, with the commands that move the cursor."""
        terminal = Terminal()
        self._monkeypatch.setattr(sys, "stderr", terminal)
        self._monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(SystemExit):
            main([*arguments, "--home", str(self.folder)])
        self._monkeypatch.setattr(sys, "stdout", sys.__stdout__)
        return terminal.getvalue()

    def read(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """The lines of JSON that a command prints, beside which it says nothing."""
        out = self.run(*arguments, "--json", code=code)
        assert self.shown == ""
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def home(
    one_session: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Home:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    return Home(tmp_path / "home", capsys, monkeypatch)


def publish(folder: Path, log: LogBuilder, *messages: Message) -> None:
    for message in messages:
        log.append(encode_message(message))
    with open_store(folder) as store:
        store.ingest([(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)])


def fill(folder: Path) -> None:
    """Three notes, one of them changed and one that no version knows; and a schema that points to one elsewhere."""
    text = FieldChange("a", "create", "text")
    publish(folder, LogBuilder(key(50), log_id=10), SchemaMeta("notes"), SchemaMigration((text,)))
    letter = FieldChange("of", "create", "relation", schema=ELSEWHERE)
    publish(folder, LogBuilder(key(51), log_id=3), SchemaMeta("letters"), SchemaMigration((letter,)))
    notes = [Create(NOTES, {"a": text}) for text in ("one", "two", "three")]
    publish(folder, LogBuilder(key(60)), *notes, Update(NOTES, 1, {"a": "changed"}), Create(NOTES, {"zz": "no field"}))


def test_commands_from_the_registry_to_the_archive(home: Home, tmp_path: Path) -> None:
    fill(home.folder)
    assert "no schema is registered" in home.run("views")
    for author, log_id in ((key(50), "10"), (key(51), "3")):
        assert home.read("index", author.public.hex(), log_id)[0]["changed"] is True
    assert home.run("views").count("not built yet: inkgrove materialise --once") == 2
    assert "positions are not in the views yet" in home.shown

    # The first build has rows and a rate to show, and so has a rebuild.
    told = "5 messages: 4 applied, 1 quarantined; 3 rows written, 2 views built"
    assert told in home.run("materialise", "--once")
    assert re.search(rf"building {key(50).public.hex()[:8]}…/10 .*5/5 rows", home.shown), home.shown
    assert "3 rows written, 1 views built" in home.run("rebuild", "notes")
    assert re.search(r"building .*5/5 rows", home.shown), home.shown

    check_views(home)
    check_rows(home)
    check_outcomes(home)
    check_exports(home, tmp_path)
    check_import(home, tmp_path)

    assert home.read("unindex", key(51).public.hex(), "3")[0] == {
        "schema": [key(51).public.hex(), 3],
        "registered": False,
        "changed": True,
    }
    assert "was not registered" in home.run("unindex", key(51).public.hex(), "3")
    assert [view["name"] for view in home.read("views")] == ["notes"]


def check_views(home: Home) -> None:
    by_name = {view["name"]: view for view in home.read("views")}
    assert by_name["notes"] == {
        "schema": [key(50).public.hex(), 10],
        "name": "notes",
        "version": 2,
        "rows": 3,
        "outcomes": {"applied": 4, "quarantined": 1},
        "waits_for": [],
        "stopped": None,
        "built": True,
    }
    assert by_name["letters"]["waits_for"] == [[ELSEWHERE.author.hex(), 7]]
    shown = home.run("views")
    assert f"waits for {ELSEWHERE.author.hex()[:8]}…/7" in shown
    assert shown.count("ready") == 1
    assert home.shown == ""  # nothing is behind


def check_rows(home: Home) -> None:
    rows = home.read("view", "show", "notes", "--sort", "a")
    assert [row["fields"] for row in rows] == [{"a": "changed"}, {"a": "three"}, {"a": "two"}]
    (row,) = home.read("view", "show", "notes", "--where", "a=contains:t", "--sort", "a", "--limit", "1")
    assert {name: row[name] for name in ("author", "log_id", "seq_num", "last_seq_num", "fields")} == {
        "author": WRITER,
        "log_id": 1,
        "seq_num": 3,
        "last_seq_num": 3,
        "fields": {"a": "three"},
    }
    assert len(row["instance"]) == 132
    (row,) = home.read("view", "show", f"{key(50).public.hex()}/10", "--where", "a=changed")
    assert (row["seq_num"], row["last_seq_num"]) == (1, 4)
    table = home.run("view", "show", "notes", "--limit", "2")
    assert "notes, version 2" in table
    assert "only the first 2 rows; see --limit, --where and --sort" in home.shown
    assert "no rows" in home.run("view", "show", "notes", "--where", "a=nothing")


def check_outcomes(home: Home) -> None:
    (bad,) = home.read("outcomes", "notes", "--only", "quarantined")
    assert (bad["author"], bad["log_id"], bad["seq_num"], bad["outcome"]) == (WRITER, 1, 5, "quarantined")
    assert bad["code"]
    assert bad["reason"]
    assert sorted(row["seq_num"] for row in home.read("outcomes", "notes", "--only", "applied")) == [1, 2, 3, 4]
    assert len(home.read("outcomes", "notes", "--limit", "2")) == 2
    assert bad["code"] in home.run("outcomes", "notes", "--only", "quarantined")
    assert "no messages" in home.run("outcomes", "notes", "--only", "pending")


def test_report_has_a_line_of_its_own(home: Home) -> None:
    """Nothing but commands to the terminal stands between it and the beginning of a line, or of one that was erased."""
    fill(home.folder)
    home.run("index", key(50).public.hex(), "10")
    for arguments in (["materialise", "--once"], ["rebuild", "notes"]):
        seen = home.watch(*arguments)
        assert "building" in seen
        assert re.search(r"(\n|\r|\x1b\[2K)(\x1b\[[0-9;?]*[a-zA-Z])*5 messages: 4 applied, 1 quarantined; 3 rows", seen)


def check_exports(home: Home, folder: Path) -> None:
    assert "9 entries in archive; " in home.run("export", "archive")
    assert "9/9 rows" in home.shown
    assert home.read("export", "again") == [{"exported": 9, "path": "again"}]
    with open_store(home.folder) as store:
        held = [line for log in store.read(read_logs) for line in store.lines_of(log)]
    assert lines_in(folder / "archive") == lines_in(folder / "again") == sorted((a, b or b"") for a, b in held)
    home.run("export", "archive", code=2)
    assert "exists already" in home.shown

    assert "3 rows in notes.csv; " in home.run("view", "export", "notes", "notes.csv", "--format", "csv")
    assert "3/3 rows" in home.shown
    (part,) = (folder / "notes.csv").glob("*.csv")
    with part.open() as file:
        rows = {row["a"]: (row["_seq_num"], row["_last_seq_num"]) for row in csv.DictReader(file)}
    assert rows == {"changed": ("1", "4"), "two": ("2", "2"), "three": ("3", "3")}
    facts = {"rows": 0, "path": "letters", "format": "parquet"}
    assert home.read("view", "export", "letters", "letters") == [facts]


def check_import(home: Home, folder: Path) -> None:
    forged = LogBuilder(key(61)).grow(1).entry(1).encoded[:-1] + b"\0"
    lines = [(entry, payload) for entry, payload in lines_in(folder / "archive")]
    bad: list[tuple[bytes | None, bytes | None]] = [*lines, (forged, None), (b"rubbish", None), (b"rubbish", None)]
    write_archive(folder / "bad.parquet", bad)
    out = home.run("import", "bad.parquet", code=1)
    assert out.startswith("12 read, 0 appended, 9 known; ")
    assert re.search(r"entry\.bad-signature +│ +1 ", out), out
    assert re.search(r"entry\.bad-tag +│ +2 ", out), out
    assert "the refused entries are in rejected.parquet" in home.shown
    assert "12/12 rows" in home.shown
    assert "verifying" in home.shown
    assert "appending" in home.shown
    assert "[green]" not in home.shown
    codes = pq.read_table(folder / "rejected.parquet")["code"].to_pylist()
    assert sorted(codes) == ["entry.bad-signature", "entry.bad-tag", "entry.bad-tag"]
    facts = {"read": 9, "appended": 0, "known": 9, "rejected": {}}
    assert home.read("import", "archive") == [facts]
    assert not (folder / "rejected.parquet").exists()

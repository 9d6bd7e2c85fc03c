"""A home or database with a typing error: what makes no store refuses one that is not there, and writes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from inkgrove.cli.main import app, main
from inkgrove.store.logs import open_store, require_store
from tests.support.logs import LogBuilder, key

AUTHOR = key(1).public.hex()
HASH = "0040" + "00" * 64
REFUSE = {
    "summary": [f"{AUTHOR}/1"],
    "index": [AUTHOR, "1"],
    "unindex": [AUTHOR, "1"],
    "views": [],
    "materialise": ["--once"],
    "rebuild": ["notes"],
    "outcomes": ["notes"],
    "export": ["archive.parquet"],
    "identity show": ["jane.haiku.ink"],
    "identity list": [],
    "identity password": ["jane.haiku.ink"],
    "view show": ["notes"],
    "view export": ["notes", "out"],
    "identity quota": ["jane.haiku.ink"],
    "identity export": ["jane.haiku.ink", "jane.person"],
    "identity words": ["jane.haiku.ink"],
    "identity controller": ["jane.haiku.ink"],
    "erase": [],
    "backup": ["copy"],
    "resume": [],
    "peer add": ["john.haiku.ink"],
    "peer remove": ["john.haiku.ink"],
    "peer list": [],
    "peer sync": ["john.haiku.ink"],
    "relation request": ["jane.haiku.ink", "john.haiku.ink"],
    "relation end": ["jane.haiku.ink", "john.haiku.ink"],
    "relation accept": ["jane.haiku.ink", "john.haiku.ink"],
    "relation refuse": ["jane.haiku.ink", "john.haiku.ink"],
    "relation block": ["jane.haiku.ink", "john.haiku.ink"],
    "relation remove": ["jane.haiku.ink", "john.haiku.ink"],
    "relation list": ["jane.haiku.ink"],
    "request list": ["jane.haiku.ink"],
    "request senders": ["jane.haiku.ink"],
    "request show": ["jane.haiku.ink", "john.haiku.ink", HASH],
    "request accept": ["jane.haiku.ink", "john.haiku.ink"],
    "request refuse": ["jane.haiku.ink", "john.haiku.ink"],
    "request drop": ["jane.haiku.ink", "john.haiku.ink"],
    "bundle write": [HASH, "--out", "greetings.bundle"],
    "rot plan": [],
    "rot run": [],
    "rot explain": [HASH],
    "rot keep": [HASH],
    "rot report": [],
    "blobs gc": [],
}
"""With arguments that are well formed."""
CREATE = {"import", "serve", "up", "log ingest", "identity create", "identity import", "bundle read", "restore"}
NO_STORE = {
    "settings",
    "doctor",
    "identity move",
    "identity recover",
    *(f"schema {name}" for name in ("init", "migrate", "revert", "show", "lint", "diff")),
}
"""Commands with a home that open no store of their own, or look at what is there."""


def commands(group: Any, *path: str) -> Iterator[tuple[str, set[str]]]:
    for name, item in group.commands.items():
        if hasattr(item, "commands"):
            yield from commands(item, *path, name)
        else:
            yield " ".join((*path, name)), {parameter.name for parameter in item.params}


def run(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_every_command_with_a_home_is_known_here() -> None:
    """Say of a new command whether it makes a store, here and in docs/operating.md."""
    with_home = {name for name, parameters in commands(typer.main.get_command(app)) if "home" in parameters}
    assert with_home == REFUSE.keys() | CREATE | NO_STORE
    page = (Path(__file__).resolve().parents[2] / "docs" / "operating.md").read_text()
    for name in CREATE:
        assert f"| `inkgrove {name}` |" in page, name


@pytest.mark.parametrize("command", REFUSE)
def test_command_refuses_a_store_that_is_not_there(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "typing-errror"
    assert run([*command.split(), *REFUSE[command], "--home", str(home)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"error: there is no store in {home}: ")
    assert "inkgrove up" in told
    assert told.endswith(" [store.not-found]\n")
    assert list(tmp_path.iterdir()) == []


def test_home_with_keys_and_schemas_but_no_store_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    assert run(["schema", "init", "notes", "--home", str(home)]) == 0
    before = sorted(home.rglob("*"))
    assert run(["views", "--home", str(home)]) == 1
    assert "[store.not-found]" in capsys.readouterr().err
    assert sorted(home.rglob("*")) == before


def test_commands_on_schemas_make_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fields.yaml").write_text("kind: schema-migration\nfields: [a: {action: create, type: text}]\n")
    for arguments in (["migrate", "fields.yaml"], ["revert", "1"], ["show"], ["lint", "fields.yaml"]):
        assert run(["schema", *arguments, "--home", "typing-errror"]) != 0
    assert [path.name for path in tmp_path.iterdir()] == ["fields.yaml"]


def test_log_ingest_makes_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.jsonl"
    log = LogBuilder().grow(2)
    file.write_text("".join(f'{{"entry": "{entry.encoded.hex()}"}}\n' for entry in log.entries))
    assert run(["log", "ingest", str(file), "--home", str(tmp_path / "new")]) == 0
    require_store(tmp_path / "new")
    assert run(["views", "--home", str(tmp_path / "new")]) == 0


@pytest.mark.parametrize("log_id", ["0", str(2**63), "9" * 5000])
def test_index_takes_no_log_that_cannot_be(tmp_path: Path, log_id: str, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(tmp_path).close()
    assert run(["index", AUTHOR, log_id, "--home", str(tmp_path), "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["code"] == "input.usage"

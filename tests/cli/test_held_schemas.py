"""`inkgrove schema lint|show|diff` see the schemas that the home's store holds, and the messages in it."""

import json
from pathlib import Path

import pytest

from inkgrove.cli.main import main
from inkgrove.messages import (
    Create,
    Delete,
    FieldChange,
    Message,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    encode_message,
)
from inkgrove.store.logs import open_store, register_schema
from tests.support.logs import LogBuilder, key

NOTES, PEOPLE, ELSEWHERE = (SchemaId(key(number).public, 10) for number in (50, 51, 52))
LOSING = """kind: schema-migration
fields:
  - title: {action: update, validation: '[a-z]+', default: none}
  - done: {action: remove}
---
kind: schema-migration
fields:
  - about: {action: create, type: relation, schema: ["PEOPLE", 10]}
  - other: {action: create, type: relation, schema: ["ELSEWHERE", 10]}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with two schemas that no file has, one of them registered, and some messages."""

    def log(number: int, *messages: Message, log_id: int = 10) -> list[tuple[bytes, bytes | None]]:
        made = LogBuilder(key(number), log_id=log_id)
        for message in messages:
            made.append(encode_message(message))
        return [(entry.encoded, payload) for entry, payload in zip(made.entries, made.payloads, strict=True)]

    fields = (FieldChange("title", "create", "text"), FieldChange("done", "create", "boolean", default=False))
    version = SchemaVersion(*NOTES, 2)
    folder = tmp_path / "home"
    with open_store(folder) as store:
        store.ingest(log(50, SchemaMeta("notes"), SchemaMigration(fields)))
        store.ingest(log(51, SchemaMeta("people"), SchemaMigration((FieldChange("name", "create", "text"),))))
        titles = [Create(version, {"title": title, "done": True}) for title in ("fine", "Not Fine", "also")]
        store.ingest(log(60, *titles, Update(version, 1, {"title": "WRONG"}), Delete(3), log_id=1))
        store.write(register_schema, NOTES)
    (tmp_path / "losing.yaml").write_text(
        LOSING.replace("PEOPLE", PEOPLE.author.hex()).replace("ELSEWHERE", ELSEWHERE.author.hex())
    )
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    shown = capsys.readouterr()
    assert ended.value.code == code, shown.err
    return shown.err if code else shown.out


@pytest.mark.parametrize("name", ["notes", str(NOTES)])
def test_lint_resolves_schema_and_relations_in_the_store(
    home: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(home.parent / "losing.yaml")
    lines = run(capsys, "schema", "lint", file, "--schema", name, "--home", str(home), "--held", "--json").splitlines()
    first, second = map(json.loads, lines)
    assert (first["version"], first["only_adds"], first["messages"]) == (3, False, 4)
    assert {item["field"]: (item["fallbacks"], item["values"]) for item in first["findings"]} == {
        "title": (2, 4),
        "done": (3, 3),
    }
    assert second["relations"] == [
        {
            "field": "about",
            "schema": [PEOPLE.author.hex(), 10],
            "name": "people",
            "version": 2,
            "registered": False,
        },
        {"field": "other", "schema": [ELSEWHERE.author.hex(), 10], "name": None, "version": 0, "registered": False},
    ]
    # Nothing is published.
    with open_store(home) as store:
        assert store.heights()[NOTES.author, 10] == 2


def test_lint_tells_people_what_the_view_would_wait_for(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(home) as store:
        store.write(register_schema, PEOPLE)
    told = run(capsys, "schema", "lint", str(home.parent / "losing.yaml"), "--schema", "notes", "--home", str(home))
    assert f"> about: points to {PEOPLE.author.hex()[:8]}…/10, people, version 2\n" in told
    assert "/10, a schema that is not held here; not registered: the view waits for it" in told


def test_show_and_diff_see_the_store_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = json.loads(run(capsys, "schema", "show", "--schema", str(PEOPLE), "--home", str(home), "--json"))
    assert (shown["name"], shown["newest"]) == ("people", 2)
    (added,) = run(capsys, "schema", "diff", "1", "2", "--schema", str(PEOPLE), "--home", str(home), "--json").split(
        "\n"
    )[:-1]
    assert json.loads(added)["field"] == "name"


@pytest.mark.parametrize(
    ("name", "says"), [("nothing", "notes"), (str(ELSEWHERE), "holds no schema"), (None, "--schema")]
)
def test_schema_that_is_not_there_is_told(
    home: Path, name: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--schema", name] if name is not None else []
    told = run(capsys, "schema", "lint", str(home.parent / "losing.yaml"), *named, "--home", str(home), code=2)
    assert "[input.unknown-schema]" in told
    assert says in told


def test_file_of_the_home_comes_first_and_needs_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "schema", "init", "notes", "--home", str(tmp_path / "desk"))
    file = tmp_path / "fields.yaml"
    file.write_text("kind: schema-migration\nfields: [a: {action: create, type: text}]\n")
    told = run(capsys, "schema", "lint", str(file), "--home", str(tmp_path / "desk"))
    assert told == "version 2 only adds\n  + a: a new text\n"
    assert not (tmp_path / "desk" / "node.db").exists()
    refused = run(capsys, "schema", "lint", str(file), "--held", "--home", str(tmp_path / "desk"), code=1)
    assert "[store.not-found]" in refused

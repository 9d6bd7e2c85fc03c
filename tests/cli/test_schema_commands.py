"""`inkgrove schema` and `inkgrove view reference`: the slothmail story as an application developer plays it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from inkgrove.client.client import Client
from tests.support.command import inkgrove
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD

MIGRATIONS = """kind: schema-migration
fields:
  - subject: {action: create, type: text}
  - body: {action: create, type: text}
  - recipient: {action: create, type: relation}
  - created: {action: create, type: timestamp}
---
kind: schema-migration
fields:
  - attachments: {action: create, type: 'relation[]'}
"""
NARROWER = """kind: schema-migration
fields:
  - attachments: {action: remove}
  - subject: {action: update, validation: '^[^#\\r\\n].*$', default: <Subject>}
"""


class Desk:
    """A home directory and a feed, worked on with real commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.feed = folder / "feed.jsonl"
        self.key = folder / "jane.key"
        inkgrove("key", "new", "--out", str(self.key))

    def schema(self, *arguments: str, stdin: str | None = None) -> str:
        done = inkgrove("schema", *arguments, "--home", str(self.home), stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def write(self, yaml: str) -> None:
        payload = inkgrove("message", "encode", "-", "--salt", stdin=yaml).stdout.strip()
        after = ["--after", str(self.feed)] if self.feed.exists() else []
        done = inkgrove("entry", "sign", "--key", str(self.key), "--payload", payload, *after)
        assert done.returncode == 0, done.stderr
        with self.feed.open("a") as file:
            file.write(done.stdout)

    def view(self) -> dict[str, Any]:
        done = inkgrove("view", "reference", str(self.home / "schemas" / "slothmail.jsonl"), str(self.feed))
        assert done.returncode == 0, done.stderr
        (line,) = done.stdout.splitlines()
        return json.loads(line)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_slothmail_story(desk: Desk) -> None:
    made = json.loads(desk.schema("init", "slothmail", "--json"))
    author, log_id = made["schema"]
    assert (made["version"], made["fields"]) == (1, [])
    desk.schema("migrate", "-", stdin=MIGRATIONS)
    assert "version 4 can lose data" in desk.schema("lint", "-", stdin=NARROWER)
    create = 'fields: [subject: "Hello!\\n...friend", body: , created: 2020-05-22T11:58:50+0000]'
    desk.write(f'kind: create\nschema: ["{author}", {log_id}, 1]\n{create}')
    desk.write(
        f'kind: create\nschema: ["{author}", {log_id}, 3]\nfields: [subject: "#1", attachments: ["{"ab" * 32}"]]'
    )
    counted = json.loads(desk.schema("lint", "-", "--messages", str(desk.feed), "--json", stdin=NARROWER))
    assert {finding["field"]: (finding["fallbacks"], finding["values"]) for finding in counted["findings"]} == {
        "subject": (2, 2),
        "attachments": (1, 1),
    }
    desk.schema("migrate", "-", stdin=NARROWER)

    view = desk.view()
    assert (view["schema"], view["version"]) == ([author, log_id], 4)
    assert [row["fields"]["subject"] for row in view["rows"]] == ["<Subject>", "<Subject>"]
    instance = view["rows"][0]["instance"]
    desk.write(
        f'kind: update\nschema: ["{author}", {log_id}, 4]\ninstance: "{instance}"\nfields: [subject: Hello! ...friend]'
    )
    row = desk.view()["rows"][0]
    assert (row["fields"]["subject"], row["seq_num"], row["last_seq_num"]) == ("Hello! ...friend", 1, 3)
    assert {"instance", "author", "log_id", "seq_num", "last_seq_num", "fields"} <= row.keys()

    assert "live path 1 → 2 → 3 → 5" in desk.schema("revert", "3")
    view = desk.view()
    assert [row["fields"]["subject"] for row in view["rows"]] == ["Hello!\n...friend", "#1"]
    assert view["rows"][1]["fields"]["attachments"] == ["ab" * 32]
    assert [item["outcome"] for item in view["outcomes"]] == ["applied", "applied", "obsolete"]

    desk.write(f'kind: delete\ninstance: "{instance}"')
    assert [row["seq_num"] for row in desk.view()["rows"]] == [2]
    desk.schema("revert", "4")
    assert [row["seq_num"] for row in desk.view()["rows"]] == [2]


def test_show_and_diff(desk: Desk) -> None:
    desk.schema("init", "slothmail")
    desk.schema("migrate", "-", stdin=MIGRATIONS)
    desk.schema("migrate", "-", stdin=NARROWER)
    shown = json.loads(desk.schema("show", "--version", "3", "--json"))
    assert [field["name"] for field in shown["fields"]] == ["subject", "body", "recipient", "created", "attachments"]
    assert "slothmail at version 4 of 4" in desk.schema("show")
    kinds = [json.loads(line)["kind"] for line in desk.schema("diff", "3", "4", "--json").splitlines()]
    assert kinds == ["removed", "changed"]
    assert desk.schema("diff", "2", "2") == "no difference\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "exit_code"),
    [
        (["show"], None, "input.unknown-schema", 2),
        (["init", "sloth mail"], None, "message.bad-name", 1),
        (["migrate", "-"], "kind: delete\ninstance: 1", "message.bad-value", 1),
    ],
)
def test_wrong_moves_get_one_clear_line(
    desk: Desk, arguments: list[str], stdin: str | None, code: str, exit_code: int
) -> None:
    done = inkgrove("schema", *arguments, "--home", str(desk.home), stdin=stdin)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert done.stderr.endswith(f"[{code}]\n")
    assert len(done.stderr.splitlines()) == 1


def test_invalid_migration_is_never_signed(desk: Desk) -> None:
    desk.schema("init", "slothmail")
    before = (desk.home / "schemas" / "slothmail.jsonl").read_bytes()
    for text in ("a: {action: remove}", "a: {action: create, type: text, validation: '('}"):
        done = inkgrove(
            "schema", "migrate", "-", "--home", str(desk.home), stdin=f"kind: schema-migration\nfields: [{text}]"
        )
        assert done.returncode == 1
    assert (desk.home / "schemas" / "slothmail.jsonl").read_bytes() == before
    done = inkgrove("schema", "init", "slothmail", "--home", str(desk.home))
    assert (done.returncode, "exists already" in done.stderr) == (2, True)


def test_migration_file_is_published_whole_or_not_at_all(desk: Desk) -> None:
    desk.schema("init", "slothmail")
    text = "kind: schema-migration\nfields: [a: {action: create, type: text}]\n---\n" * 2
    done = inkgrove("schema", "migrate", "-", "--home", str(desk.home), stdin=text.removesuffix("---\n"))
    assert (done.returncode, "[schema.field-exists]" in done.stderr) == (1, True)
    assert json.loads(desk.schema("show", "--json"))["newest"] == 1


def test_only_the_schemas_own_key_signs(desk: Desk) -> None:
    desk.schema("init", "slothmail")
    log = desk.home / "schemas" / "slothmail.jsonl"
    before = log.read_bytes()
    key_file = desk.home / "keys" / "author.key"
    key_file.rename(desk.folder / "elsewhere.key")
    text = "kind: schema-migration\nfields: [a: {action: create, type: text}]\n"
    assert inkgrove("schema", "migrate", "-", "--home", str(desk.home), stdin=text).returncode == 2
    inkgrove("key", "new", "--out", str(key_file))
    done = inkgrove("schema", "migrate", "-", "--home", str(desk.home), stdin=text)
    assert (done.returncode, "[key.mismatch]" in done.stderr) == (2, True)
    assert log.read_bytes() == before


def test_log_ids_are_never_used_again(desk: Desk) -> None:
    assert json.loads(desk.schema("init", "one", "--json"))["schema"][1] == 1
    (desk.home / "schemas" / "one.jsonl").unlink()
    assert json.loads(desk.schema("init", "two", "--json"))["schema"][1] == 2


def test_file_without_a_last_newline_is_continued(desk: Desk) -> None:
    desk.schema("init", "slothmail")
    log = desk.home / "schemas" / "slothmail.jsonl"
    log.write_bytes(log.read_bytes().rstrip())
    desk.schema("migrate", "-", stdin=MIGRATIONS)
    assert json.loads(desk.schema("show", "--json"))["newest"] == 3


def test_tables_show_control_characters_as_escapes(desk: Desk) -> None:
    author, log_id = json.loads(desk.schema("init", "slothmail", "--json"))["schema"]
    desk.schema("migrate", "-", stdin=MIGRATIONS)
    desk.write(f'kind: create\nschema: ["{author}", {log_id}, 2]\nfields: [subject: "\\e]0;owned\\a"]')
    done = inkgrove("view", "reference", str(desk.home / "schemas" / "slothmail.jsonl"), str(desk.feed), "--table")
    assert "\x1b" not in done.stdout
    assert "\\x1b]0;owned" in done.stdout


def test_two_writers_at_once_leave_a_valid_log(desk: Desk) -> None:
    desk.schema("init", "slothmail")

    def add(number: int) -> int:
        text = f"kind: schema-migration\nfields: [f{number}: {{action: create, type: text}}]"
        return inkgrove("schema", "migrate", "-", "--home", str(desk.home), stdin=text).returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(add, range(8))) == [0] * 8
    assert inkgrove("log", "verify", str(desk.home / "schemas" / "slothmail.jsonl")).returncode == 0
    assert len(json.loads(desk.schema("show", "--json"))["fields"]) == 8


def test_view_reference_leaves_out_what_does_not_verify(desk: Desk) -> None:
    desk.schema("init", "slothmail")
    log = desk.home / "schemas" / "slothmail.jsonl"
    log.write_text(log.read_text() + '{"entry": "00"}\n{\n')
    done = inkgrove("view", "reference", str(log), "--table")
    assert done.returncode == 0
    assert "line 2 left out" in done.stderr
    assert "[input.bad-line]" in done.stderr
    assert "at version 1: no rows" in done.stdout
    bad = inkgrove("view", "reference", str(log), "--schema", "nonsense")
    assert (bad.returncode, "[input.usage]" in bad.stderr) == (2, True)


def test_relation_to_a_schema_elsewhere_keeps_nothing_waiting_unless_registered_otherwise(desk: Desk) -> None:
    author, log_id = json.loads(desk.schema("init", "slothmail", "--json"))["schema"]
    relation = f"recipient: {{action: create, type: relation, schema: ['{'11' * 32}', 3]}}"
    desk.schema(
        "migrate", "-", stdin=f"kind: schema-migration\nfields: [subject: {{action: create, type: text}}, {relation}]"
    )
    desk.write(f'kind: create\nschema: ["{author}", {log_id}, 2]\nfields: [subject: Hello]')
    assert [row["fields"]["subject"] for row in desk.view()["rows"]] == ["Hello"]
    log = str(desk.home / "schemas" / "slothmail.jsonl")
    done = inkgrove("view", "reference", log, str(desk.feed), "--schema", f"{author}/{log_id}")
    waiting = json.loads(done.stdout)
    assert (waiting["version"], waiting["waits_for"], waiting["rows"]) == (1, [["11" * 32, 3]], [])


def test_commands_of_readme_and_of_the_page_without_a_node_work(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "without-a-node.md").read_text() + (root / "README.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```sh\n")[1:]]
    script = "set -eu\n" + "".join(block for block in blocks if "make up" not in block)
    script, starts, options = script.strip().rpartition(".venv/bin/inkgrove --set")
    assert (starts, options[-3:]) == (".venv/bin/inkgrove --set", " up")  # the last, which goes on until it is stopped
    script = script.replace(".venv/bin/inkgrove", f"{Path(sys.executable).parent}/inkgrove")
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, input=f"{PASSWORD}\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "all valid" in done.stderr
    with Serving(tmp_path / "inkgrove-data", command="up", options=("--set", *options.split()[:-1])) as node:
        jane = Client.sign_in(node.url, "jane.haiku.ink", PASSWORD)
        jane.materialise(jane.create_schema("lists").schema)  # which only an administrator may
        jane.close()

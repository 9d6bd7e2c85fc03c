"""`inkgrove backup`, `restore` and `resume` on both databases: what they write, check and refuse."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core.errors import StoreUnavailable
from inkgrove.node.blobs import Upload, find_blob
from inkgrove.node.identity import Caller, change_identity, create_identity, show_identity
from inkgrove.node.runtime import Node, RestoredHome, check_backup, read_manifest, restore_backup, write_backup
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import NEWEST, count_table_rows, newest_offset, open_store, read_logs
from inkgrove.store.node import add_session, put_relation_state
from tests.store.conftest import place, postgres  # noqa: F401  (fixtures)
from tests.support.command import inkgrove
from tests.support.errors import raises

PICTURE = b"\x89PNG a picture"
CHANGED = {"sessions", "epoch", "ingests"}
"""What a restore changes by itself, and the positions that it leaves out."""


@dataclass
class Home:
    """A home with an identity, a blob, relations and a sign-in."""

    place: Path | str
    home: Path

    @property
    def arguments(self) -> list[str]:
        return ["--home", str(self.home), *(["--store", self.place] if isinstance(self.place, str) else [])]

    def open(self) -> Node:
        return Node(self.place, NodeSettings(), home=self.home)

    def back_up(self, target: Path, *, with_vault_key: bool = False) -> None:
        key = self.home / "vault.key" if with_vault_key else None
        with open_store(self.place) as store:
            write_backup(store.database, self.home, target, vault_key=key, now=1_800_000_000_000_000)

    def restore(self, backup: Path, home: Path | None = None, **options: Any) -> RestoredHome:
        where = home or self.home
        at = self.place if isinstance(self.place, str) else str(where)
        facts: dict[str, Any] = {"vault_key": where / "vault.key", "replace": False, "now": 1, **options}
        return restore_backup(backup, where, at, **facts)


@pytest.fixture
def home(place: Path | str, tmp_path: Path) -> Home:  # noqa: F811
    made = Home(place, place if isinstance(place, Path) else tmp_path / "home")
    node = made.open()
    jane = create_identity(node, "jane.haiku.ink", None)
    change_identity(node, jane.id, name="Jane")
    with Upload(node, Caller(jane.id)) as upload:
        upload.write(PICTURE)
        upload.finish("image/png")
    node.database.write(lambda c: put_relation_state(c, jane.id, jane.id, "blocked", 0))
    node.database.write(lambda c: add_session(c, b"token", jane.id, node.clock() + 10**12))
    node.receivers.add("john.b.ink")
    node.close()
    (made.home / "inkgrove.toml").write_text("[node]\nport = 8765\n")
    return made


def rows_of(home: Home) -> dict[str, int]:
    with open_store(home.place) as store:
        return store.database.read(count_table_rows)


def test_restored_home_holds_what_was_backed_up_and_signs_nothing(home: Home, tmp_path: Path) -> None:
    before, backup = rows_of(home), tmp_path / "backup"
    home.back_up(backup, with_vault_key=True)
    assert not list(tmp_path.glob(".backup*"))
    node = home.open()
    jane = show_identity(node, "jane.haiku.ink").id
    change_identity(node, jane, name="Later")
    newest = node.database.read(newest_offset).position
    node.close()
    with raises("backup.would-replace"):
        home.restore(backup)
    done = home.restore(backup, replace=True)
    assert done.vault_key == "kept"
    assert rows_of(home) == {**before, "sessions": 0}
    node = home.open()
    assert show_identity(node, "jane.haiku.ink").document.name == "Jane"
    assert find_blob(node, Caller(jane), blob_name(backup)).path.read_bytes() == PICTURE
    behind = node.signing.read_behind_state()
    assert behind is not None
    assert "restored from a backup of 2027-01-15" in (behind.reason or "")
    node.signing.resume()
    change_identity(node, jane, name="Again")
    assert node.database.read(newest_offset).position > newest + 1000
    node.close()
    node = home.open()
    assert node.signing.read_behind_state() is None
    node.close()


def blob_name(backup: Path) -> str:
    (path,) = (backup / "blobs").glob("*/*")
    return path.name


def test_backup_goes_into_an_empty_home_with_everything_but_the_vault_key(tmp_path: Path) -> None:
    old = Home(tmp_path / "old", tmp_path / "old")
    node = old.open()
    create_identity(node, "jane.haiku.ink", None)
    node.close()
    (old.home / "inkgrove.toml").write_text("[node]\nport = 8765\n")
    for folder in ("keys", "schemas"):
        (old.home / folder).mkdir()
        (old.home / folder / "some").write_text(folder)
    old.back_up(tmp_path / "backup")
    new = Home(tmp_path / "new", tmp_path / "new")
    assert new.restore(tmp_path / "backup").vault_key == "missing"
    assert (new.home / "inkgrove.toml").read_text() == "[node]\nport = 8765\n"
    assert (new.home / "keys" / "some").read_text() == "keys"
    assert not (new.home / "vault.key").exists()
    shutil.copy(old.home / "vault.key", new.home / "vault.key")
    node = new.open()
    assert node.signing.read_behind_state() is not None
    node.close()


def test_damaged_backup_is_refused_before_anything_changes(home: Home, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    home.back_up(backup)
    check_backup(backup)
    before = rows_of(home)
    for name in read_manifest(backup).files:
        file = backup / name
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if content else b"1")
        with raises("backup.damaged"):
            home.restore(backup, replace=True)
        file.unlink()
        with raises("backup.damaged"):
            home.restore(backup, replace=True)
        file.write_bytes(content)
    manifest = (backup / "manifest.json").read_text()
    for bad in ("", "[]", manifest.replace('"node.db"', '"../node.db"'), manifest.replace("backup 1", "backup 9")):
        (backup / "manifest.json").write_text(bad)
        with raises("backup.damaged"):
            home.restore(backup, replace=True)
    for revision, error in (("0006", "store.unavailable"), ("9999", "store.too-new")):
        (backup / "manifest.json").write_text(manifest.replace(f'"{NEWEST}"', f'"{revision}"'))
        with raises(error, match=revision):
            home.restore(backup, replace=True)
    assert rows_of(home) == before


def test_backup_replaces_nothing_and_nobody(home: Home, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    home.back_up(backup)
    with raises("backup.exists"):
        home.back_up(backup)
    node = home.open()
    with raises("backup.in-use"):
        home.restore(backup, replace=True)
    node.close()
    if isinstance(home.place, str):
        elsewhere = Node(home.place, NodeSettings(vault_key_file=str(home.home / "vault.key")), home=tmp_path / "away")
        with raises("backup.in-use", match="connected"):
            home.restore(backup, replace=True)
        elsewhere.close()
        with raises("backup.other-store"):
            restore_backup(backup, tmp_path / "x", str(tmp_path / "x"), vault_key=tmp_path, replace=True, now=1)


def test_commands_report_and_say_what_comes_next(home: Home, tmp_path: Path) -> None:
    backup = str(tmp_path / "backup")
    written = inkgrove("backup", backup, *home.arguments, "--json")
    assert written.returncode == 0, written.stderr
    report = json.loads(written.stdout)
    assert (report["entries"], report["vault_key"], report["missing_blobs"]) == (2, False, 0)
    again = inkgrove("backup", backup, *home.arguments)
    assert (again.returncode, "[backup.exists]" in again.stderr) == (1, True)
    restored = inkgrove("restore", backup, "--replace", *home.arguments)
    assert restored.returncode == 0, restored.stderr
    assert "2 entries" in restored.stdout
    assert "asks those who hold its logs" in restored.stderr
    told = inkgrove("resume", *home.arguments)
    assert (told.returncode, "[publish.restored]" in told.stderr) == (1, True)
    assert "--accept-loss" in told.stderr
    examined = json.loads(inkgrove("doctor", *home.arguments, "--json").stdout)
    (found,) = [item for item in examined["checks"] if item["check"] == "signing"]
    assert not found["ok"]
    assert "restored from a backup" in found["found"]
    decided = inkgrove("resume", "--accept-loss", *home.arguments, "--json")
    assert json.loads(decided.stdout) == {"signs": True, "resumed": True}
    assert json.loads(inkgrove("resume", *home.arguments, "--json").stdout) == {"signs": True, "resumed": False}


def test_schema_file_that_is_older_than_the_store_forks_nothing(tmp_path: Path) -> None:
    where = ("--home", str(tmp_path))
    file = tmp_path / "schemas" / "notes.jsonl"
    change = tmp_path / "change.yaml"
    assert inkgrove("schema", "init", "notes", *where).returncode == 0
    older = file.read_bytes()
    for name in ("title", "text"):
        change.write_text(f"kind: schema-migration\nfields:\n  - {name}: {{action: create, type: varchar}}\n")
        done = inkgrove("schema", "migrate", str(change), *where)
        assert done.returncode == 0, done.stderr
        assert inkgrove("log", "ingest", str(file), *where).returncode == 0
        file.write_bytes(older)
    assert inkgrove("log", "ingest", str(file), *where).returncode == 0
    with open_store(tmp_path) as store:
        assert [(state.height, state.invalid_from) for state in store.read(read_logs).values()] == [(3, None)]
    for path in (file, tmp_path / "schemas" / "last-log-id"):
        path.unlink()
    assert inkgrove("schema", "init", "others", *where).returncode == 0
    shown = json.loads(inkgrove("schema", "show", *where, "--json").stdout)
    assert shown["schema"][1] == 2


def test_restore_that_is_killed_leaves_the_old_database_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home", tmp_path / "home")
    node = home.open()
    jane = create_identity(node, "jane.haiku.ink", None)
    node.close()
    home.back_up(tmp_path / "backup")
    node = home.open()
    change_identity(node, jane.id, name="Jane")
    node.close()
    steps, armed, left = 0, False, 0

    class Killed(BaseException):
        """Ends the restore where a SIGKILL would."""

    def dies(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in ("os.rename", "os.link", "os.remove") and armed and str(home.home) in str(arguments):
            left -= 1
            if left < 0:
                raise Killed

    sys.addaudithook(dies)
    for before in range(100):
        armed, left = True, before
        try:
            home.restore(tmp_path / "backup", replace=True, now=before)
            is_done = True
        except Killed:
            is_done = False
        finally:
            armed = False
        steps += 1
        node = home.open()
        found = show_identity(node, "jane.haiku.ink")
        is_behind = node.signing.read_behind_state() is not None
        node.close()
        assert found.id == jane.id, "a database is always there"
        assert found.revision == 2 or is_behind, "and either it is the old one, or nothing is signed with it"
        if is_done:
            break
    assert is_done
    assert steps > 3


def test_restore_replaces_a_damaged_database(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "home")
    node = home.open()
    jane = create_identity(node, "jane.haiku.ink", None)
    node.close()
    home.back_up(tmp_path / "backup")
    (home.home / "node.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StoreUnavailable):
        home.restore(tmp_path / "backup")
    done = home.restore(tmp_path / "backup", replace=True)
    assert done.moved_to is not None
    assert (done.moved_to / "node.db").read_bytes().startswith(b"no database")
    node = home.open()
    assert show_identity(node, "jane.haiku.ink").id == jane.id
    node.close()


def test_schemas_signed_by_command_are_not_forked_by_a_restore(tmp_path: Path) -> None:
    """A home without identities: its key for schemas signs nothing either until somebody was asked."""
    here, there = tmp_path / "here", tmp_path / "there"

    def migrate(field: str, home: Path) -> int:
        change = tmp_path / "change.yaml"
        change.write_text(f"kind: schema-migration\nfields:\n  - {field}: {{action: create, type: varchar}}\n")
        return inkgrove("schema", "migrate", str(change), "--home", str(home)).returncode

    assert inkgrove("schema", "init", "notes", "--home", str(here)).returncode == 0
    assert migrate("title", here) == 0
    assert inkgrove("log", "ingest", str(here / "schemas" / "notes.jsonl"), "--home", str(here)).returncode == 0
    assert inkgrove("backup", str(tmp_path / "backup"), "--home", str(here)).returncode == 0
    assert migrate("text", here) == 0
    assert inkgrove("restore", str(tmp_path / "backup"), "--home", str(there)).returncode == 0
    for arguments in (["schema", "init", "more"], ["schema", "revert", "1"]):
        refused = inkgrove(*arguments, "--home", str(there))
        assert refused.returncode != 0
        assert "publish.restored" in refused.stderr
    assert inkgrove("resume", "--accept-loss", "--home", str(there)).returncode == 0
    assert migrate("body", there) == 0

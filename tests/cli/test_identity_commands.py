"""`inkgrove identity` on a store of its own."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command import inkgrove

PASSWORD = "correct horse battery"


def test_identity_is_created_shown_and_listed(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    made = inkgrove("identity", "create", "jane.haiku.ink", "--name", "Jane", *home, "--json", stdin=f"{PASSWORD}\n")
    assert made.returncode == 0, made.stderr
    created = json.loads(made.stdout)
    assert (created["fqdn"], created["endpoint"]) == ("jane.haiku.ink", "https://jane.haiku.ink")
    shown = json.loads(inkgrove("identity", "show", created["id"], *home, "--json").stdout)
    usage = {
        "entries": {"used": 0, "limit": 1_000_000},
        "payload_bytes": {"used": 0, "limit": 1024**3},
        "blob_bytes": {"used": 0, "limit": 5 * 1024**3},
    }
    assert shown == {**created, "profile": {}, "usage": usage}
    listed = json.loads(inkgrove("identity", "list", *home, "--json").stdout)
    marks = {"is_administrator": False, "is_outside": True, "lives_here": True, "has_recovery": False}
    assert listed == [{"fqdn": "jane.haiku.ink", "id": created["id"], **marks, "usage": usage}]
    quota = ("identity", "quota", "jane.haiku.ink", *home, "--json")
    own = json.loads(inkgrove(*quota, "--entries", "5", "--blob-bytes", "0").stdout)["usage"]
    assert {name: item["limit"] for name, item in own.items()} == {
        "entries": 5,
        "payload_bytes": 1024**3,
        "blob_bytes": 0,
    }
    assert json.loads(inkgrove(*quota).stdout)["usage"] == own
    assert json.loads(inkgrove(*quota, "--default").stdout)["usage"] == usage
    again = inkgrove("identity", "create", "jane.haiku.ink", "--no-password", *home)
    assert (again.returncode, "identity.exists" in again.stderr) == (1, True)


def test_list_marks_administrators_and_names_outside_of_the_domains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INKGROVE_NODE_DOMAINS", '["haiku.ink"]')
    monkeypatch.setenv("INKGROVE_NODE_ADMINISTRATORS", '["boss.haiku.ink"]')
    home = ("--home", str(tmp_path))
    for fqdn in ("boss.haiku.ink", "jane.haiku.ink", "joan.own.example"):
        assert inkgrove("identity", "create", fqdn, "--no-password", *home).returncode == 0
    lines = inkgrove("identity", "list", *home).stdout.replace("\n ", " ")
    found = json.loads(inkgrove("identity", "list", *home, "--json").stdout)
    assert {item["fqdn"]: (item["is_administrator"], item["is_outside"]) for item in found} == {
        "boss.haiku.ink": (True, False),
        "jane.haiku.ink": (False, False),
        "joan.own.example": (False, True),
    }
    assert lines.count("(administrator)") == lines.count("(outside of node.domains)") == 1


def test_password_comes_from_standard_input_and_never_shows(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    inkgrove("identity", "create", "jane.haiku.ink", "--no-password", *home)
    changed = inkgrove("identity", "password", "jane.haiku.ink", *home, stdin=f"{PASSWORD}\n")
    assert changed.returncode == 0, changed.stderr
    short = inkgrove("identity", "password", "jane.haiku.ink", *home, stdin="seven!!\n")
    assert (short.returncode, "identity.weak-password" in short.stderr) == (1, True)
    assert inkgrove("identity", "password", "jane.haiku.ink", *home, stdin="").returncode == 2
    for finished in (changed, short):
        assert PASSWORD not in finished.stdout + finished.stderr
        assert "seven!!" not in finished.stdout + finished.stderr


def test_words_are_shown_confirmed_and_then_only_on_paper(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    inkgrove("identity", "create", "jane.haiku.ink", "--no-password", *home)
    assert "without recovery: inkgrove identity words jane.haiku.ink" in _plain(inkgrove("identity", "list", *home))
    shown = json.loads(inkgrove("identity", "words", "jane.haiku.ink", *home, "--json").stdout)["words"]
    assert len(shown.split()) == 24
    confirm = ("identity", "words", "jane.haiku.ink", "--confirm", *home)
    wrong = inkgrove(*confirm, stdin=shown.replace(shown.split()[0], "slothful", 1))
    assert (wrong.returncode, "key.wrong-word" in wrong.stderr) == (2, True)
    done = inkgrove(*confirm, "--json", stdin=shown)
    assert (done.returncode, json.loads(done.stdout)["recovery"]) == (0, "words"), done.stderr
    assert "without recovery" not in _plain(inkgrove("identity", "list", *home))
    gone = inkgrove("identity", "words", "jane.haiku.ink", *home)
    assert (gone.returncode, "identity.no-key-here" in gone.stderr) == (1, True)
    said = json.loads(inkgrove("identity", "controller", "jane.haiku.ink", *home, "--json").stdout)
    assert said["keys"][said["controller"]] == "key.counts"
    assert [step["seq_num"] for step in said["path"]] == [2]


def test_identity_is_made_with_words(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    made = inkgrove("identity", "create", "jane.haiku.ink", "--no-password", "--words", *home, "--json")
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert (facts["recovery"], len(facts["words"].split())) == ("words", 24)
    (listed,) = json.loads(inkgrove("identity", "list", *home, "--json").stdout)
    assert listed["has_recovery"] is True


def _plain(done: "subprocess.CompletedProcess[str]") -> str:
    return " ".join(done.stdout.split())


def test_options_of_recover_that_do_not_go_together_are_refused_before_anything_is_typed() -> None:
    wrong = (
        ("--as", "jane.poem.ink"),
        ("--hostile",),
        ("--file", "jane.person"),
        ("--to", "https://poem.ink"),
        ("--to", "https://poem.ink", "--friend", "john.poem.ink", "--file", "jane.person"),
        ("--to", "https://poem.ink", "--friend", "john.poem.ink", "--new-controller"),
    )
    for options in wrong:
        done = inkgrove("identity", "recover", "jane.haiku.ink", *options)
        assert done.returncode == 2, (options, done.stderr)
        assert "input.usage" in done.stderr, options

"""`inkgrove identity` on a store of its own."""

import json
from pathlib import Path

from tests.support.command import inkgrove

PASSWORD = "correct horse battery"


def test_identity_is_created_shown_and_listed(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    made = inkgrove("identity", "create", "jane.haiku.ink", "--name", "Jane", *home, "--json", stdin=f"{PASSWORD}\n")
    assert made.returncode == 0, made.stderr
    created = json.loads(made.stdout)
    assert (created["fqdn"], created["endpoint"]) == ("jane.haiku.ink", "https://jane.haiku.ink")
    shown = json.loads(inkgrove("identity", "show", created["id"], *home, "--json").stdout)
    assert shown == {**created, "profile": {}}
    listed = json.loads(inkgrove("identity", "list", *home, "--json").stdout)
    assert listed == [{"fqdn": "jane.haiku.ink", "id": created["id"]}]
    again = inkgrove("identity", "create", "jane.haiku.ink", "--no-password", *home)
    assert (again.returncode, "identity.exists" in again.stderr) == (1, True)


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

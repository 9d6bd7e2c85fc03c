"""`inkgrove peer`, `relation` and `bundle` as a person uses them, beside running nodes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import inkgrove
from tests.support.federated import Federation, federation, until
from tests.support.nodes import Person
from tests.support.publishing import create, make_schema


@dataclass
class World:
    """jane on node a, carol on b."""

    them: Federation
    jane: Person
    carol: Person

    def run(self, letter: str, *arguments: str) -> Any:
        """What a command on the home of a node prints as JSON."""
        running = self.them.nodes[letter]
        resolve = json.dumps(list(running.settings.resolve))
        done = inkgrove("--set", f"node.resolve={resolve}", *arguments, "--home", str(running.home), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "ab") as them:
        yield World(them, them.person("jane", "a"), them.person("carol", "b"))


def test_peer_is_added_synced_listed_and_removed(world: World) -> None:
    post = create(world.jane, make_schema(world.jane), access={"mode": "public"})["instance"]
    assert world.run("b", "peer", "add", "jane.a.ink") == {"peer": "jane.a.ink", "added": True}
    synced = world.run("b", "peer", "sync")
    # Two versions of the schema and the post; who jane is was found out before.
    assert (synced["ok"], synced["logs"], synced["stored"], synced["refused"]) == (True, 2, 3, {})
    assert world.them.payloads("b", post) == 1
    (peer,) = world.run("b", "peer", "list")
    assert (peer["peer"], peer["error"]) == ("jane.a.ink", None)
    assert peer["synced"] is not None
    assert world.run("b", "peer", "remove", "jane.a.ink") == {"peer": "jane.a.ink", "removed": True}
    assert world.run("b", "peer", "list") == []


def test_sync_with_a_dead_peer_fails_with_a_code(world: World) -> None:
    b = world.them.nodes["b"]
    world.run("b", "peer", "add", "nobody.dead.ink")
    resolve = json.dumps(list(b.settings.resolve))
    done = inkgrove("--set", f"node.resolve={resolve}", "peer", "sync", "--home", str(b.home), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["code"] == "federation.unreachable"


def test_relation_is_asked_for_and_accepted_by_command(world: World) -> None:
    asked = world.run("b", "relation", "request", "carol.b.ink", "jane.a.ink", "--group", "friends")
    assert (asked["state"], asked["told"]) == ("requested", True)
    accepted = world.run("a", "relation", "accept", "jane.a.ink", "carol.b.ink")
    assert (accepted["state"], accepted["told"]) == ("accepted", True)
    (row,) = world.run("b", "relation", "list", "carol.b.ink")
    assert (row["side"], row["fqdn"], row["state"], row["group"]) == ("following", "jane.a.ink", "accepted", "friends")
    ended = world.run("b", "relation", "end", "carol.b.ink", "jane.a.ink")
    assert (ended["state"], ended["told"]) == (None, True)
    until(lambda: world.run("a", "relation", "list", "jane.a.ink") == [])


def test_name_that_leads_nowhere_is_told_as_such(world: World) -> None:
    b = world.them.nodes["b"]
    resolve = json.dumps(list(b.settings.resolve))
    arguments = ("relation", "request", "carol.b.ink", "nobody.dead.ink", "--home", str(b.home))
    done = inkgrove("--set", f"node.resolve={resolve}", *arguments)
    assert done.returncode != 0
    told = " ".join(done.stderr.split())
    assert "nobody.dead.ink is no identity of this node, and was not found on another" in told
    assert "cannot be reached" in told


def test_bundle_goes_from_home_to_home(world: World, tmp_path: Path) -> None:
    mail = create(world.jane, make_schema(world.jane))["instance"]
    file = tmp_path / "mail.bundle"
    written = world.run("a", "bundle", "write", mail, "--out", str(file))
    assert (written["instances"], written["entries"], written["bytes"]) == (1, 1, file.stat().st_size)
    taken = world.run("b", "bundle", "read", str(file), "--to", "carol.b.ink")
    assert taken["receipts"] == [
        {"instance": mail, "recipient": world.carol.id.hex(), "fate": "accepted", "code": None}
    ]
    assert world.them.shares("b", mail) == {world.carol.id}

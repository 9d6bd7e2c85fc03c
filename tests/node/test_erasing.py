"""Erasing on a node: on request of the owner, and again after an older database was put back (protocol 9.5)."""

import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import insert

from inkgrove.core import Hash, PublicKey, parse_hash
from inkgrove.node.runtime import ERASED, ErasureJournal, Node, erase_due
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import find_entry, find_log
from inkgrove.store.views.tables import outcomes_of_none
from tests.store.postgres import PostgresServer
from tests.support.built_views import add_row, build_view
from tests.support.forking import ForkedProcess
from tests.support.nodes import PASSWORD, Person, RunningNode
from tests.support.older import Copy
from tests.support.publishing import create, make_schema
from tests.support.templates import copy_empty_store, open_node
from tests.support.tiers import amount

pytestmark = pytest.mark.both_databases
SECRET = "nobody is to read this again"


def has_payload(node: Node, instance: str) -> bool:
    entry = node.store.read(find_entry, parse_hash(instance))
    assert entry is not None
    return entry.payload is not None


@pytest.fixture
def alice(running: RunningNode) -> httpx.Client:
    """Somebody with a password."""
    running.create("alice.haiku.ink")
    return running.sign_in("alice.haiku.ink")


def test_owner_has_what_they_deleted_erased_at_once(running: RunningNode, alice: httpx.Client) -> None:
    schema = make_schema(alice)
    one = create(alice, schema, fields={"subject": SECRET})["instance"]
    two = create(alice, schema, fields={"subject": "stays"})["instance"]
    path = f"/instances/{one}/erase"
    right, wrong = {"password": PASSWORD}, {"password": "wrong horse battery"}

    def code(person: httpx.Client, body: object, at: str = path) -> str:
        answer = person.post(at, json=body)
        return str(answer.json().get("code", answer.json()))

    assert code(running.anybody, right) == "auth.required"
    assert code(alice, wrong) == "auth.bad-password"
    assert code(alice, {}) == "request.invalid"
    assert code(alice, right) == "publish.not-deleted"
    running.create("bob.haiku.ink")
    bob = running.sign_in("bob.haiku.ink")
    assert alice.delete(f"/instances/{one}").status_code == 200
    assert code(bob, right) == "view.unknown-instance"
    assert code(alice, right, f"/instances/{'0040' + 'ab' * 64}/erase") == "view.unknown-instance"
    assert has_payload(running.node, one)
    for _ in range(2):
        answer = alice.post(path, json=right)
        assert answer.json() == {"instance": one, "erased": True}
        assert not has_payload(running.node, one)
    assert has_payload(running.node, two)
    assert ErasureJournal(running.home).read() == [parse_hash(one)]
    assert (
        alice.patch(f"/instances/{one}", json={}, headers={"Content-Type": "application/merge-patch+json"}).status_code
        == 404
    )
    assert alice.get(f"/instances/{one}/deliveries").json() == {"instance": one, "deliveries": []}
    # The log goes on, and what the entry was is still proved.
    assert create(alice, schema, fields={"subject": "later"})["seq_num"] == 4


def test_running_node_erases_what_is_due(place: Path | str, tmp_path: Path) -> None:
    settings = NodeSettings(registration="open", domains=("haiku.ink",), erase_grace_seconds=0)
    with RunningNode(place, tmp_path / "home", settings) as running, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane)
        names = [create(jane, schema, fields={"subject": SECRET})["instance"] for _ in range(3)]
        kept = create(jane, schema, fields={"subject": SECRET})["instance"]
        report = erase_due(running.node, compact=True)
        assert report is not None
        assert (report.instances, report.is_compacted) == (0, None)
        for name in names:
            assert jane.delete(f"/instances/{name}").status_code == 200
        report = erase_due(running.node, compact=True)
        assert report is not None
        assert (report.instances, report.payloads, report.waiting, report.is_compacted) == (3, 3, 0, True)
        assert [has_payload(running.node, name) for name in (*names, kept)] == [False, False, False, True]
        report = erase_due(running.node, compact=True)
        assert report is not None
        assert (report.instances, report.is_compacted) in ((0, None), (0, True))


def test_older_database_forgets_again_what_was_erased(
    place: Path | str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres") if isinstance(place, str) else None
    settings = NodeSettings(registration="open", domains=("haiku.ink",), erase_grace_seconds=0)
    home = place if isinstance(place, Path) else tmp_path / "home"
    with RunningNode(place, home, settings) as running, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane)
        erased, kept = (create(jane, schema, fields={"subject": SECRET})["instance"] for _ in range(2))
    older = Copy(place, tmp_path, server)
    with RunningNode(place, home, settings) as running:
        node = running.node
        ErasureJournal(home).append([parse_hash(erased)])  # as far as a process comes that dies then
        assert has_payload(node, erased)
    with_journal = open_node(place, settings, home)
    assert not has_payload(with_journal, erased)
    with_journal.close()
    older.put_back()
    node = open_node(place, settings, home)
    assert not has_payload(node, erased)
    assert has_payload(node, kept)
    node.close()


CANARY = "canary-bird-"


def files_with(folder: Path, text: str) -> list[str]:
    return [path.name for path in sorted(folder.rglob("*")) if path.is_file() and text.encode() in path.read_bytes()]


def make_due(home: Path) -> None:
    """A home with deleted instances whose values are in payloads, blobs, rows, changes and reasons of outcomes."""
    settings = NodeSettings(registration="open", domains=("haiku.ink",))
    with RunningNode(copy_empty_store(home), home, settings) as running, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane, fields=[{"subject": {"action": "create", "type": "text"}},
                                           {"picture": {"action": "create", "type": "blob"}}])  # fmt: skip
        view, made = build_view(running.node, schema), []
        for number in range(6):
            blob = jane.post("/blobs", content=f"{CANARY}{number}".encode(), headers={"Content-Type": "text/plain"})
            picture = {"hash": blob.json()["hash"], "size": blob.json()["size"], "type": "text/plain"}
            fields = {"subject": f"{CANARY}{number} in a field", "picture": picture}
            made.append(create(jane, schema, fields=fields))
            add_row(running.node, view, made[-1], subject=fields["subject"])
        for item in made:
            _put_reason(running.node, item)
            assert jane.delete(f"/instances/{item['instance']}").status_code == 200


def _put_reason(node: Node, published: dict[str, Any]) -> None:
    """Leave an outcome that quotes its message."""
    author = PublicKey.fromhex(published["author"])
    log = node.store.read(find_log, author, published["log_id"])
    assert log is not None
    row = {
        "log": log.id,
        "seq_num": published["seq_num"],
        "hash": parse_hash(published["instance"]),
        "author": author,
        "log_id": published["log_id"],
        "outcome": "quarantined",
        "code": "instance.bad-value",
        "reason": f"{CANARY} in a reason",
    }
    node.views.database.write(lambda connection: connection.execute(insert(outcomes_of_none), row))


def test_erasure_that_was_killed_anywhere_is_ended_by_the_next_run(tmp_path: Path) -> None:
    made, counted = tmp_path / "made", tmp_path / "counted"
    make_due(made)
    assert len(files_with(made, CANARY)) >= 8

    def run(home: Path, number: int) -> int:
        arguments = [str(home), str(home), number, str(counted)]
        return ForkedProcess("tests.support.dying:erase_and_die", arguments, environment=os.environ).wait(60)

    whole = shutil.copytree(made, tmp_path / "whole")
    assert run(whole, 0) == 0
    assert files_with(whole, CANARY) == []
    calls, chance = int(counted.read_text()), random.Random(17)
    for number in sorted(chance.sample(range(1, calls), amount(6, min(80, calls - 1)))):
        home = shutil.copytree(made, tmp_path / str(number))
        assert run(home, number) == -signal.SIGKILL
        node = open_node(home, NodeSettings(erase_grace_seconds=0), home)
        report = erase_due(node, compact=True)
        assert report is not None
        assert (report.waiting, report.is_compacted) in ((0, True), (0, None))
        node.close()
        assert files_with(home, CANARY) == [], f"killed at call {number} of {calls}"
        shutil.rmtree(home)


def test_journal_outlives_a_line_that_was_cut_off(tmp_path: Path) -> None:
    journal = ErasureJournal(tmp_path)
    names = [Hash(b"\x00\x40" + bytes([number]) * 64) for number in range(3)]
    assert (journal.read(), journal.size) == ([], 0)
    journal.append(names[:1])
    with (tmp_path / ERASED).open("ab") as file:
        file.write(names[1].hex()[:50].encode())
    reached = journal.size
    journal.append(names[2:])
    journal.append([])
    assert journal.read() == [names[0], names[2]]
    assert journal.read(reached) == [names[2]]
    (tmp_path / ERASED).write_bytes(b"\xff\n\x00rubbish\n" + names[1].hex().encode() + b"\n")
    assert journal.read() == [names[1]]

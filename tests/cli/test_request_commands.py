"""`inkgrove request`: the box of requests without a session, with two identities that do not know each other."""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import Create, FieldChange, SchemaMeta, SchemaMigration, SchemaVersion, encode_message
from inkgrove.node.identity import create_identity, register_identity
from inkgrove.node.publishing import LocalShare, deliver_locally
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.federation import RemoteIdentity, put_remote_identity
from tests.support.command import inkgrove
from tests.support.logs import LogBuilder, key


def test_box_is_looked_at_accepted_one_by_one_and_from_now_on(tmp_path: Path) -> None:
    first, second = _send_two(tmp_path)

    def run(*arguments: str) -> Any:
        done = inkgrove("request", *arguments, "--home", str(tmp_path), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    people = "john.haiku.ink", "jane.haiku.ink"
    waiting = run("list", "john.haiku.ink")
    assert [(item["fqdn"], item["instance"], item["schema_name"]) for item in waiting] == [
        ("jane.haiku.ink", first, "notes"),
        ("jane.haiku.ink", second, "notes"),
    ]
    assert all(item["size"] > 0 for item in waiting)
    (message,) = run("show", *people, first)
    assert message["fields"] == [{"text": "one"}]
    assert run("accept", *people, first)["instances"] == [first]
    assert [item["instance"] for item in run("list", "john.haiku.ink")] == [second]
    taken = run("accept", *people, "--from-now-on")
    assert (taken["instances"], taken["from_now_on"]) == ([second], True)
    assert run("list", "john.haiku.ink") == []
    assert [item["fqdn"] for item in run("senders", "john.haiku.ink")] == ["jane.haiku.ink"]
    refused = inkgrove("request", "refuse", *people, "--home", str(tmp_path))
    assert (refused.returncode != 0, "federation.no-such-request" in refused.stderr) == (True, True)
    assert inkgrove("request", "drop", *people, "--home", str(tmp_path)).returncode == 0
    assert run("senders", "john.haiku.ink") == []


def test_sender_is_who_is_meant_by_a_name(tmp_path: Path) -> None:
    """A hosted name outside of the domains counts only while the world leads here; any name in any spelling."""
    first, _ = _send_two(tmp_path)
    now = [1_000]
    node = Node(tmp_path, NodeSettings(domains=("haiku.ink",)), home=tmp_path, clock=lambda: now[0])
    register_identity(node, "joan.own.example", None, leads_here=True)
    now[0] += 86_400_000_000
    other, public = IdentityId(b"\7" * 32), key(7).public
    known = RemoteIdentity(other, "joan.own.example", "https://joan.own.example", public, 1, public, 0, 1)
    node.database.write(lambda connection: put_remote_identity(connection, known))
    node.close()

    def accept(name: str, *arguments: str) -> Any:
        done = inkgrove("request", "accept", "john.haiku.ink", name, *arguments, "--home", str(tmp_path), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    accept("Joan.Own.Example", "--from-now-on")
    senders = inkgrove("request", "senders", "john.haiku.ink", "--home", str(tmp_path), "--json")
    assert [item["identity"] for item in json.loads(senders.stdout)] == [other.hex()]
    assert accept("JANE.haiku.ink.", first)["instances"] == [first]


def _send_two(home: Path) -> tuple[str, str]:
    node = Node(home, NodeSettings(domains=("haiku.ink",)), home=home)
    jane, john = (create_identity(node, f"{name}.haiku.ink", None) for name in ("jane", "john"))
    schema = LogBuilder(key(200))
    for message in (SchemaMeta("notes"), SchemaMigration((FieldChange("text", "create", "text"),))):
        schema.append(encode_message(message))
    log = LogBuilder(node.secret_key(jane.key), log_id=1)
    for text in ("one", "two"):
        log.append(encode_message(Create(SchemaVersion(key(200).public, 1, 2), {"text": text})))
    for built in (schema, log):
        node.store.ingest([(e.encoded, p) for e, p in zip(built.entries, built.payloads, strict=True)])
    instances: tuple[Hash, Hash] = log.hash(1), log.hash(2)

    def work(connection: Connection) -> None:
        deliver_locally(connection, [LocalShare(john.id, instances[0], jane.id)], 1)
        deliver_locally(connection, [LocalShare(john.id, instances[1], jane.id)], 2)

    node.database.write(work)
    node.close()
    return instances[0].hex(), instances[1].hex()

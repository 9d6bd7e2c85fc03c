"""Copies that have rotted, between real nodes: they stay away unasked, and come back whole when somebody asks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from inkgrove.core import hash_yamf, parse_hash
from inkgrove.federation.sharing import answer_refetch, restore_copy
from inkgrove.messages import decode_delivery
from inkgrove.store.federation import find_remote_identity
from inkgrove.store.logs import read_entries, register_schema
from inkgrove.store.rot import find_copy
from tests.support.errors import raises
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.nodes import Person
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, refusal, schema_id
from tests.support.rot_by_hand import fetched, step_of, take_down


@dataclass
class World:
    """jane on node a writes, john on node b has copies."""

    them: Federation
    jane: Person
    john: Person
    schema: str

    def mail(self, **facts: object) -> str:
        fields = {"subject": "Hello", **facts}
        mail: str = create(self.jane, self.schema, fields=fields, recipients=["john.b.ink"])["instance"]
        wait_for(self.jane, mail, john_b="delivered")
        return mail

    def change(self, instance: str, **fields: object) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        answer = self.jane.patch(f"/instances/{instance}", json={"fields": fields}, headers=headers)
        assert answer.status_code == 200, answer.text

    def show_on_b(self) -> None:
        """Let b have the schema and its view."""
        a, b = self.them.nodes["a"].node, self.them.nodes["b"].node
        wanted = schema_id(self.schema)
        b.store.ingest([(stored.entry.encoded, stored.payload) for stored in a.store.read(read_entries, *wanted)])
        for node in (a, b):
            node.store.write(register_schema, wanted)
            build_views(node)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "ab") as them:
        jane, john = them.person("jane", "a"), them.person("john", "b")
        them.acquaint(jane, john)
        yield World(them, jane, john, make_schema(jane))


def test_stub_stays_one_until_somebody_asks(world: World) -> None:
    mail, b = world.mail(), world.them.nodes["b"].node
    old = world.them.pack("a", mail)
    for step in ("cooked", "stub"):
        take_down(b, mail, step)  # type: ignore[arg-type]
        assert world.them.fate(world.jane, world.john, old) == ("accepted", None)
        assert (step_of(b, mail), world.them.payloads("b", mail)) == (step, None)
    entries = world.them.count_entries("b")
    world.change(mail, subject="Hello again")
    until(lambda: world.them.count_entries("b") == entries + 1)
    wait_for(world.jane, mail, john_b="delivered")
    assert (step_of(b, mail), world.them.payloads("b", mail)) == ("stub", None)
    world.show_on_b()
    assert refusal(world.john.get(f"/instances/{mail}")) == (404, "view.unknown-instance")

    answer = world.john.post(f"/instances/{mail}/fetch")
    assert answer.status_code == 200, answer.text
    assert (step_of(b, mail), world.them.payloads("b", mail), fetched(b, mail)) == ("full", 2, 1)
    build_views(b)
    assert world.john.get(f"/instances/{mail}").json()["fields"]["subject"] == "Hello again"
    assert refusal(world.john.post(f"/instances/{mail}/fetch")) == (409, "rot.not-rotted")


def test_what_is_gone_comes_back_with_any_delivery(world: World) -> None:
    mail, b = world.mail(), world.them.nodes["b"].node
    old = world.them.pack("a", mail)
    take_down(b, mail, "gone")
    assert world.them.payloads("b", mail) is None
    assert world.them.fate(world.jane, world.john, old) == ("accepted", None)
    assert world.them.payloads("b", mail) == 1


def test_owner_decides_who_gets_it_again(world: World) -> None:
    mail, b = world.mail(), world.them.nodes["b"].node
    take_down(b, mail, "stub")
    mary = world.them.person("mary", "b")
    assert refusal(mary.post(f"/instances/{mail}/fetch")) == (404, "federation.not-given-again")
    assert refusal(world.them.nodes["b"].anybody.post(f"/instances/{mail}/fetch")) == (401, "auth.required")
    assert step_of(b, mail) == "stub"
    unknown = "0040" + "ab" * 64
    assert refusal(world.john.post(f"/instances/{unknown}/fetch")) == (404, "rot.no-such-copy")


def test_what_has_expired_does_not_come_back(world: World) -> None:
    """Neither does the owner's node give it, nor does another one take it from a node that gives it all the same."""
    a, b = world.them.nodes["a"].node, world.them.nodes["b"].node
    public = {"access": {"mode": "public"}, "expires": "2200-01-01T00:00:00Z"}
    mail = create(world.jane, world.schema, recipients=["john.b.ink"], **public)["instance"]
    wait_for(world.jane, mail, john_b="delivered")
    take_down(b, mail, "cooked")
    sender = a.database.read(lambda connection: find_remote_identity(connection, "john.b.ink"))
    copy = b.database.read(lambda connection: find_copy(connection, parse_hash(mail)))
    assert sender is not None
    assert copy is not None
    given = decode_delivery(answer_refetch(a, sender, parse_hash(mail)))
    clock = a.clock
    a.clock = b.clock = lambda: clock() + 200 * 366 * 86_400 * 1_000_000
    with raises("view.unknown-instance"):
        answer_refetch(a, sender, parse_hash(mail))
    with raises("federation.not-given-again"):
        restore_copy(b, copy, world.john.id, given)
    a.clock = b.clock = clock
    assert (step_of(b, mail), world.them.payloads("b", mail)) == ("cooked", None)


def test_what_its_owner_has_deleted_is_given_to_nobody(world: World) -> None:
    a = world.them.nodes["a"].node
    public = create(world.jane, world.schema, access={"mode": "public"})["instance"]
    mail = world.mail()
    sender = a.database.read(lambda connection: find_remote_identity(connection, "john.b.ink"))
    assert sender is not None
    for instance in (mail, public):
        name = parse_hash(instance)
        assert decode_delivery(answer_refetch(a, sender, name)).parcels[0].instance == name
        assert world.jane.delete(f"/instances/{instance}").status_code == 200
        with raises("view.unknown-instance"):
            answer_refetch(a, sender, name)


def test_blob_comes_back_when_it_is_read(world: World) -> None:
    content = b"a picture" * 100
    answer = world.jane.post("/blobs", content=content, headers={"Content-Type": "image/png"})
    assert answer.status_code == 201, answer.text
    blob = answer.json()
    mail, b = world.mail(picture=blob), world.them.nodes["b"].node
    world.show_on_b()
    first = world.john.get(f"/blobs/{blob['hash']}")
    assert (first.status_code, first.content) == (200, content), first.text
    path = b.blobs.path_of(hash_yamf(content))
    assert path.is_file()
    take_down(b, mail, "no-blobs")
    assert not path.exists()
    assert world.john.get(f"/blobs/{blob['hash']}").content == content
    assert (step_of(b, mail), fetched(b, mail)) == ("no-blobs", 1)
    mary = world.them.person("mary", "b")
    assert refusal(mary.get(f"/blobs/{blob['hash']}")) == (404, "blob.unknown")


def test_pinned_copy_and_reads_are_counted_in_batches(world: World) -> None:
    mail, b = world.mail(), world.them.nodes["b"].node
    world.show_on_b()
    assert world.john.put(f"/instances/{mail}/keep").status_code == 204
    assert world.john.delete(f"/instances/{mail}/keep").status_code == 204
    unknown = "0040" + "ab" * 64
    assert refusal(world.john.put(f"/instances/{unknown}/keep")) == (404, "view.unknown-instance")
    assert world.john.get(f"/instances/{mail}").status_code == 200
    assert len(world.john.get(f"/views/{world.schema}").json()["rows"]) == 1
    assert world.jane.get(f"/instances/{mail}").status_code == 200
    for letter, wanted in (("a", {}), ("b", {mail: 3})):  # keeping it was a look at it, too
        node = world.them.nodes[letter].node
        node.reads.flush()
        found = node.database.read(lambda c: c.exec_driver_sql("SELECT instance, count FROM copy_reads").all())
        assert {bytes(row[0]).hex(): row[1] for row in found} == wanted
    assert step_of(b, mail) is None  # no run has looked yet


def test_what_an_owner_of_this_node_let_expire_is_asked_of_nobody(world: World) -> None:
    a = world.them.nodes["a"].node
    mail: str = create(world.jane, world.schema, fields={"subject": "Hi"}, expires="2020-01-01T00:00:00Z")["instance"]
    kept: str = create(world.jane, world.schema, fields={"subject": "Hi"})["instance"]
    take_down(a, mail, "cooked")
    assert (world.them.payloads("a", mail), step_of(a, kept)) == (None, None)
    assert refusal(world.jane.post(f"/instances/{mail}/fetch")) == (404, "federation.not-given-again")
    assert refusal(world.jane.delete(f"/instances/{mail}")) == (404, "view.unknown-instance")

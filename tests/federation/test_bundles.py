"""Bundles: instances handed over as a file are verified like deliveries."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from inkgrove.core import IdentityId, parse_hash
from inkgrove.federation.sharing import NOBODY, read_bundle, write_bundle
from inkgrove.messages import Bundle, BundledInstance, cbor, decode_bundle, encode_bundle
from inkgrove.node.identity import confirm_words, create_identity, find_owner, show_words
from inkgrove.node.publishing import find_held_instance, pack_parcel
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import newest_offset, payloads_of_schema
from inkgrove.store.node import shares_of
from tests.support.errors import raises
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import create, make_schema, schema_id


@dataclass
class World:
    """jane on a node that serves, and a node without a network, with carol."""

    here: Node
    jane: Person
    schema: str
    there: Node

    def mail(self, **facts: object) -> str:
        instance: str = create(self.jane, self.schema, fields={"subject": "Hello"}, **facts)["instance"]
        return instance

    def bundle(self, *instances: str) -> Bundle:
        return write_bundle(self.here, [parse_hash(instance) for instance in instances])

    def is_held(self, instance: str) -> bool:
        return self.there.database.read(lambda c: find_held_instance(c, parse_hash(instance))) is not None


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    there = Node(tmp_path / "b", NodeSettings(), home=tmp_path / "b")
    with RunningNode(tmp_path / "a", tmp_path / "a") as running, Person(running, "jane.a.ink") as jane:
        yield World(running.node, jane, make_schema(jane), there)
    there.close()


def test_bundle_brings_instance_proof_and_schema_to_whom_it_is_for(world: World) -> None:
    carol = create_identity(world.there, "carol.b.ink", None)
    first, other, second = world.mail(), world.mail(), world.mail()
    bundle = decode_bundle(encode_bundle(world.bundle(first, second)))
    receipts = read_bundle(world.there, bundle, [carol.id])
    assert [(item.recipient, item.decision, item.code) for item in receipts] == [(carol.id, "accepted", None)] * 2
    assert [world.is_held(item) for item in (first, other, second)] == [True, False, True]
    assert world.there.database.read(lambda c: shares_of(c, parse_hash(first))) == [carol.id]
    assert sorted(world.there.store.read(payloads_of_schema, schema_id(world.schema)).payloads) == [1, 2]
    # Once more changes nothing.
    before = world.there.store.read(newest_offset)
    read_bundle(world.there, bundle, [carol.id])
    assert world.there.store.read(newest_offset) == before


def test_bundle_for_nobody_is_only_stored(world: World) -> None:
    mail = world.mail()
    (receipt,) = read_bundle(world.there, world.bundle(mail), [])
    assert (receipt.recipient, receipt.decision) == (NOBODY, "accepted")
    assert world.is_held(mail)
    assert world.there.database.read(lambda c: shares_of(c, parse_hash(mail))) == []


@pytest.mark.parametrize("access", [{"mode": "self"}, {"mode": "closed", "to": ["jane.a.ink"]}])
def test_what_only_the_owners_node_may_send_is_neither_written_nor_read(world: World, access: object) -> None:
    mail = world.mail(access=access)
    with raises("federation.not-to-be-passed-on"):
        world.bundle(mail)

    def pack_anyway(connection: Connection) -> Bundle:
        held = find_held_instance(connection, parse_hash(mail))
        assert held is not None
        parcel = pack_parcel(connection, held, [], after=0, deletions_only=False)
        assert parcel is not None
        return Bundle([BundledInstance(parcel.instance, parcel.entries)], [])

    (receipt,) = read_bundle(world.there, world.here.database.read(pack_anyway), [])
    assert (receipt.decision, receipt.code) == ("refused", "federation.not-to-be-passed-on")
    assert not world.is_held(mail)


def test_bundle_with_a_changed_payload_is_refused(world: World) -> None:
    mail = world.mail()
    bundle = world.bundle(mail)
    (item,) = bundle.instances
    forged = [(entry, payload and payload.replace(b"Hello", b"Jello")) for entry, payload in item.entries]
    (receipt,) = read_bundle(world.there, replace(bundle, instances=[replace(item, entries=forged)]), [])
    assert (receipt.decision, receipt.code) == ("refused", "payload.hash-mismatch")
    assert not world.is_held(mail)


def test_instances_among_the_schemas_are_refused(world: World) -> None:
    bundle = world.bundle(world.mail())
    with raises("parcel.bad-bundle"):
        read_bundle(world.there, Bundle([], bundle.instances[0].entries), [])


def test_unknown_instance_is_not_written(world: World) -> None:
    with raises("view.unknown-instance"):
        world.bundle("0040" + "ab" * 64)


def test_who_never_met_the_owner_learns_whose_the_instance_is(world: World) -> None:
    """The key that signs is a controller: nothing in the instance says whose it is."""
    confirm_words(world.here, world.jane.id, show_words(world.here, world.jane.id))
    mail = parse_hash(world.mail())
    bundle = decode_bundle(encode_bundle(world.bundle(mail.hex())))

    def find_its_owner(connection: Connection) -> IdentityId:
        held = find_held_instance(connection, mail)
        assert held is not None
        return find_owner(connection, held.author)

    read_bundle(world.there, replace(bundle, documents=()), [])
    assert world.there.database.read(find_its_owner) != world.jane.id
    read_bundle(world.there, bundle, [])
    assert world.there.database.read(find_its_owner) == world.jane.id


def test_document_that_is_not_proved_is_refused_with_all_of_the_bundle(world: World) -> None:
    bundle = world.bundle(mail := world.mail())
    (document,) = bundle.documents
    for wrong in (b"", document[:-1], document.replace(b"jane.a.ink", b"mary.a.ink")):
        with raises("parcel.bad-bundle"):
            read_bundle(world.there, replace(bundle, documents=[wrong]), [])
    assert not world.is_held(mail)


def test_bundle_of_the_first_form_is_read(world: World) -> None:
    bundle = world.bundle(mail := world.mail())
    value = cbor.decode(encode_bundle(bundle))
    assert isinstance(value, dict)
    del value["documents"]
    read_bundle(world.there, decode_bundle(cbor.encode({**value, "form": "inkgrove bundle 1"})), [])
    assert world.is_held(mail)


@pytest.mark.parametrize("data", [b"", b"\xa0", b"{}", encode_bundle(Bundle([], [])) + b"\0"])
def test_other_files_are_no_bundles(data: bytes) -> None:
    with raises("parcel.bad-bundle"):
        decode_bundle(data)

"""Ends by another key of the owner reach everybody who has the instance (docs/protocol.md sections 5.7 and 8.4)."""

from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from inkgrove.core import Hash, HeldEntry, SecretKey, decode_entry, identity_of, parse_hash, verify_signed
from inkgrove.core.errors import ParcelError
from inkgrove.federation.sharing.key_proofs import pack_key_proofs, take_key_proofs
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    KeyOf,
    Parcel,
    SchemaVersion,
    Update,
    encode_message,
    open_parcel,
    with_salt,
)
from inkgrove.node.identity import find_owner
from inkgrove.node.publishing import find_erased_instance, find_held_instance, pack_next_parcel
from inkgrove.node.runtime import erase_at_once
from inkgrove.reference import fold_views
from inkgrove.store.db.node_tables import deliveries
from inkgrove.store.logs import find_entry, read_entries
from tests.federation.conftest import World
from tests.federation.test_control import look_up
from tests.support.federated import until, wait_for
from tests.support.logs import LogBuilder, key
from tests.support.publishing import Signer, as_json, schema_id
from tests.support.replication import sync


def add_phone(world: World, secret: SecretKey) -> Signer:
    """A key of jane's that her node does not keep."""
    log0 = LogBuilder(secret, log_id=0)
    claim = as_json(log0.append(encode_message(KeyOf(world.jane.id))), log0.payloads[0])
    answer = world.jane.post("/me/keys", json=claim)
    assert answer.status_code == 201, answer.text
    return Signer(world.jane, secret)


def by_phone(world: World, phone: Signer, **facts: Any) -> str:
    """An instance that the phone has signed, sent to john and alice."""
    version = SchemaVersion(*schema_id(world.schema), 2)
    message = with_salt(Create(version, {"subject": "From the phone"}, **facts), lambda size: b"s" * size)
    answer = phone.publish(message, world.schema)
    assert answer.status_code == 201, answer.text
    instance: str = answer.json()["hash"]
    answer = world.jane.post(f"/instances/{instance}/share", json={"recipients": ["john.b.ink", "alice.c.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.jane, instance, john_b="delivered", alice_c="delivered")
    return instance


def has_ended(world: World, letter: str, instance: str) -> bool:
    node = world.them.nodes[letter].node
    held = node.database.read(lambda connection: find_held_instance(connection, parse_hash(instance)))
    return held is not None and held.is_deleted


def test_end_by_another_key_reaches_those_who_have_the_instance(world: World) -> None:
    phone = add_phone(world, key(6))
    mail = by_phone(world, phone)
    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    until(lambda: [has_ended(world, letter, mail) for letter in "abc"] == [True] * 3)
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")


def test_end_by_a_key_that_the_receiver_has_not_seen_yet(world: World) -> None:
    mail = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, mail, john_b="delivered")  # john's node knows jane as she is now
    phone = add_phone(world, key(6))
    version = SchemaVersion(*schema_id(world.schema), 2)
    answer = phone.publish(Delete(parse_hash(mail), version), world.schema)
    assert answer.status_code == 201, answer.text
    until(lambda: has_ended(world, "b", mail))
    wait_for(world.jane, mail, john_b="delivered")


def test_continued_instance_goes_to_those_who_have_the_old_one(world: World) -> None:
    phone = add_phone(world, key(6))
    mail = by_phone(world, phone)
    patch = {"Content-Type": "application/merge-patch+json"}
    answer = world.jane.patch(f"/instances/{mail}", json={"fields": {"subject": "By the node"}}, headers=patch)
    assert answer.status_code == 200, answer.text
    new = answer.json()["instance"]
    wait_for(world.jane, new, john_b="delivered", alice_c="delivered")
    until(lambda: [has_ended(world, letter, mail) for letter in "abc"] == [True] * 3)
    assert world.held(new) == [1, 1, 1, None]
    assert world.them.shares("b", new) == {world.john.id}


def test_end_is_passed_on_to_those_whom_a_recipient_has_passed_it_on_to(world: World) -> None:
    phone = add_phone(world, key(6))
    mail = by_phone(world, phone)
    answer = world.alice.post(f"/instances/{mail}/pass-on", json={"recipients": ["bob.d.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.alice, mail, bob_d="delivered")
    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    until(lambda: has_ended(world, "c", mail))
    until(lambda: has_ended(world, "d", mail))


def test_replication_brings_the_end_of_what_was_public(strangers: World) -> None:
    phone = add_phone(strangers, key(6))
    version = SchemaVersion(*schema_id(strangers.schema), 2)
    answer = phone.publish(Create(version, {"subject": "From the phone"}, Access("public")), strangers.schema)
    assert answer.status_code == 201, answer.text
    note = answer.json()["hash"]
    sync(strangers.them.nodes["b"], "jane.a.ink")
    assert strangers.them.payloads("b", note) == 1
    assert not has_ended(strangers, "b", note)
    assert strangers.jane.delete(f"/instances/{note}").status_code == 200
    assert sync(strangers.them.nodes["b"], "jane.a.ink").refused == {}
    assert has_ended(strangers, "b", note)
    # Who comes later gets the end and nothing of what has ended.
    sync(strangers.them.nodes["c"], "jane.a.ink")
    assert strangers.them.payloads("c", note) is None


def rows_at(world: World, letter: str) -> set[str]:
    """The instances that have a row, by all that a node holds; the schema is taken from its author's node."""
    wanted = schema_id(world.schema)
    held = [
        HeldEntry(verify_signed(item.entry), item.payload)
        for at, is_wanted in (("a", lambda log: log == tuple(wanted)), (letter, lambda log: log != tuple(wanted)))
        for log in filter(is_wanted, world.them.nodes[at].node.store.heights())
        for item in world.them.nodes[at].node.store.read(read_entries, *log)
    ]
    return {row.instance.hex() for view in fold_views(held, [wanted]) for row in view.rows}


def test_row_goes_where_a_copy_is_held_when_another_device_deletes_it(world: World) -> None:
    phone = add_phone(world, key(6))
    mail, kept = by_phone(world, phone), by_phone(world, phone)
    assert rows_at(world, "b") == {mail, kept}
    # The node's own key deletes what the phone wrote, and the phone what the node's key wrote.
    own = world.mail(recipients=["john.b.ink"])
    wait_for(world.jane, own, john_b="delivered")
    assert rows_at(world, "b") == {mail, kept, own}
    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    version = SchemaVersion(*schema_id(world.schema), 2)
    assert phone.publish(Delete(parse_hash(own), version), world.schema).status_code == 201
    until(lambda: [has_ended(world, "b", name) for name in (mail, own)] == [True, True])
    assert rows_at(world, "b") == {kept}


def test_end_by_another_key_that_comes_before_the_create(world: World) -> None:
    phone = add_phone(world, key(6))
    version = SchemaVersion(*schema_id(world.schema), 2)
    answer = phone.publish(Create(version, {"subject": "Early"}, Access("listed"), salt=bytes(16)), world.schema)
    mail = answer.json()["hash"]
    everything = world.them.pack("a", mail)
    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    end = pack_end_of(world, mail)
    john = world.them.nodes["b"].node
    look_up(john, "jane.a.ink")
    assert world.them.fate(world.jane, world.john, end) == ("refused", "parcel.lacks-create")
    assert world.them.fate(world.jane, world.john, everything) == ("refused", "parcel.ended-before")
    # Somebody else's key ends nothing.
    assert world.them.payloads("b", mail) is None


def pack_end_of(world: World, instance: str) -> Parcel:
    def work(connection: Connection) -> Parcel:
        name = parse_hash(instance)
        held = find_held_instance(connection, name) or find_erased_instance(connection, name)
        assert held is not None
        packed = pack_next_parcel(connection, held, [], after=0, deletions_only=True)
        assert packed is not None
        return packed[0]

    return world.them.nodes["a"].node.database.read(work)


def test_end_by_another_key_is_told_after_the_content_was_erased(world: World) -> None:
    phone = add_phone(world, key(6))
    mail = by_phone(world, phone)
    version = SchemaVersion(*schema_id(world.schema), 2)
    change = Update(version, parse_hash(mail), {"subject": "From the phone, later"})
    assert phone.publish(change, world.schema).status_code == 201
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    before = world.them.pack("a", mail)
    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    until(lambda: has_ended(world, "b", mail))
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    assert erase_at_once(world.them.nodes["a"].node, parse_hash(mail))
    end = pack_end_of(world, mail)
    assert [decode_entry(entry).author == key(6).public for entry, _ in end.entries].count(True) == 0
    assert world.them.fate(world.jane, world.john, end) == ("accepted", None)
    # Also where nothing of it is left, and its content does not come back.
    assert erase_at_once(world.them.nodes["b"].node, parse_hash(mail))
    assert world.them.fate(world.jane, world.john, end) == ("accepted", None)
    assert world.them.fate(world.jane, world.john, before) == ("refused", "payload.erased")
    # To whom the end was not told yet the outbox tells it.
    here = world.them.nodes["a"].node

    def forget(connection: Connection) -> None:
        connection.execute(update(deliveries).values(state="waiting", delivered=2))

    here.database.write(forget)
    wait_for(world.jane, mail, john_b="delivered", alice_c="delivered")
    assert here.database.read(lambda c: set(c.scalars(select(deliveries.c.delivered)))) == {3}


def test_who_got_it_passed_on_hears_of_the_end_though_they_know_one_key_only(world: World) -> None:
    phone = add_phone(world, key(6))
    mail = by_phone(world, phone)
    answer = world.alice.post(f"/instances/{mail}/pass-on", json={"recipients": ["bob.d.ink"]})
    assert answer.status_code == 200, answer.text
    wait_for(world.alice, mail, bob_d="delivered")
    there = world.them.nodes["d"].node
    assert there.database.read(lambda c: find_owner(c, key(6).public)) == identity_of(key(6).public)
    assert rows_at(world, "d") == {mail}
    assert world.jane.delete(f"/instances/{mail}").status_code == 200
    until(lambda: has_ended(world, "d", mail))
    assert there.database.read(lambda c: find_owner(c, key(6).public)) == world.jane.id
    assert rows_at(world, "d") == set()


def test_proofs_of_keys_are_taken_only_if_they_prove_what_is_asked(world: World) -> None:
    phone = add_phone(world, key(6))
    own = world.mail()
    here, there = world.them.nodes["a"].node, world.them.nodes["d"].node
    stored = here.store.read(find_entry, parse_hash(own))
    assert stored is not None
    assert phone.secret == key(6)
    pair = (key(6).public, stored.entry.author)
    proofs = here.database.read(lambda connection: pack_key_proofs(connection, [pair]))
    assert proofs
    before = there.store.heights()
    for offered, keys in (
        (proofs, (key(6).public, key(7).public)),  # of somebody else's key they say nothing
        (proofs[:-1], pair),
        ([(entry, None) for entry, _ in proofs], pair),
        ([(b"rubbish", None)], pair),
        ([*proofs, (stored.entry.encoded, stored.payload)], pair),  # an entry of another log
        ([], pair),
    ):
        assert not there.database.write(partial(take_key_proofs, offered=offered, keys=keys))
    assert there.store.heights() == before
    assert there.database.write(lambda connection: take_key_proofs(connection, proofs, pair))
    assert there.database.read(lambda c: find_owner(c, key(6).public)) == world.jane.id


# What a parcel with an end may hold


def parcel_of(log: LogBuilder, instance: Hash) -> Parcel:
    pairs = [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]
    return Parcel(instance, (), pairs)


def test_parcel_of_another_log_holds_nothing_but_deletes_of_its_instance() -> None:
    schema = SchemaVersion(key(9).public, 1, 2)
    own = LogBuilder(key(5))
    own.append(encode_message(Create(schema, {})))
    instance, create = own.hash(1), own.entries[0]
    end = LogBuilder(key(6))
    end.append(encode_message(Delete(instance, schema)))
    opened = open_parcel(parcel_of(end, instance), create)
    assert (opened.is_of_other_log, opened.is_deletion, opened.author) == (True, True, key(6).public)
    for message in (
        Delete(instance),
        Delete(1, schema),
        Delete(Hash(b"\0\x40" + b"\1" * 64), schema),
        Create(schema, {}, continues=instance),
    ):
        other = LogBuilder(key(6))
        other.append(encode_message(message))
        with pytest.raises(ParcelError):
            open_parcel(parcel_of(other, instance), create)

"""Ends by another key of the owner reach everybody who has the instance (docs/protocol.md sections 5.7 and 8.4)."""

from typing import Any

import pytest

from inkgrove.core import Hash, SecretKey, parse_hash
from inkgrove.core.errors import ParcelError
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    KeyOf,
    Parcel,
    SchemaVersion,
    encode_message,
    open_parcel,
    with_salt,
)
from inkgrove.node.publishing import find_held_instance
from tests.federation.conftest import World
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

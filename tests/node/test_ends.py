"""Changing and deleting what another key of the same identity wrote (docs/protocol.md section 5.7)."""

import json
from typing import Any

import httpx
import pytest

from inkgrove.core import Hash, IdentityId, parse_hash
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    FurtherKey,
    IdentityDocument,
    KeyOf,
    RevokedLog,
    SchemaVersion,
    Update,
    decode_message,
)
from inkgrove.store.logs import find_entry, register_schema
from inkgrove.store.node import shares_of
from tests.support.logs import key
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import FIELDS, Signer, create, make_schema, refusal, schema_id

PATCH = {"Content-Type": "application/merge-patch+json"}
_PHONES = iter(range(150, 250))


class Devices:
    """A person whose first key the node keeps, and a phone with a key of its own."""

    def __init__(self, running: RunningNode, person: Person) -> None:
        self.node, self.person = running.node, person
        self.signer = Signer(person, running.node.secret_key(person.key))
        self.phone = Signer(person, key(next(_PHONES)))
        self.list(FurtherKey(self.phone.secret.public))
        start = {"log_id": 0, "seq_num": 1, "lipmaa_link": None, "backlink": None, "hash": "yamf"}
        answer = self.phone.post(*self.phone.sign(KeyOf(person.id), start))
        assert answer.status_code == 201, answer.text
        self.schema = make_schema(person)
        running.node.store.write(register_schema, schema_id(self.schema))

    def list(self, *keys: FurtherKey) -> None:
        """Sign a document with these further keys."""
        fqdn = self.person.fqdn
        document = IdentityDocument(fqdn, f"https://{fqdn}", keys=keys)
        answer = self.signer.post(*self.signer.sign(document, self.signer.place(log_id=0)))
        assert answer.status_code == 201, answer.text

    def write(self, subject: str = "from the phone", **facts: Any) -> str:
        """An instance by the phone."""
        version = SchemaVersion(*schema_id(self.schema), 2)
        answer = self.phone.publish(Create(version, {"subject": subject}, **facts), self.schema)
        assert answer.status_code == 201, answer.text
        instance: str = answer.json()["hash"]
        return instance

    def message(self, entry: str) -> Any:
        """What an entry says."""
        stored = self.node.store.read(find_entry, parse_hash(entry))
        assert stored is not None
        assert stored.payload is not None
        return decode_message(stored.payload)

    def show(self, instance: str, person: httpx.Client | None = None) -> httpx.Response:
        """An instance as the view has it."""
        build_views(self.node)
        return (person or self.person).get(f"/instances/{instance}")


@pytest.fixture
def devices(shared: RunningNode, jane: Person) -> Devices:
    return Devices(shared, jane)


def patch(person: Person, instance: str, **document: Any) -> dict[str, Any]:
    answer = person.patch(f"/instances/{instance}", json=document, headers=PATCH)
    assert answer.status_code == 200, answer.text
    published: dict[str, Any] = answer.json()
    return published


@pytest.mark.both_databases
def test_change_of_what_another_key_wrote_continues_it(devices: Devices, jane: Person) -> None:
    old = devices.write("from the phone", access=Access("public"))
    published = patch(jane, old, fields={"stars": 5})
    assert (published["continues"], published["author"], published["changed"]) == (old, jane.key.hex(), True)
    message = devices.message(published["entry"])
    assert message.continues == parse_hash(old)
    assert (dict(message.fields), message.access) == ({"subject": "from the phone", "stars": 5}, Access("public"))
    # From now on it is the node's own, and a change is an update; whichever id is used.
    again = patch(jane, old, fields={"stars": 4})
    assert again["instance"] == published["instance"]
    assert "continues" not in again
    assert isinstance(devices.message(again["entry"]), Update)
    shown = devices.show(old).json()
    assert (shown["instance"], shown["continues"]) == (published["instance"], old)
    assert (shown["fields"]["subject"], shown["fields"]["stars"]) == ("from the phone", 4)
    assert "continues" not in devices.show(published["instance"]).json()


def test_change_that_changes_nothing_continues_nothing(devices: Devices, jane: Person) -> None:
    old = devices.write()
    published = patch(jane, old, fields={"subject": "from the phone"})
    assert (published["instance"], published["changed"]) == (old, False)


@pytest.mark.both_databases
def test_delete_of_what_another_key_wrote_ends_it(devices: Devices, jane: Person) -> None:
    old = devices.write()
    answer = jane.delete(f"/instances/{old}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["author"] == jane.key.hex()
    assert isinstance(devices.message(answer.json()["entry"]), Delete)
    assert refusal(jane.delete(f"/instances/{old}")) == (404, "view.unknown-instance")
    assert refusal(jane.patch(f"/instances/{old}", json={"fields": {}}, headers=PATCH)) == (
        404,
        "view.unknown-instance",
    )
    assert refusal(devices.show(old)) == (404, "view.unknown-instance")


def test_what_a_revoked_key_wrote_can_still_be_changed(devices: Devices, jane: Person) -> None:
    old, other = devices.write("one"), devices.write("two")
    devices.list(FurtherKey(devices.phone.secret.public, (RevokedLog(0, 1), RevokedLog(1, 2))))
    assert patch(jane, old, fields={"subject": "uno"})["continues"] == old
    assert jane.delete(f"/instances/{other}").status_code == 200
    build_views(devices.node)
    rows = jane.get(f"/views/{devices.schema}").json()["rows"]
    assert [row["fields"]["subject"] for row in rows] == ["uno"]


def test_key_that_does_not_belong_any_more_leaves_its_rows_alone(devices: Devices, jane: Person) -> None:
    old = devices.write()
    continued = patch(jane, old, fields={"subject": "mine"})["instance"]
    devices.list()
    shown = devices.show(continued).json()
    assert shown["fields"]["subject"] == "mine"
    assert refusal(jane.patch(f"/instances/{old}", json={"fields": {"stars": 1}}, headers=PATCH))[0] in (403, 404)


def test_recipients_and_expiry_are_taken_over(devices: Devices, jane: Person, john: Person) -> None:
    old = devices.write()
    answer = jane.post(f"/instances/{old}/share", json={"recipients": [john.fqdn]})
    assert answer.status_code == 200, answer.text
    expires = "2031-01-01T00:00:00Z"
    new = patch(jane, old, expires=expires)["instance"]
    assert devices.node.store.read(shares_of, parse_hash(new)) == [IdentityId(john.id)]
    shown = devices.show(old, john).json()
    assert (shown["instance"], shown["expires"]) == (new, expires)


def test_other_access_ends_the_old_one_for_those_who_may_not_have_the_new(devices: Devices, jane: Person) -> None:
    old = devices.write(access=Access("public"))
    published = patch(jane, old, access={"mode": "self"})
    place = devices.signer.place(schema=devices.schema)
    last = devices.message(place["backlink"])
    assert isinstance(last, Delete)
    assert last.instance == parse_hash(old)
    assert devices.message(published["entry"]).access == Access("self")
    # Nobody sees the past of the old one by the new one, so that widening needs no consent.
    wider = patch(jane, devices.write(access=Access("self")), access={"mode": "public"})
    assert devices.message(wider["entry"]).access == Access("public")


def test_history_goes_along_the_line_for_its_owner(devices: Devices, jane: Person, john: Person) -> None:
    old = devices.write("private", access=Access("self"))
    new = patch(jane, old, access={"mode": "public"}, fields={"subject": "shown"})["instance"]
    build_views(devices.node)
    history = jane.get(f"/instances/{old}/history").json()["history"]
    assert [(event["instance"], event["kind"], event["outcome"]) for event in history] == [
        (old, "create", "applied"),
        (new, "create", "applied"),
    ]
    (event,) = john.get(f"/instances/{old}/history").json()["history"]
    assert event["fields"]["subject"] == "shown"


def test_relation_leads_to_the_last_of_the_line(devices: Devices, shared: RunningNode, jane: Person) -> None:
    author, _, log_id = devices.schema.partition("/")
    fields = [{"answers": {"action": "create", "type": "relation", "schema": [author, int(log_id)]}}]
    answers = make_schema(jane, "answers", fields)
    shared.node.store.write(register_schema, schema_id(answers))
    old = devices.write("first")
    create(jane, answers, fields={"answers": old})
    new = patch(jane, old, fields={"subject": "second"})["instance"]
    build_views(devices.node)
    (row,) = jane.get(f"/views/{answers}?expand=answers").json()["rows"]
    assert (row["fields"]["answers"], row["expanded"]["answers"]["instance"]) == (old, new)


# Entries that clients sign


@pytest.mark.both_databases
def test_phone_ends_and_continues_what_the_node_wrote(devices: Devices, jane: Person) -> None:
    version = SchemaVersion(*schema_id(devices.schema), 2)
    one, two = (create(jane, devices.schema, fields={"subject": text})["instance"] for text in ("one", "two"))
    assert devices.phone.publish(Delete(parse_hash(one), version), devices.schema).status_code == 201
    continuing = Create(version, {"subject": "due"}, continues=parse_hash(two))
    assert devices.phone.publish(continuing, devices.schema).status_code == 201
    build_views(devices.node)
    rows = jane.get(f"/views/{devices.schema}").json()["rows"]
    assert [row["fields"]["subject"] for row in rows] == ["due"]
    # Another device may have continued it too, without knowing; deleting it twice is of no use.
    assert devices.phone.publish(continuing, devices.schema).status_code == 201
    assert (
        refusal(devices.phone.publish(Delete(parse_hash(one), version), devices.schema))[1] == "publish.would-not-apply"
    )


def test_ends_that_would_not_count_are_refused(devices: Devices, jane: Person, john: Person) -> None:
    other = make_schema(jane, "other", FIELDS)
    own = create(jane, devices.schema, fields={"subject": "jane's"})["instance"]
    johns = create(john, devices.schema, fields={"subject": "john's"})["instance"]
    version, of_other = (SchemaVersion(*schema_id(name), 2) for name in (devices.schema, other))
    devices.write()
    for message, schema in (
        (Delete(parse_hash(johns), version), devices.schema),
        (Delete(parse_hash(own)), devices.schema),
        (Delete(parse_hash(own), of_other), devices.schema),
        (Update(version, parse_hash(own), {"subject": "x"}), devices.schema),
        (Create(version, {}, continues=parse_hash(johns)), devices.schema),
        (Create(of_other, {}, continues=parse_hash(own)), other),
        (Create(version, {}, continues=Hash(b"\0\x40" + b"\1" * 64)), devices.schema),
    ):
        assert refusal(devices.phone.publish(message, schema))[1] == "publish.foreign-instance", message


def test_trial_of_a_continuing_change_publishes_nothing(devices: Devices, jane: Person) -> None:
    old = devices.write()
    before = devices.node.store.heights()
    answer = jane.patch(f"/instances/{old}?dry_run=true", content=json.dumps({"fields": {"stars": 1}}), headers=PATCH)
    assert answer.status_code == 200, answer.text
    assert devices.node.store.heights() == before

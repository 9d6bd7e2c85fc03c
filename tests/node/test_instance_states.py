"""What is kept of an instance with many messages is what a fold of all of them says."""

from random import Random

import pytest
from sqlalchemy import update

from inkgrove.core import Hash, parse_hash
from inkgrove.messages import SchemaVersion, Update
from inkgrove.node.publishing import COSTLY, Appender, InstanceState, PublishingCache
from inkgrove.store.db import entries
from inkgrove.store.logs import drop_payloads
from inkgrove.store.node import lock_keys
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import Signer, create, mail, make_schema, schema_id
from tests.support.tiers import amount

PATCH = {"Content-Type": "application/merge-patch+json"}


class Kept:
    """Reads an instance time and again, each time beside somebody who reads it for the first time."""

    def __init__(self, running: RunningNode, person: Person) -> None:
        self.node, self.person, self.cache = running.node, person, PublishingCache()

    def read(self, instance: Hash) -> InstanceState:
        with self.node.database.writing() as connection:
            keys = lock_keys(connection, [self.person.id])
            appenders = [Appender(self.node, connection, keys, kept, 1) for kept in (self.cache, PublishingCache())]
            ours, anew = (appender.instance(instance) for appender in appenders)
            assert ours is not None
            assert anew is not None
            assert (ours.create, ours.fold) == (anew.create, anew.fold)
            assert (ours.messages, ours.height) == (anew.messages, anew.height)
        appenders[0].remember_committed()
        return ours


@pytest.fixture
def signer(shared: RunningNode, jane: Person) -> Signer:
    return Signer(jane, shared.node.secret_key(jane.key))


def change(person: Person, instance: str, **document: object) -> None:
    answer = person.patch(f"/instances/{instance}?history=show", json=document, headers=PATCH)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("seed", range(amount(1, 3)))
def test_kept_instance_is_the_fold_of_all_its_messages(
    shared: RunningNode, jane: Person, signer: Signer, seed: int
) -> None:
    random = Random(seed)
    schema = make_schema(jane)
    name = create(jane, schema, fields={"subject": "0"}, access={"mode": "public"})["instance"]
    other = create(jane, schema, fields={"subject": "other"})["instance"]
    instance, kept = parse_hash(name), Kept(shared, jane)
    versions = 2
    for number in range(1, 70):
        for _ in range(random.choice([1, 1, 1, 2, 40])):
            what = random.choice(["fields", "fields", "entry", "other", "expires"])
            if what == "fields":
                change(jane, name, fields={random.choice(["subject", "stars"]): None, "weight": random.random()})
            elif what == "entry":
                message = Update(SchemaVersion(*schema_id(schema), versions), instance, {"stars": random.randrange(9)})
                assert signer.publish(message, schema).status_code == 201
            elif what == "other":
                change(jane, other, fields={"stars": random.randrange(10**9)})
            else:
                change(jane, name, expires=f"2{random.randrange(100, 999)}-01-01T00:00:00Z")
        if number == 30:
            change(jane, name, access={"mode": "listed"})
        if number in (25, 50):
            field = {f"added{number}": {"action": "create", "type": "text", "default": "new"}}
            assert jane.post(f"/schemas/{schema}/versions", json={"fields": [field]}).status_code == 201
            versions += 1
        state = kept.read(instance)
        assert (instance in kept.cache.instances) == (state.messages >= COSTLY)
    assert jane.delete(f"/instances/{name}").status_code == 200
    assert not kept.read(instance).is_living
    assert jane.patch(f"/instances/{name}", json={"fields": {}}, headers=PATCH).status_code == 404


def test_messages_of_before_are_not_read_again(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    first = create(jane, schema, fields={"subject": "first"})
    for number in range(COSTLY):
        change(jane, first["instance"], fields={"stars": number})
    # Nobody may do this: whoever reads it now sees that its update is gone.
    spoilt = update(entries).where(entries.c.hash == parse_hash(first["instance"])).values(payload=b"\xa0")
    shared.node.database.write(lambda connection: connection.execute(spoilt))
    change(jane, first["instance"], fields={"stars": 100})
    change(jane, first["instance"], fields={"stars": 101})
    cache = PublishingCache()
    with shared.node.database.writing() as connection:
        state = Appender(shared.node, connection, {}, cache, 1).instance(parse_hash(first["instance"]))
    assert state is not None
    assert not state.is_living


def test_kept_instance_ends_with_what_it_is_made_of(shared: RunningNode, jane: Person, signer: Signer) -> None:
    schema = make_schema(jane)
    instances = [create(jane, schema, fields={"subject": text})["instance"] for text in ("dropped", "forked")]
    for name in instances:
        for number in range(1, COSTLY + 5):
            change(jane, name, fields={"stars": number})
    dropped, forked = map(parse_hash, instances)
    kept = Kept(shared, jane)
    assert kept.read(dropped).is_living
    assert kept.read(forked).is_living
    shared.node.store.write(drop_payloads, [dropped])
    assert not kept.read(dropped).is_living
    place = signer.place(schema=schema)
    assert signer.publish(mail(schema), schema).status_code == 201
    branch, payload = signer.sign(mail(schema, "another"), place)
    shared.node.store.ingest([(branch, payload)])
    kept.read(forked)
    change_now = jane.patch(f"/instances/{instances[1]}", json={"fields": {"stars": 1000}}, headers=PATCH)
    assert change_now.json()["code"] == "log.forked"

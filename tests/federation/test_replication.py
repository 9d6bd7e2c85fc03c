"""Replication between real nodes: what anybody may have arrives, proved, and nothing else does."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from httpx import Response

from inkgrove.core import PublicKey, certificate_pool, parse_hash
from inkgrove.federation.errors import FederationError, PeerUnreachable
from inkgrove.federation.replication import answer_entries, answer_heights, catch_up, pick_next_schemas
from inkgrove.messages import (
    Access,
    AskHeights,
    Create,
    FieldChange,
    IdentityDocument,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    Want,
    encode_message,
)
from inkgrove.node.identity import apply_identity_log, read_newest_document
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.federation import QueueBackoff, list_peers, put_backoff, states_of
from inkgrove.store.logs import find_entry, find_log, payloads_of_schema, read_entries, read_logs, register_schema
from tests.store.postgres import PostgresServer
from tests.support.federated import Federation, federation, until, wait_for
from tests.support.identity_worlds import copy_branch
from tests.support.logs import LogBuilder, key
from tests.support.nodes import Person
from tests.support.publishing import create, make_schema, schema_id
from tests.support.replication import held, renew_schemas, sync

PUBLIC = {"mode": "public"}


@dataclass
class World:
    """jane on node a, carol on b, dora on c; nobody follows anybody."""

    them: Federation
    jane: Person
    carol: Person
    dora: Person
    schema: str

    def note(self, subject: str = "Hello", **facts: object) -> str:
        instance: str = create(self.jane, self.schema, fields={"subject": subject}, **facts)["instance"]
        return instance

    def change(self, instance: str, subject: str, **facts: object) -> Response:
        return self.jane.patch(
            f"/instances/{instance}",
            json={"fields": {"subject": subject}, **facts},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def pass_on(self, instance: str) -> None:
        """carol passes an instance on to dora, who gets it."""
        answer = self.carol.post(f"/instances/{instance}/pass-on", json={"recipients": ["dora.c.ink"]})
        assert answer.status_code == 200, answer.text
        wait_for(self.carol, instance, dora_c="delivered")

    def payloads(self, letter: str) -> set[str]:
        """The subjects of jane's that a node holds."""
        held_here = held(self.them.nodes[letter].node)
        texts = [payload for (author, _, _), payload in held_here.items() if author == self.jane.key.hex()]
        return {
            word for payload in texts if payload for word in ("open", "secret", "later") if word.encode() in payload
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with federation(tmp_path, "abc") as them:
        jane, carol, dora = them.person("jane", "a"), them.person("carol", "b"), them.person("dora", "c")
        yield World(them, jane, carol, dora, make_schema(jane))


def _items(log: LogBuilder) -> list[tuple[bytes, bytes | None]]:
    return [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]


def test_public_instances_schemas_and_identities_arrive_and_nothing_else(world: World) -> None:
    opened = world.note("open", access=PUBLIC)
    closed = world.note("secret")
    synced = sync(world.them.nodes["b"], "jane.a.ink")

    assert synced.refused == {}
    assert world.payloads("b") == {"open"}
    assert world.them.payloads("b", opened) == 1
    assert world.them.payloads("b", closed) is None
    schema = schema_id(world.schema)
    definition = world.them.nodes["b"].node.store.read(payloads_of_schema, schema)
    assert sorted(definition.payloads) == [1, 2]
    log0 = world.them.nodes["b"].node.store.read(find_log, world.jane.key, 0)
    assert log0 is not None
    assert log0.is_whole


def test_log_that_holds_nothing_public_is_not_even_named(world: World) -> None:
    node = world.them.nodes["a"].node
    world.note("secret")
    listed = {(log.author, log.log_id) for log in answer_heights(node, AskHeights()).logs}
    schema = schema_id(world.schema)
    assert listed == {(world.jane.key, 0), (schema.author, schema.log_id)}
    # And whoever knows its name gets nothing of it.
    notes = next(log for log in node.store.read(read_logs).values() if log.log_id not in (0, schema.log_id))
    assert answer_entries(node, [Want(world.jane.key, notes.log_id, [(1, 100)])]).entries == []


def test_private_neighbours_travel_as_entries_without_payloads(world: World) -> None:
    for _ in range(6):
        world.note("secret")
    opened = world.note("open", access=PUBLIC)
    for _ in range(8):
        world.note("secret")
    sync(world.them.nodes["b"], "jane.a.ink")
    entry = world.them.nodes["a"].node.store.read(find_entry, parse_hash(opened))
    assert entry is not None
    assert entry.entry.seq_num == 7
    stored = world.them.nodes["b"].node.store.read(read_entries, world.jane.key, entry.entry.log_id)
    assert [item.entry.seq_num for item in stored] == certificate_pool(7, 15)
    assert [item.entry.seq_num for item in stored if item.payload is not None] == [7]


def test_second_sync_brings_only_what_is_new(world: World) -> None:
    first = world.note("open", access=PUBLIC)
    b = world.them.nodes["b"]
    assert sync(b, "jane.a.ink").stored > 0
    nothing = sync(b, "jane.a.ink")
    assert (nothing.logs, nothing.received, nothing.stored) == (0, 0, 0)

    world.note("later", access=PUBLIC)
    answer = world.jane.delete(f"/instances/{first}")
    assert answer.status_code == 200, answer.text
    synced = sync(b, "jane.a.ink")
    assert synced.stored == 2
    assert world.payloads("b") == {"open", "later"}
    assert world.them.is_deleted("b", first)


def test_instance_that_becomes_public_comes_with_its_history(world: World) -> None:
    mail = world.note("secret")
    b = world.them.nodes["b"]
    sync(b, "jane.a.ink")
    assert world.them.payloads("b", mail) is None
    answer = world.jane.patch(
        f"/instances/{mail}",
        json={"access": PUBLIC},
        params={"history": "show"},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert answer.status_code == 200, answer.text
    sync(b, "jane.a.ink")
    assert world.them.payloads("b", mail) == 2


def test_of_a_public_instance_that_has_ended_only_the_end_is_offered(world: World) -> None:
    gone = world.note("open", access=PUBLIC)
    world.jane.delete(f"/instances/{gone}")
    sync(world.them.nodes["b"], "jane.a.ink")
    assert world.payloads("b") == set()


def test_end_of_what_was_public_and_then_narrowed_reaches_those_who_took_it(world: World) -> None:
    opened = world.note("open", access=PUBLIC)
    b, c = world.them.nodes["b"], world.them.nodes["c"]
    sync(b, "jane.a.ink")
    sync(c, "carol.b.ink")
    assert world.change(opened, "secret", access={"mode": "listed"}).status_code == 200
    sync(b, "jane.a.ink")
    assert world.payloads("b") == {"open"}  # narrowing recalls nothing, and shows nothing more
    assert world.jane.delete(f"/instances/{opened}").status_code == 200
    sync(b, "jane.a.ink")
    sync(c, "carol.b.ink")
    assert (world.them.is_deleted("b", opened), world.them.is_deleted("c", opened)) == (True, True)
    assert (world.payloads("b"), world.payloads("c")) == ({"open"}, {"open"})


def test_what_one_node_took_another_takes_from_it(world: World) -> None:
    opened = world.note("open", access=PUBLIC)
    world.note("secret")
    sync(world.them.nodes["b"], "jane.a.ink")
    sync(world.them.nodes["c"], "carol.b.ink")
    assert world.payloads("c") == {"open"}
    assert world.them.payloads("c", opened) == 1


def test_delivery_and_replication_meet_without_conflict(world: World) -> None:
    world.them.acquaint(world.jane, world.carol)
    for _ in range(3):
        world.note("secret")
    sent = world.note("secret", recipients=["carol.b.ink"])
    opened = world.note("open", access=PUBLIC)
    wait_for(world.jane, sent, carol_b="delivered")
    wait_for(world.jane, opened, carol_b="delivered")
    b = world.them.nodes["b"]
    synced = sync(b, "jane.a.ink")
    assert synced.refused == {}
    assert (world.them.payloads("b", sent), world.them.payloads("b", opened)) == (1, 1)
    later = world.note("later", recipients=["carol.b.ink"])
    wait_for(world.jane, later, carol_b="delivered")
    assert all(state.invalid_from is None for state in b.node.store.read(read_logs).values())


def test_what_replication_brings_is_forwarded_to_those_whom_it_was_passed_on_to(world: World) -> None:
    world.them.acquaint(world.carol, world.dora)
    b = world.them.nodes["b"]
    opened = world.note("open", access=PUBLIC)
    sync(b, "jane.a.ink")
    world.pass_on(opened)
    assert world.change(opened, "later").status_code == 200
    sync(b, "jane.a.ink")
    until(lambda: world.them.payloads("c", opened) == 2)
    assert world.jane.delete(f"/instances/{opened}").status_code == 200
    sync(b, "jane.a.ink")
    until(lambda: world.them.is_deleted("c", opened))


def test_news_that_replication_brings_before_the_push_are_forwarded_too(world: World) -> None:
    world.them.acquaint(world.carol, world.dora)
    world.them.follow(world.carol, world.jane)
    a, b = world.them.nodes["a"].node, world.them.nodes["b"]
    sync(b, "jane.a.ink")  # whoever asks is looked up
    opened = world.note("open", access=PUBLIC)
    wait_for(world.jane, opened, carol_b="delivered")
    world.pass_on(opened)
    # The push has to wait, so that it is no news when it comes.
    late = QueueBackoff(1, a.clock() + 4_000_000, a.clock(), "late")
    a.database.write(lambda c: put_backoff(c, f"node {load_node_key(b.node).public.hex()}", late))
    assert world.jane.delete(f"/instances/{opened}").status_code == 200
    sync(b, "jane.a.ink")
    assert world.them.is_deleted("b", opened)
    wait_for(world.jane, opened, carol_b="delivered")
    until(lambda: world.them.is_deleted("c", opened))


def test_once_it_is_closed_nothing_but_its_end_is_forwarded(world: World) -> None:
    """By whatever way the word came."""
    world.them.acquaint(world.carol, world.dora)
    b = world.them.nodes["b"]
    opened = world.note("open", access=PUBLIC)
    sync(b, "jane.a.ink")
    world.pass_on(opened)
    assert world.change(opened, "secret", access={"mode": "closed", "to": []}).status_code == 200

    def give(count: int) -> None:
        b.node.store.ingest(world.them.pack("a", opened).entries)
        while catch_up(b.node):
            pass
        assert world.them.payloads("b", opened) == count

    give(2)
    (state,) = b.node.database.read(lambda c: states_of(c, parse_hash(opened)))
    assert (state.state, state.wanted) == ("delivered", state.delivered)
    assert world.them.payloads("c", opened) == 1
    assert world.jane.delete(f"/instances/{opened}").status_code == 200
    give(3)
    until(lambda: world.them.is_deleted("c", opened))
    assert world.payloads("c") == {"open"}


def test_peer_that_cannot_be_reached_is_said_so(world: World) -> None:
    with pytest.raises(FederationError):
        sync(world.them.nodes["b"], "nobody.dead.ink")
    (peer,) = world.them.nodes["b"].node.database.read(list_peers)
    assert peer.synced is None
    assert peer.error is not None
    assert peer.error.startswith("federation.")


def test_schema_of_a_received_instance_is_asked_for(world: World) -> None:
    world.them.acquaint(world.jane, world.carol)
    sent = world.note("secret", recipients=["carol.b.ink"])
    wait_for(world.jane, sent, carol_b="delivered")
    schema = schema_id(world.schema)
    store = world.them.nodes["b"].node.store
    until(lambda: sorted(store.read(payloads_of_schema, schema).payloads) == [1, 2])

    answer = world.jane.post(
        f"/schemas/{world.schema}/versions", json={"fields": [{"mood": {"action": "create", "type": "text"}}]}
    )
    assert answer.status_code == 201, answer.text
    newer = create(world.jane, world.schema, fields={"mood": "well"}, recipients=["carol.b.ink"])["instance"]
    wait_for(world.jane, newer, carol_b="delivered")
    until(lambda: sorted(store.read(payloads_of_schema, schema).payloads) == [1, 2, 3])


def test_version_that_nothing_names_yet_comes_from_its_author_without_a_peer(world: World) -> None:
    b = world.them.nodes["b"].node
    schema = schema_id(world.schema)
    world.them.acquaint(world.jane, world.carol)
    sent = world.note("secret", recipients=["carol.b.ink"])
    wait_for(world.jane, sent, carol_b="delivered")
    until(lambda: sorted(b.store.read(payloads_of_schema, schema).payloads) == [1, 2])
    answer = world.jane.post(
        f"/schemas/{world.schema}/versions", json={"fields": [{"mood": {"action": "create", "type": "text"}}]}
    )
    assert answer.status_code == 201, answer.text

    renew_schemas(b)
    assert sorted(b.store.read(payloads_of_schema, schema).payloads) == [1, 2]  # it is not indexed here
    b.store.write(register_schema, schema)
    renew_schemas(b)
    assert sorted(b.store.read(payloads_of_schema, schema).payloads) == [1, 2, 3]
    assert b.database.read(list_peers) == []


def test_author_who_is_away_keeps_no_other_schema_from_being_renewed(world: World) -> None:
    b = world.them.nodes["b"].node
    sync(world.them.nodes["b"], "jane.a.ink")
    sync(world.them.nodes["b"], "dora.c.ink")
    theirs = schema_id(make_schema(world.dora))
    for schema in (schema_id(world.schema), theirs):
        b.store.write(register_schema, schema)
    world.them.nodes["a"].__exit__()
    renew_schemas(b)
    assert sorted(b.store.read(payloads_of_schema, theirs).payloads) == [1, 2]


def test_schemas_are_renewed_in_turns() -> None:
    schemas = [SchemaId(key(1).public, number) for number in range(1, 6)]
    first = pick_next_schemas(schemas, None, 2)
    second = pick_next_schemas(schemas, first[-1], 2)
    third = pick_next_schemas(schemas, second[-1], 2)
    assert [schema.log_id for schema in first + second + third] == [1, 2, 3, 4, 5, 1]
    assert pick_next_schemas(schemas[:1], third[-1], 2) == schemas[:1]
    assert pick_next_schemas([], None, 2) == []


def test_schema_is_asked_for_where_it_is_used_if_its_author_is_unknown(world: World) -> None:
    log = LogBuilder(key(77), log_id=5)
    log.append(encode_message(SchemaMeta("wild")))
    log.append(encode_message(SchemaMigration((FieldChange("name", "create", "text"),))))
    a = world.them.nodes["a"].node
    a.store.ingest(_items(log))
    world.them.acquaint(world.jane, world.carol)
    wild = f"{key(77).public.hex()}/5"
    sent = create(world.jane, wild, fields={"name": "ink"}, recipients=["carol.b.ink"])["instance"]
    wait_for(world.jane, sent, carol_b="delivered")
    store = world.them.nodes["b"].node.store
    until(lambda: sorted(store.read(payloads_of_schema, schema_id(wild)).payloads) == [1, 2])


def test_fork_that_one_node_knows_of_is_told_to_the_other(world: World) -> None:
    schema = SchemaVersion(*schema_id(world.schema), 2)
    trunk = LogBuilder(key(50), log_id=1)
    trunk.append(encode_message(Create(schema, {"subject": "open"}, Access("public"))))
    branch = LogBuilder(key(50), log_id=1)
    branch.append(encode_message(Create(schema, {"subject": "open"}, Access("public"))))
    trunk.append(encode_message(Update(schema, 1, {"subject": "one"})))
    branch.append(encode_message(Update(schema, 1, {"subject": "another"})))
    a, b = world.them.nodes["a"].node, world.them.nodes["b"].node
    a.store.ingest(_items(trunk))
    b.store.ingest(_items(trunk))
    a.store.ingest(_items(branch))
    sync(b, "jane.a.ink")
    state = b.store.read(find_log, key(50).public, 1)
    assert state is not None
    assert state.standing.forked_at == 2


def test_log_0_arrives_in_all_branches_and_the_same_document_is_in_effect(world: World) -> None:
    here, there = world.them.nodes["a"].node, world.them.nodes["b"].node
    world.note("open", access=PUBLIC)
    sync(there, "jane.a.ink")
    secret = here.secret_key(world.jane.key)
    held_log = here.store.read(read_entries, world.jane.key, 0)
    trunk = LogBuilder(secret, 0)
    trunk.entries, trunk.payloads = [item.entry for item in held_log], [item.payload or b"" for item in held_log]
    named = IdentityDocument("jane.a.ink", "https://jane.a.ink", controller=key(9).public)
    trunk.append(encode_message(named))
    branch = copy_branch(trunk, len(trunk.entries))
    trunk.append(encode_message(replace(named, name="first host")))
    for name in ("second host", "and again"):
        branch.append(encode_message(replace(named, name=name)))
    here.store.ingest(_items(trunk))
    there.store.ingest(_items(trunk))
    here.store.ingest(_items(branch))
    for node in (here, there):
        node.database.write(lambda connection: apply_identity_log(connection, world.jane.key))
    assert document_of(there, world.jane).name == "first host"
    sync(there, "jane.a.ink")
    kept = [
        {item.hash: item.payload for item in node.store.read(read_entries, world.jane.key, 0)} for node in (here, there)
    ]
    assert kept[0] == kept[1]
    assert document_of(here, world.jane).name == document_of(there, world.jane).name == "and again"


def document_of(node: Node, person: Person) -> IdentityDocument:
    return node.database.read(lambda connection: read_newest_document(connection, PublicKey(person.key)))[1]


def test_large_log_comes_in_several_answers_and_goes_on_after_an_interruption(world: World) -> None:
    schema = SchemaVersion(*schema_id(world.schema), 2)
    log = LogBuilder(key(51), log_id=1)
    for number in range(6_000):
        access = Access("public") if number % 7 else None
        log.append(encode_message(Create(schema, {"stars": number}, access)))
    a, b = world.them.nodes["a"].node, world.them.nodes["b"].node
    a.store.ingest(_items(log))
    b.store.ingest(_items(log)[:200])  # a part of it has come before, by whatever way

    def places() -> set[int]:
        stored = b.store.read(read_entries, key(51).public, 1)
        assert all(item.refusal is None for item in stored)
        return {item.entry.seq_num for item in stored if item.payload is not None}

    with pytest.raises(PeerUnreachable):
        sync(b, "jane.a.ink", answers=1)
    before = places()
    assert 2_000 < len(before) < 4_000
    synced = sync(b, "jane.a.ink")
    assert synced.refused == {}
    assert places() == {n for n in range(1, 6_001) if (n - 1) % 7 or n <= 200}
    assert synced.stored < 6_000 - len(before)  # what was written counts: only the rest is asked for


def test_postgresql_takes_from_sqlite_and_gives_back(tmp_path: Path, postgres: PostgresServer) -> None:
    with federation(tmp_path, "abc", {"b": postgres.create_database("replication_b")}) as them:
        jane, carol = them.person("jane", "a"), them.person("carol", "b")
        them.person("dora", "c")
        world = World(them, jane, carol, carol, make_schema(jane))
        opened = world.note("open", access=PUBLIC)
        world.note("secret")
        sync(them.nodes["b"], "jane.a.ink")
        sync(them.nodes["c"], "carol.b.ink")
        assert (them.payloads("b", opened), them.payloads("c", opened)) == (1, 1)
        world.jane.delete(f"/instances/{opened}")
        sync(them.nodes["b"], "jane.a.ink")
        sync(them.nodes["c"], "carol.b.ink")
        assert (them.is_deleted("b", opened), them.is_deleted("c", opened)) == (True, True)

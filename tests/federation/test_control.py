"""Identities with words between nodes: found, proved, written to, and taken back from a thief of the controller."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inkgrove.client import Client
from inkgrove.core import NextEntry, SecretKey, parse_hash, parse_words, sign_next
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers import Discovery, HttpTransport
from inkgrove.federation.peers.well_known import (
    ProofEntry,
    WellKnown,
    parse_well_known,
    prove_identity,
    read_identity_log,
)
from inkgrove.messages import IdentityDocument, IdentityState, KeyState, encode_message
from inkgrove.node.identity import (
    apply_identity_log,
    find_control,
    find_owner,
    hash_password,
    read_control,
    read_next_of_log0,
)
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.logs import find_entry, read_entries
from inkgrove.store.node import set_password
from tests.support.federated import Federation, federation, wait_for
from tests.support.nodes import PASSWORD, Person
from tests.support.peers import run
from tests.support.publishing import create, make_schema


@pytest.fixture
def them(tmp_path: Path) -> Iterator[Federation]:
    with federation(tmp_path, "ab") as nodes:
        yield nodes


def look_up(node: Node, fqdn: str) -> RemoteIdentity:
    async def work() -> RemoteIdentity:
        async with HttpTransport(node.settings) as transport:
            return await Discovery(node, transport).find(fqdn, fetched_since=node.clock())

    return run(work())


def served(them: Federation, person: Person) -> WellKnown:
    answer = them.nodes["a"].anybody.get("/.well-known/inkgrove", headers={"Host": person.fqdn})
    assert answer.json()["inkgrove"] == 2
    return parse_well_known(answer.content)


def test_document_of_a_controller_is_found_and_proved(them: Federation) -> None:
    jane = them.person("jane", "a", has_words=True)
    for name in ("Jane", "Jane D.", "Jane Doe"):
        assert jane.patch("/me", json={"name": name}).status_code == 200
    there = them.nodes["b"].node
    known = look_up(there, "jane.a.ink")
    assert (known.id, known.key) == (jane.id, jane.key)
    control = there.database.read(lambda connection: find_control(connection, jane.key))
    assert control is not None
    assert control.document.name == "Jane Doe"
    assert set(control.keys.values()) == {KeyState.COUNTS}


def test_what_a_controller_signs_is_delivered_as_its_owners(them: Federation) -> None:
    jane, john = them.person("jane", "a", has_words=True), them.person("john", "b")
    them.acquaint(jane, john)
    mail = create(jane, make_schema(jane), fields={"subject": "Hello"}, recipients=["john.b.ink"])["instance"]
    wait_for(jane, mail, john_b="delivered")
    there = them.nodes["b"].node
    held = there.store.read(find_entry, parse_hash(mail))
    assert held is not None
    assert held.entry.author != jane.key
    assert there.database.read(lambda connection: find_owner(connection, held.entry.author)) == jane.id


def test_words_overrule_a_thief_of_the_controller_everywhere(them: Federation) -> None:
    jane = them.person("jane", "a", has_words=True)
    jane.patch("/me", json={"name": "by the thief"})
    here, there = them.nodes["a"].node, them.nodes["b"].node
    look_up(there, "jane.a.ink")
    first = SecretKey.from_seed(parse_words(jane.words or ""))
    before = here.database.read(lambda connection: read_control(connection, jane.key)).document
    mine = replace(before, name="by the words", under=None, controller=None, keys=())
    following = here.database.read(lambda connection: read_next_of_log0(connection, jane.key))
    entry = sign_next(first, encode_message(mine), following)
    here.store.ingest([(entry.encoded, encode_message(mine))])
    here.database.write(lambda connection: apply_identity_log(connection, jane.key))
    look_up(there, "jane.a.ink")
    for node in (here, there):
        control = node.database.read(lambda connection: read_control(connection, jane.key))
        assert (control.document.name, len(control.path), list(control.keys)) == ("by the words", 1, [jane.key])


def test_document_without_its_speakers_or_with_others_is_not_believed(them: Federation) -> None:
    jane, john = them.person("jane", "a", has_words=True), them.person("john", "a", has_words=True)
    for person in (jane, john):
        person.patch("/me", json={"name": "somebody", "fqdn": person.fqdn})
    offered = served(them, jane)
    log = read_identity_log(offered.document)
    assert prove_identity(offered, log, "jane.a.ink").document.name == "somebody"
    ((first, *_),) = offered.speakers
    for wrong in (
        replace(offered, speakers=served(them, john).speakers),
        replace(offered, speakers=((),)),
        replace(offered, speakers=((first,),)),
        replace(offered, speakers=(offered.speakers[0][1:],)),
        replace(offered, speakers=(offered.log,)),
    ):
        with pytest.raises(FederationError) as caught:
            prove_identity(wrong, log, "jane.a.ink")
        assert caught.value.code == "federation.unproved-document"
    # Without them the document of the first key is in effect: an older one, and true.
    older = prove_identity(replace(offered, speakers=()), log, "jane.a.ink")
    assert (older.document.name, isinstance(older.document, IdentityDocument)) == (None, True)


def use_words(node: Node, jane: Person, first: SecretKey, following: NextEntry, **changes: Any) -> ProofEntry:
    """Sign a document with the words at a place of log 0; the node does not take it."""
    before = node.database.read(lambda connection: read_control(connection, jane.key)).document
    payload = encode_message(replace(before, under=None, **changes))
    return ProofEntry(sign_next(first, payload, following).encoded, payload)


@pytest.mark.parametrize("has_had_words", [True, False])
def test_words_used_on_two_hosts_do_not_end_an_identity_for_others(them: Federation, has_had_words: bool) -> None:
    jane, john = them.person("jane", "a", has_words=has_had_words), them.person("john", "b")
    here, there = them.nodes["a"].node, them.nodes["b"].node
    if has_had_words:
        first = SecretKey.from_seed(parse_words(jane.words or ""))
    else:  # entry 1 of log 0 names no controller; entry 2, by which she took words, does
        assert jane.patch("/me", json={"name": "Jane"}).status_code == 200
        first = take_words(them, jane)
    following = here.database.read(lambda connection: read_next_of_log0(connection, jane.key))
    # Here she used her words twice, so that this branch is the longer one; elsewhere once.
    elsewhere = use_words(here, jane, first, following, name="elsewhere", endpoint="https://elsewhere.ink")
    for name in ("here", "here again"):
        at = here.database.read(lambda connection: read_next_of_log0(connection, jane.key))
        mine = use_words(here, jane, first, at, name=name)
        here.store.ingest([(mine.encoded, mine.payload)])
        here.database.write(lambda connection: apply_identity_log(connection, jane.key))
    # John's node has met her by the other host: it holds what that one served, a pool with two payloads.
    pool = [
        (item.entry.encoded, item.payload if item.entry.seq_num == 1 else None)
        for item in here.store.read(read_entries, jane.key, 0, 1, following.seq_num - 1)
    ]
    there.store.ingest([*pool, (elsewhere.encoded, elsewhere.payload)])
    there.database.write(lambda connection: apply_identity_log(connection, jane.key))
    known = look_up(there, "jane.a.ink")
    assert known.endpoint == here.database.read(lambda c: read_control(c, jane.key)).document.endpoint
    for node in (here, there):
        control = node.database.read(lambda connection: read_control(connection, jane.key))
        assert control.document.name == "here again"
    assert there.database.read(lambda c: read_control(c, jane.key)).state is IdentityState.WORDS_USED_TWICE
    # From memory, too; and she is written to as anybody else.
    assert run_find(there, "jane.a.ink").id == jane.id
    them.acquaint(jane, john)
    mail = create(john, make_schema(john), fields={"subject": "Hello"}, recipients=["jane.a.ink"])["instance"]
    wait_for(john, mail, jane_a="delivered")
    # Her own node hears of the other branch as well, and goes on.
    here.store.ingest([(elsewhere.encoded, elsewhere.payload)])
    here.database.write(lambda connection: apply_identity_log(connection, jane.key, is_ours=True))
    assert jane.patch("/me", json={"name": "Jane Doe"}).json()["state"] == "identity.words-used-twice"
    look_up(there, "jane.a.ink")
    control = there.database.read(lambda connection: read_control(connection, jane.key))
    assert control.document.name == "Jane Doe"
    mail = create(jane, make_schema(jane), fields={"subject": "Answer"}, recipients=["john.b.ink"])["instance"]
    wait_for(jane, mail, john_b="delivered")


def run_find(node: Node, fqdn: str) -> RemoteIdentity:
    async def work() -> RemoteIdentity:
        async with HttpTransport(node.settings) as transport:
            return await Discovery(node, transport).find(fqdn)

    return run(work())


def take_words(them: Federation, jane: Person) -> SecretKey:
    """Let somebody who signed up with a password alone take words."""
    node = them.nodes["a"].node
    node.database.write(lambda c: set_password(c, jane.id, hash_password(PASSWORD)))
    with Client.sign_in(them.nodes["a"].url, jane.fqdn, PASSWORD) as client:
        words = client.show_words(PASSWORD)
        client.confirm_words(PASSWORD, words)
    return SecretKey.from_seed(parse_words(words))

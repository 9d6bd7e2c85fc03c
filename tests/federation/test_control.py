"""Identities with words between nodes: found, proved, written to, and taken back from a thief of the controller."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inkgrove.core import SecretKey, parse_hash, parse_words, sign_next
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers import Discovery, HttpTransport
from inkgrove.federation.peers.well_known import WellKnown, parse_well_known, prove_identity, read_identity_log
from inkgrove.messages import IdentityDocument, KeyState, encode_message
from inkgrove.node.identity import apply_identity_log, find_control, find_owner, read_control, read_next_of_log0
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.logs import find_entry
from tests.support.federated import Federation, federation, wait_for
from tests.support.nodes import Person
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

"""Asking friends for what they hold of one's logs: who gets it, and what a friend that lies can do."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import Hash, SecretKey, identity_of, parse_hash, parse_words
from inkgrove.federation.peers import PeerRequest, sign_request
from inkgrove.federation.peers.senders import MANDATE_HEADER, MANDATE_SECONDS
from inkgrove.federation.replication import (
    OWN_ENTRIES_PATH,
    OWN_HEIGHTS_PATH,
    OWN_RELATIONS_PATH,
    OWN_SHARES_PATH,
)
from inkgrove.messages import (
    REPLICATION_MEDIA_TYPE,
    AskHeights,
    ToldRelation,
    ToldShare,
    decode_heights,
    decode_told_relations,
    decode_told_shares,
    encode_ask_heights,
    mandate_claim,
    share_proof,
)
from inkgrove.node.moving import begin_arrival, check_mandate, finish_rows, put_told_shares, render_told, set_state
from inkgrove.node.runtime import Node
from inkgrove.store.logs import by_log, find_entry, ingest_batch, prepare_items, read_entries
from inkgrove.store.node import StoredArrival, find_relation_state, keys_of, put_key, shares_of
from tests.support.errors import raises
from tests.support.federated import Federation, federation, until
from tests.support.logs import key
from tests.support.nodes import Person
from tests.support.publishing import create, make_schema


@dataclass
class Friends:
    """Jane on a, with words; John on b, to whom she has sent a letter, and who follows her; Judy on b knows nobody."""

    them: Federation
    jane: Person
    john: Person
    judy: Person
    letter: str
    diary: str

    @property
    def first(self) -> SecretKey:
        assert self.jane.words is not None
        return SecretKey.from_seed(parse_words(self.jane.words))

    def mandate(self, to: SecretKey, *, seconds: int = 3600, by: SecretKey | None = None) -> str:
        signer, until_ = by or self.first, self.them.nodes["b"].node.clock() // 1_000_000 + seconds
        signature = signer.sign(mandate_claim(identity_of(self.first.public), to.public, until_))
        return f"{self.first.public.hex()} {until_} {signature.hex()}"

    def ask(self, path: str, signer: SecretKey, mandate: str | None, since: str | None = None) -> Any:
        node = self.them.nodes["b"]
        headers: tuple[tuple[str, str], ...] = (("Content-Type", REPLICATION_MEDIA_TYPE),)
        headers += () if mandate is None else ((MANDATE_HEADER, mandate),)
        body = encode_ask_heights(AskHeights(since))
        request = PeerRequest("POST", f"https://{self.john.fqdn}{path}", headers, body)
        nonce, now = node.node.random_bytes(16).hex(), node.node.clock()
        signed = sign_request(request, signer, sender=signer.public.hex(), now=now, nonce=nonce)
        return self.john.post(path, content=body, headers={**dict(signed.headers), "Host": self.john.fqdn})


@pytest.fixture
def friends(tmp_path: Path) -> Iterator[Friends]:
    with federation(tmp_path, "ab") as them:
        jane = them.person("jane", "a", has_words=True)
        john, judy = them.person("john", "b"), them.person("judy", "b")
        them.acquaint(jane, john)
        schema = make_schema(jane)
        letter = create(jane, schema, fields={"subject": "To John"}, recipients=[john.fqdn])["instance"]
        diary = create(jane, schema, fields={"subject": "Mine"}, access={"mode": "self"})["instance"]
        until(lambda: them.payloads("b", letter) == 1)
        yield Friends(them, jane, john, judy, letter, diary)


def test_mandate_opens_the_logs_of_all_keys(friends: Friends) -> None:
    controller = key(77)
    answer = friends.ask(OWN_HEIGHTS_PATH, controller, friends.mandate(controller))
    assert answer.status_code == 200, answer.text
    with_mandate = {(log.author, log.log_id) for log in decode_heights(answer.content).logs}
    assert (friends.first.public, 0) in with_mandate
    assert any(author != friends.first.public and log_id > 0 for author, log_id in with_mandate)
    # The first key itself gets the same; a key without a mandate gets its own logs, which are none.
    own = decode_heights(friends.ask(OWN_HEIGHTS_PATH, friends.first, None).content).logs
    assert {(log.author, log.log_id) for log in own} == with_mandate
    assert decode_heights(friends.ask(OWN_HEIGHTS_PATH, controller, None).content).logs == []
    told = decode_told_relations(friends.ask(OWN_RELATIONS_PATH, controller, friends.mandate(controller)).content)
    assert {(item.fqdn, item.side, item.state) for item in told.relations} == {
        (friends.john.fqdn, "followers", "accepted"),
        (friends.john.fqdn, "following", "accepted"),
    }
    shares = decode_told_shares(friends.ask(OWN_SHARES_PATH, controller, friends.mandate(controller)).content)
    entry = friends.them.nodes["a"].node.store.read(find_entry, parse_hash(friends.letter))
    assert entry is not None
    assert entry.payload is not None
    (share,) = shares.shares
    assert (share.instance, share.identity) == (entry.hash, friends.john.id)
    assert share.proof == share_proof(entry.payload, controller.public)


def test_mandate_that_does_not_hold_opens_nothing(friends: Friends) -> None:
    controller, thief = key(77), key(78)
    wrong = {
        "of another key": (thief, friends.mandate(controller)),
        "not by the first key": (thief, friends.mandate(thief, by=thief)),
        "over": (controller, friends.mandate(controller, seconds=-1)),
        "too long": (controller, friends.mandate(controller, seconds=MANDATE_SECONDS + 100)),
        "of another form": (controller, "please"),
    }
    for what, (signer, mandate) in wrong.items():
        for path in (OWN_HEIGHTS_PATH, OWN_ENTRIES_PATH, OWN_RELATIONS_PATH, OWN_SHARES_PATH):
            answer = friends.ask(path, signer, mandate)
            assert (answer.status_code, answer.json()["code"]) == (403, "federation.sender-unproved"), (what, path)


def test_position_of_a_page_is_one_that_was_given_out(friends: Friends) -> None:
    controller = key(77)
    for path in (OWN_RELATIONS_PATH, OWN_SHARES_PATH):
        for since in ("", "followers", "nobody " + "00" * 32, "1", "1 -1", "followers zz", "9" * 200):
            answer = friends.ask(path, controller, friends.mandate(controller), since)
            assert (answer.status_code, answer.json()["code"]) == (422, "parcel.bad-replication"), (path, since)
    nothing = friends.ask(OWN_SHARES_PATH, controller, friends.mandate(controller), "9" * 30 + " " + "9" * 30)
    assert decode_told_shares(nothing.content).shares == []


def arrive(node: Node, friends: Friends, facts: dict[str, Any]) -> StoredArrival:
    controller = SecretKey.from_seed(node.random_bytes(32))
    arrival, _, _ = begin_arrival(
        node,
        friends.first.public,
        controller,
        way="friends",
        fqdn="jane.b.ink",
        password=None,
        request={"friends": []},
        replaces=True,
    )
    noted = set_state(node, arrival, "fetching", facts=facts)
    assert noted is not None
    return noted


def test_friend_that_lies_gives_nobody_a_sight(friends: Friends) -> None:
    """A node says that its people were sent what they never had, and that strangers follow: neither counts."""
    node, old = friends.them.nodes["b"].node, friends.them.nodes["a"].node
    relation = ToldRelation(friends.judy.id, friends.judy.fqdn, "followers", "accepted", 1)
    stranger, other = identity_of(key(55).public), identity_of(key(56).public)
    told = [
        render_told(relation, is_friend=False),
        render_told(ToldRelation(other, "y.c.ink", "followers", "accepted", 1), is_friend=False),
        render_told(ToldRelation(stranger, "x.c.ink", "followers", "accepted", 1), is_friend=True),
    ]
    arrival = arrive(node, friends, {"relations": told})
    letter, diary = parse_hash(friends.letter), parse_hash(friends.diary)
    # The diary has come too, from somebody else; the liar only knows its hash.
    for author in old.database.read(lambda c: keys_of(c, friends.jane.id)):
        node.database.write(lambda c, author=author: put_key(c, author, friends.jane.id))  # type: ignore[misc]
        for log_id in (1, 2):
            found = old.store.read(read_entries, author, log_id)
            prepared, _ = prepare_items((item.entry.encoded, item.payload) for item in found)
            node.database.write(lambda c, some=prepared: ingest_batch(c, by_log(some), must_be_next=False))  # type: ignore[misc]

    def proof(instance: Hash) -> bytes:
        entry = old.store.read(find_entry, instance)
        assert entry is not None
        assert entry.payload is not None
        return share_proof(entry.payload, arrival.controller)

    shares = [
        ToldShare(diary, stranger, bytes(32)),
        ToldShare(diary, stranger, proof(letter)),
        ToldShare(letter, stranger, proof(letter)),
        ToldShare(letter, friends.judy.id, proof(letter)),  # lives here: this node knows better
        ToldShare(parse_hash("0040" + "00" * 64), stranger, bytes(32)),
    ]
    put_told_shares(node, arrival, shares)
    assert stranger not in node.database.read(lambda c: shares_of(c, diary))
    assert stranger in node.database.read(lambda c: shares_of(c, letter))
    assert friends.judy.id not in node.database.read(lambda c: shares_of(c, letter))
    people = finish_rows(node, arrival)
    assert people == [(friends.judy.id, friends.judy.fqdn), (other, "y.c.ink"), (stranger, "x.c.ink")]

    def state(follower: Any) -> Any:
        return node.database.read(lambda c: find_relation_state(c, follower, friends.jane.id))

    assert state(other) == "requested", "whom Jane has not named asks again"
    assert state(friends.judy.id) is None, "she lives here, and has not asked"
    assert state(stranger) == "accepted", "of a named friend their node's word counts"
    assert json.loads(arrival.facts)["relations"] == told


def test_mandate_is_looked_at_before_anybody_is_asked(friends: Friends) -> None:
    """A clock that is wrong by more than a mandate lasts is told of at once."""
    node, controller = friends.them.nodes["b"].node, key(77)
    first, now = friends.first, node.clock() // 1_000_000
    for until_, signer in ((now - 1, first), (now + 31 * 86_400, first), (now + 60, key(78))):
        signature = signer.sign(mandate_claim(identity_of(first.public), controller.public, until_))
        with raises("identity.unproved"):
            check_mandate(node, first.public, controller.public, until_, signature)
    signature = first.sign(mandate_claim(identity_of(first.public), controller.public, now + 60))
    given = check_mandate(node, first.public, controller.public, now + 60, signature)
    assert friends.ask(OWN_HEIGHTS_PATH, controller, given).status_code == 200

"""Finding identities on other nodes: both sides must say so, and nothing is believed for ever."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection, insert

from inkgrove.core import IdentityId, hash_entry, hash_yamf, sign_entry
from inkgrove.core.errors import KeyRevoked
from inkgrove.federation.errors import (
    BadAnswer,
    ForkedIdentity,
    NoIdentityThere,
    PeerUnreachable,
    WrongIdentity,
    WrongName,
)
from inkgrove.federation.peers import (
    MAX_WELL_KNOWN_BYTES,
    Discovery,
    HttpTransport,
    ProofEntry,
    WellKnown,
    parse_well_known,
    render_well_known,
    serves_authority,
    well_known_of,
)
from inkgrove.messages import FurtherKey, RevokedLog, SchemaId, cbor, encode_message
from inkgrove.node.errors import UnknownIdentity
from inkgrove.node.identity import append_document, change_identity, check_author, create_identity, read_newest_document
from inkgrove.node.runtime import Node, load_node_key, replace_node_key
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import request_box
from inkgrove.store.federation import (
    RemoteIdentity,
    add_peer,
    find_remote_identity,
    forget_strangers,
    queue_deliveries,
    queue_move,
    want_schemas,
)
from inkgrove.store.logs import find_fork_proof, find_log, read_entries
from inkgrove.store.node import add_shares, keys_of, put_relation_state
from tests.federation.conftest import Clock
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key
from tests.support.peers import Elsewhere, VirtualNetwork, answering, further_key, run, serving

Result = TypeVar("Result")
JOHN = "john.haiku.ink"
HOUR = 3600


@pytest.fixture
def john(network: VirtualNetwork) -> Elsewhere:
    """An identity that its node serves as it should."""
    elsewhere = Elsewhere(JOHN)
    network.pages[JOHN] = elsewhere.page()
    return elsewhere


def find(node: Node, network: VirtualNetwork, fqdn: str = JOHN, **options: Any) -> RemoteIdentity:
    return run(_find(node, network, fqdn, **options))


async def _find(node: Node, network: VirtualNetwork, fqdn: str, **options: Any) -> RemoteIdentity:
    return await Discovery(node, network).find(fqdn, **options)


def find_by_id(node: Node, network: VirtualNetwork, identity: IdentityId) -> RemoteIdentity:
    async def work() -> RemoteIdentity:
        return await Discovery(node, network).find_by_id(identity)

    return run(work())


# What is found


def test_identity_is_found_with_its_endpoint_and_the_key_of_its_node(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    author = john.log.secret.public
    now = clock.now
    expected = RemoteIdentity(
        john.id, JOHN, "https://john.haiku.ink", author, 1, john.node_key.public, now, now + HOUR * 1_000_000
    )
    assert find(node, network) == expected
    assert find_by_id(node, network, john.id) == expected
    assert network.asked == [JOHN], "the second time it is known"
    assert node.database.read(lambda connection: keys_of(connection, john.id)) == [author]
    (stored,) = node.store.read(read_entries, author, 0)
    assert stored.payload == john.log.payloads[0]


def test_newest_of_many_revisions_is_proved_without_the_payloads_between(
    node: Node, network: VirtualNetwork, john: Elsewhere
) -> None:
    for number in range(199):
        john.publish(name=f"John {number}")
    page = john.page()
    assert len(json.loads(page)["log"]) < 16
    network.pages[JOHN] = page
    assert find(node, network).document_seq == 200
    held = node.store.read(read_entries, john.log.secret.public, 0)
    assert [stored.entry.seq_num for stored in held if stored.payload is not None] == [1, 200]


def test_hosted_identity_is_found_without_asking_anybody(node: Node, network: VirtualNetwork) -> None:
    jane = create_identity(node, "jane.haiku.ink", None)
    found = find(node, network, "Jane.haiku.ink.")
    assert (found.id, found.key, found.endpoint) == (jane.id, jane.key, "https://jane.haiku.ink")
    assert found.node_key == load_node_key(node).public
    assert find_by_id(node, network, jane.id) == found
    assert network.asked == []


@pytest.mark.parametrize("fqdn", ["", "john", "127.0.0.1", "john.haiku.ink:80", "john.haiku.ink/x"])
def test_only_names_are_looked_up(node: Node, network: VirtualNetwork, fqdn: str) -> None:
    with raises("identity.bad-name"):
        find(node, network, fqdn)
    assert network.asked == []


def test_id_without_a_known_name_is_not_found(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    with pytest.raises(NoIdentityThere):
        find_by_id(node, network, john.id)


# What is not believed


def refuse(node: Node, network: VirtualNetwork, page: bytes, reason: str) -> None:
    network.pages[JOHN] = page
    with raises(reason):
        find(node, network)


def test_id_must_be_that_of_the_signing_key(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    refuse(node, network, john.page(id=Elsewhere(JOHN, 2).id), "federation.wrong-identity")


def test_document_of_somebody_else_is_refused(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    refuse(node, network, john.page(log=Elsewhere(JOHN, 2).well_known().log), "federation.wrong-identity")


def test_document_must_name_the_fqdn_it_was_found_under(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    refuse(node, network, Elsewhere("alice.haiku.ink").page(), "federation.wrong-name")
    refuse(node, network, Elsewhere("alice.haiku.ink").page(fqdn=JOHN), "federation.wrong-name")
    refuse(node, network, john.page(fqdn="alice.haiku.ink"), "federation.wrong-name")


def test_endpoint_must_be_the_one_of_the_signed_document(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    refuse(node, network, john.page(endpoint="https://evil.ink"), "federation.wrong-endpoint")


def test_nobody_poses_as_living_on_the_node_of_somebody_else(
    node: Node, network: VirtualNetwork, john: Elsewhere
) -> None:
    # Mail for both would go to one of them in one request: to whom mallory's signed document says.
    mallory = Elsewhere("mallory.haiku.ink", 2)
    for changes in (
        {"node_key": john.node_key.public},
        {"node_key": john.node_key.public, "proof": john.well_known().proof},
    ):
        network.pages["mallory.haiku.ink"] = mallory.page(**changes)
        with raises("federation.unproved-node"):
            run(Discovery(node, network).find("mallory.haiku.ink"))
    network.pages["mallory.haiku.ink"] = mallory.page()
    assert run(Discovery(node, network).find("mallory.haiku.ink")).node_key == mallory.node_key.public


def test_node_vouches_for_no_endpoint_but_its_own(node: Node) -> None:
    john = create_identity(node, JOHN, None)
    log = LogBuilder(node.secret_key(john.key), log_id=0)
    log.append(encode_message(john.document))
    log.append(encode_message(replace(john.document, endpoint="https://mallory.ink")))
    node.store.ingest([(log.entry(2).encoded, log.payloads[1])])
    with pytest.raises(UnknownIdentity):
        well_known_of(node, JOHN)


def test_name_in_a_document_that_nobody_signed_is_refused(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    (signed,) = john.well_known().log
    forged = encode_message(john.document(name="Evil"))
    refuse(node, network, john.page(log=(ProofEntry(signed.encoded, forged),)), "federation.unproved-document")
    tampered = signed.encoded[:-1] + bytes([signed.encoded[-1] ^ 1])
    refuse(node, network, john.page(log=(ProofEntry(tampered, signed.payload),)), "federation.unproved-document")
    refuse(node, network, john.page(log=(ProofEntry(signed.encoded, None),)), "federation.unproved-document")
    refuse(node, network, john.page(log=()), "federation.unproved-document")
    assert node.store.heights() == {}


def test_entries_must_be_of_log_0_of_one_key(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    other = LogBuilder(john.log.secret, log_id=1)
    other.append(john.log.payloads[0])
    offered = ProofEntry(other.entry(1).encoded, other.payloads[0])
    refuse(node, network, john.page(log=(offered,)), "federation.unproved-document")
    refuse(node, network, john.page(log=(*john.well_known().log, offered)), "federation.unproved-document")
    refuse(
        node,
        network,
        john.page(log=(*john.well_known().log, *Elsewhere(JOHN, 2).well_known().log)),
        "federation.unproved-document",
    )


def test_newest_document_needs_a_path_to_the_first_entry(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    for _ in range(9):
        john.publish()
    whole = john.well_known().log
    for missing in range(len(whole) - 1):
        refuse(node, network, john.page(log=whole[:missing] + whole[missing + 1 :]), "federation.unproved-document")


def test_log_without_a_document_is_refused(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    empty = LogBuilder(key(1), log_id=0)
    empty.append(b"no message")
    refuse(
        node,
        network,
        john.page(log=(ProofEntry(empty.entry(1).encoded, b"no message"),)),
        "federation.unproved-document",
    )


def test_further_key_of_somebody_is_the_first_of_none(node: Node, network: VirtualNetwork) -> None:
    secret, entry = further_key(3, Elsewhere(JOHN).id)
    log = LogBuilder(secret, log_id=0)
    log.append(entry.payload)
    claimed = Elsewhere(JOHN, 3)
    claimed.log = log
    claimed.publish()
    refuse(node, network, claimed.page(), "federation.unproved-document")


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{}",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"inkgrove": ' + b"9" * 5000 + b"}",
        b'{"inkgrove": 2}',
        b"<html>nothing here</html>",
    ],
    ids=range(10),
)
def test_rubbish_in_place_of_a_document_is_refused(node: Node, network: VirtualNetwork, page: bytes) -> None:
    refuse(node, network, page, "federation.bad-answer")


def test_every_part_of_a_document_is_needed_and_checked(john: Elsewhere) -> None:
    honest = render_well_known(john.well_known())
    assert parse_well_known(json.dumps(honest | {"later": 1}).encode()) == john.well_known()
    bad: list[dict[str, Any]] = [{name: value for name, value in honest.items() if name != left} for left in honest]
    bad += [honest | {name: value} for name in honest for value in (None, 7, "x", [1], {"a": 1})]
    bad += [honest | {"log": honest["log"] * 257}, honest | {"id": honest["id"][2:]}, honest | {"fqdn": "127.0.0.1"}]
    bad += [honest | {"log": [{"entry": "!!"}]}, honest | {"log": [{"entry": "AA==", "payload": 1}]}]
    for content in bad:
        with pytest.raises(BadAnswer):
            parse_well_known(json.dumps(content).encode())
    twice = json.dumps(honest).replace('"fqdn"', '"id": "00", "fqdn"').encode()
    with pytest.raises(BadAnswer):
        parse_well_known(twice)


# Changes


def test_change_of_endpoint_and_node_key_is_picked_up_after_the_expiry(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    find(node, network)
    john.publish(endpoint="https://new.ink")
    john.node_key = key(77)
    network.pages[JOHN] = john.page(endpoint="https://new.ink")
    clock.go_on(HOUR - 1)
    assert find(node, network).endpoint == "https://john.haiku.ink"
    clock.go_on(1)
    found = find(node, network)
    assert (found.endpoint, found.document_seq, found.node_key) == ("https://new.ink", 2, key(77).public)
    assert find(node, network) == found
    assert network.asked == [JOHN, JOHN]


def test_who_needs_to_know_can_ask_before_the_expiry(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    first = find(node, network)
    clock.go_on(60)
    assert find(node, network, fetched_since=first.fetched) == first
    assert find(node, network, fetched_since=clock.now).fetched == clock.now


def test_older_revision_never_replaces_a_newer_one(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    john.publish(endpoint="https://new.ink")
    network.pages[JOHN] = john.page(endpoint="https://new.ink")
    find(node, network)
    clock.go_on(HOUR)
    network.pages[JOHN] = john.page(height=1)
    found = find(node, network)
    assert (found.endpoint, found.document_seq) == ("https://new.ink", 2)


def test_old_name_cannot_take_an_identity_back(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    find(node, network)
    old_page = john.page()
    john.fqdn = "john.new.ink"
    john.publish()
    network.pages["john.new.ink"] = john.page()
    assert find(node, network, "john.new.ink").document_seq == 2
    network.pages[JOHN] = old_page
    clock.go_on(HOUR)
    with pytest.raises(WrongName, match="moved to john"):
        find(node, network)
    assert find_by_id(node, network, john.id).fqdn == "john.new.ink"


def test_identity_that_moved_is_followed_by_its_id(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    find(node, network)
    john.fqdn = "john.new.ink"
    john.publish()
    network.pages[JOHN] = network.pages["john.new.ink"] = john.page()
    clock.go_on(HOUR)
    found = find_by_id(node, network, john.id)
    assert (found.id, found.fqdn) == (john.id, "john.new.ink")


def test_name_can_pass_to_another_identity(node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock) -> None:
    find(node, network)
    heir = Elsewhere(JOHN, 2)
    network.pages[JOHN] = heir.page()
    clock.go_on(HOUR)
    with pytest.raises(WrongIdentity):
        find_by_id(node, network, john.id)
    assert find(node, network).id == heir.id
    with pytest.raises(WrongIdentity):
        find_by_id(node, network, john.id)


# Forks


def test_fork_within_a_document_is_refused_and_kept_as_proof(
    node: Node, network: VirtualNetwork, john: Elsewhere
) -> None:
    find(node, network)
    other = Elsewhere(JOHN)
    other.publish(name="Other")
    john.publish(name="John")
    both = (*john.well_known().log, other.well_known().log[-1])
    network.pages[JOHN] = john.page(log=both)
    with pytest.raises(ForkedIdentity):
        find(node, network, fetched_since=node.clock() + 1)
    proof = node.store.read(find_fork_proof, john.log.secret.public, 0)
    assert proof is not None
    assert proof.seq_num == 2
    with pytest.raises(NoIdentityThere):
        find_by_id(node, network, john.id)


def test_fork_between_two_visits_makes_the_identity_invalid_for_good(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    john.publish(name="John")
    network.pages[JOHN] = john.page()
    find(node, network)
    other = Elsewhere(JOHN)
    other.publish(name="Other")
    clock.go_on(HOUR)
    network.pages[JOHN] = other.page()
    with pytest.raises(ForkedIdentity):
        find(node, network)
    assert node.store.read(find_fork_proof, john.log.secret.public, 0) is not None
    network.pages[JOHN] = john.page()
    clock.go_on(HOUR)
    with pytest.raises(ForkedIdentity):
        find(node, network)


def test_fork_that_is_learnt_from_others_ends_what_was_known(
    node: Node, network: VirtualNetwork, john: Elsewhere
) -> None:
    john.publish(name="John")
    network.pages[JOHN] = john.page()
    find(node, network)
    other = Elsewhere(JOHN)
    other.publish(name="Other")
    node.store.ingest([(other.log.entry(2).encoded, None)])
    with pytest.raises(ForkedIdentity):
        find(node, network)


# Further keys


def test_further_key_counts_only_if_both_sides_say_so(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    both, both_entry = further_key(3, john.id)
    _, foreign_entry = further_key(4, Elsewhere(JOHN, 2).id)
    unlisted, unlisted_entry = further_key(5, john.id)
    silent = key(6).public
    listed = tuple(FurtherKey(item) for item in (both.public, key(4).public, silent))
    john.publish(keys=listed)
    network.pages[JOHN] = john.page(keys=(both_entry, foreign_entry))
    find(node, network)
    first = john.log.secret.public
    assert node.database.read(lambda connection: keys_of(connection, john.id)) == sorted([first, both.public])
    assert unlisted.public not in node.database.read(lambda connection: keys_of(connection, john.id))
    other = VirtualNetwork()
    other.pages[JOHN] = john.page(keys=(both_entry, unlisted_entry))
    with raises("federation.unproved-document"):
        find(node, other, fetched_since=node.clock() + 1)


def test_revocation_counts_as_soon_as_it_is_seen(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    secret, entry = further_key(3, john.id)
    john.publish(keys=(FurtherKey(secret.public),))
    network.pages[JOHN] = john.page(keys=(entry,))
    find(node, network)
    assert node.database.read(lambda connection: check_author(connection, secret.public, 1, 6)) == john.id
    john.publish(keys=(FurtherKey(secret.public, (RevokedLog(1, 5),)),))
    network.pages[JOHN] = john.page(keys=(entry,))
    clock.go_on(HOUR)
    find(node, network)
    assert node.database.read(lambda connection: check_author(connection, secret.public, 1, 5)) == john.id
    for log_id, seq_num in ((1, 6), (2, 1)):
        with pytest.raises(KeyRevoked):
            node.database.read(lambda c, place=(log_id, seq_num): check_author(c, secret.public, *place))  # type: ignore[misc]


def test_log_0_with_a_wide_gap_is_searched_by_what_is_held(
    node: Node, network: VirtualNetwork, john: Elsewhere
) -> None:
    find(node, network)
    # Forty entries lead from the first to one far above, each linked to the one before and to nothing that is held.
    secret, link, place = john.log.secret, john.log.hash(1), 1
    while place < 2**61:
        place = 3 * place + 1
        entry = sign_entry(secret, b"\x80", log_id=0, seq_num=place, lipmaa_link=link, backlink=hash_yamf(b"nothing"))
        (receipt,) = node.store.ingest([(entry.encoded, b"\x80")])
        assert receipt.error is None
        link = hash_entry(entry)
    assert node.database.read(lambda connection: read_newest_document(connection, secret.public))[0] == 1


def test_key_that_the_newest_document_does_not_list_is_forgotten(
    node: Node, network: VirtualNetwork, john: Elsewhere, clock: Clock
) -> None:
    secret, entry = further_key(3, john.id)
    john.publish(keys=(FurtherKey(secret.public),))
    network.pages[JOHN] = john.page(keys=(entry,))
    find(node, network)
    john.publish(keys=(FurtherKey(secret.public, (RevokedLog(1, 5),)),))
    network.pages[JOHN] = john.page()
    clock.go_on(HOUR)
    find(node, network)
    first = john.log.secret.public
    both = sorted([first, secret.public])
    assert node.database.read(lambda connection: keys_of(connection, john.id)) == both, "a revoked key is still his"
    john.publish()
    network.pages[JOHN] = john.page()
    clock.go_on(HOUR)
    find(node, network)
    assert node.database.read(lambda connection: keys_of(connection, john.id)) == [first]


# Tidying


def test_only_strangers_whom_nothing_mentions_are_forgotten(node: Node, network: VirtualNetwork, clock: Clock) -> None:
    jane = create_identity(node, "jane.haiku.ink", None)
    reasons = (
        "nothing",
        "follower",
        "followee",
        "share",
        "delivery",
        "box",
        "notice",
        "want",
        "peer",
        "log",
        "key",
        "schema",
    )
    them = {reason: Elsewhere(f"{reason}.haiku.ink", 20 + number) for number, reason in enumerate(reasons)}
    further, entry = further_key(50, them["key"].id)
    them["key"].publish(keys=(FurtherKey(further.public),))
    network.pages |= {item.fqdn: item.page() for item in them.values()}
    network.pages["key.haiku.ink"] = them["key"].page(keys=(entry,))
    for item in them.values():
        find(node, network, item.fqdn)
    log, of_key = LogBuilder(them["log"].log.secret), LogBuilder(further)
    for builder in (log, of_key):
        builder.append(b"something")
        node.store.ingest([(builder.entry(1).encoded, builder.payloads[0])])
    wanted = SchemaId(them["schema"].log.secret.public, 1)
    naming = LogBuilder(node.secret_key(jane.key))
    naming.append(cbor.encode({"kind": "create", "schema": [bytes(wanted.author), 1, 2], "fields": []}))
    node.store.ingest([(naming.entry(1).encoded, naming.payloads[0])])
    instance = naming.hash(1)

    def mention(connection: Connection) -> None:
        put_relation_state(connection, them["follower"].id, jane.id, "refused", 0)
        put_relation_state(connection, jane.id, them["followee"].id, "requested", 0)
        add_shares(connection, [(instance, them["share"].id)], 0)
        queue_deliveries(connection, instance, jane.id, [them["delivery"].id], wanted=1, now=0)
        row = {"recipient": jane.id, "via": them["box"].id, "instance": instance, "parcel": b"", "arrived": 0}
        connection.execute(insert(request_box), row)
        queue_move(connection, jane.id, them["notice"].id, "end", as_follower=True, now=0)
        want_schemas(connection, {wanted: 2}, 0, them["want"].id)
        add_peer(connection, "peer.haiku.ink", 0)

    node.database.write(mention)
    expiry = clock.now + HOUR * 1_000_000
    assert node.database.write(lambda c: forget_strangers(c, expiry)) == 0
    assert node.database.write(lambda c: forget_strangers(c, expiry + 1)) == 1
    left = [why for why, item in them.items() if node.database.read(partial(find_remote_identity, name=item.id))]
    assert left == list(reasons[1:])
    held = node.store.read(find_log, them["nothing"].log.secret.public, 0)
    assert held is not None, "entries are never dropped"


# Failures and crowds


def test_name_that_failed_is_not_asked_again_at_once(node: Node, network: VirtualNetwork, clock: Clock) -> None:
    async def work() -> None:
        discovery = Discovery(node, network)
        network.pages[JOHN] = PeerUnreachable("nobody answers")
        for _ in range(3):
            with pytest.raises(PeerUnreachable):
                await discovery.find(JOHN)
        assert network.asked == [JOHN]
        network.pages[JOHN] = Elsewhere(JOHN).page()
        clock.go_on(30)
        assert (await discovery.find(JOHN)).fqdn == JOHN
        assert network.asked == [JOHN, JOHN]

    run(work())


def test_many_who_ask_at_once_cause_one_request(node: Node, network: VirtualNetwork, john: Elsewhere) -> None:
    async def work() -> None:
        discovery = Discovery(node, network)
        asking = [asyncio.create_task(discovery.find(JOHN)) for _ in range(20)]
        await asyncio.sleep(0)
        asking[0].cancel()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert {item.id for item in found[1:] if isinstance(item, RemoteIdentity)} == {john.id}

    run(work())
    assert network.asked == [JOHN]


def test_flood_of_names_is_bounded_and_does_not_touch_what_is_known(
    node: Node, network: VirtualNetwork, john: Elsewhere
) -> None:
    async def work() -> None:
        discovery = Discovery(node, network, run_blocking=in_place)
        await discovery.find(JOHN)
        network.gate.clear()
        flood = [asyncio.create_task(discovery.find(f"x{number}.evil.ink")) for number in range(300)]
        await asyncio.sleep(0.1)
        assert len(network.asked) == 1 + 32
        assert (await discovery.find(JOHN)).id == john.id
        network.gate.set()
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert sum(isinstance(item, NoIdentityThere) for item in results) == 256
        assert sum(isinstance(item, PeerUnreachable) for item in results) == 44

    run(work())


async def in_place(work: Callable[[], Result]) -> Result:
    """What a simulation runs blocking work with."""
    return work()


@pytest.mark.parametrize(
    ("status", "reason"), [("404 Not Found", "federation.no-identity-there"), ("500 Oops", "federation.bad-answer")]
)
def test_status_of_the_other_node_tells_whether_anybody_is_there(node: Node, status: str, reason: str) -> None:
    async def work() -> None:
        async with (
            serving(answering(b"{}", status)) as port,
            HttpTransport(NodeSettings(resolve=(f"{JOHN}=127.0.0.1:{port}",))) as transport,
        ):
            with raises(reason):
                await Discovery(node, transport).find(JOHN)

    run(work())


# The serving side


def test_two_nodes_find_each_other_over_the_network(node: Node, tmp_path: Path) -> None:
    other = Node(tmp_path / "other", NodeSettings(), home=tmp_path / "other")
    created = create_identity(other, JOHN, None, name="John")
    changed = change_identity(other, created.id, profile={"city": "Bern"})

    async def work() -> RemoteIdentity:
        page = json.dumps(render_well_known(well_known_of(other, JOHN))).encode()
        async with (
            serving(answering(page)) as port,
            HttpTransport(NodeSettings(resolve=(f"*.haiku.ink=127.0.0.1:{port}",))) as transport,
        ):
            return await Discovery(node, transport).find(JOHN)

    found = run(work())
    assert (found.id, found.key, found.document_seq) == (created.id, created.key, changed.revision)
    assert found.node_key == load_node_key(other).public
    other.close()


def test_served_document_carries_the_pool_and_two_payloads(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None)
    for number in range(19):
        change_identity(node, jane.id, name=f"Jane {number}")
    served = well_known_of(node, "jane.haiku.ink")
    assert [item.payload is not None for item in served.log] == [True, *[False] * (len(served.log) - 2), True]
    assert len(served.log) < 10
    assert parse_well_known(json.dumps(render_well_known(served)).encode()) == served
    assert isinstance(served, WellKnown)


def test_serving_a_document_reads_little_of_a_long_log(node: Node) -> None:
    jane = create_identity(node, "jane.haiku.ink", None)
    for number in range(40):
        change_identity(node, jane.id, profile={f"{number} {part}": "x" * 9_000 for part in range(20)})
    served = well_known_of(node, "jane.haiku.ink")
    tracemalloc.start()
    assert well_known_of(node, "jane.haiku.ink") == served
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert served.log[-1].payload is not None
    assert most < 8 * len(served.log[-1].payload)


def test_served_document_shows_only_further_keys_that_say_whose_they_are(node: Node) -> None:
    jane, john = (create_identity(node, f"{name}.haiku.ink", None) for name in ("jane", "john"))
    document = replace(jane.document, keys=(FurtherKey(john.key),))
    node.database.write(lambda connection: append_document(connection, node.secret_key(jane.key), document))
    served = well_known_of(node, "jane.haiku.ink")
    assert [len(served.log), served.keys] == [2, ()]


def test_largest_document_fits_into_the_limit(john: Elsewhere) -> None:
    payload = bytes(512 * 1024)
    entry = replace(john.well_known().log[0], payload=payload)
    page = json.dumps(render_well_known(john.well_known(log=(entry, entry)))).encode()
    assert len(page) + 300 * 1024 + 1024 * 500 < MAX_WELL_KNOWN_BYTES


def test_key_of_the_node_stays_until_it_is_replaced(node: Node) -> None:
    first = load_node_key(node)
    assert load_node_key(node) == first
    second = replace_node_key(node)
    assert second.public != first.public
    assert load_node_key(node) == second


def test_node_serves_the_names_of_its_identities_and_its_endpoint(place: Path | str, tmp_path: Path) -> None:
    node = Node(place, NodeSettings(endpoint="https://node.haiku.ink:8443"), home=tmp_path)
    create_identity(node, "jane.haiku.ink", None)
    served = ["jane.haiku.ink", "jane.haiku.ink:8443", "node.haiku.ink:8443"]
    assert [
        name for name in [*served, "node.haiku.ink", "john.haiku.ink", ""] if serves_authority(node, name)
    ] == served
    node.close()

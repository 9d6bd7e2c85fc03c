"""For whom a delivery is, is asked before its signatures are: what nobody here wants costs nothing to refuse."""

from functools import partial

import pytest

from inkgrove.core import Hash, IdentityId, identity_of
from inkgrove.federation.errors import QuotaUsedUp
from inkgrove.federation.peers import SenderQuotas
from inkgrove.federation.sharing import STRANGER_ENTRIES, receive_delivery, receive_request
from inkgrove.messages import Create, Delivery, Parcel, SchemaVersion, cbor, encode_delivery, encode_message
from inkgrove.node.identity import create_identity
from inkgrove.node.publishing import DeliveryDecision
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.node import put_relation_state
from tests.federation.conftest import Clock
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(7).public, 1, 2)
JANE = identity_of(key(1).public)
NOBODY = IdentityId(b"\7" * 32)
MB = 1024 * 1024


@pytest.fixture
def john(node: Node) -> IdentityId:
    return create_identity(node, "john.haiku.ink", None).id


def forged(*to: IdentityId, count: int = 1, author: int = 1) -> Parcel:
    """An entry whose signature does not hold, so many times: whoever verifies it says so."""
    log = LogBuilder(key(author))
    log.append(encode_message(Create(SCHEMA, {"subject": "Hello"})))
    encoded = log.entry(1).encoded
    bent = encoded[:-1] + bytes([encoded[-1] ^ 1])
    return Parcel(log.hash(1), to, [(bent, log.payloads[0])] * count)


def codes(node: Node, *parcels: Parcel) -> list[tuple[IdentityId, str | None]]:
    receipts = receive_delivery(node, Delivery(JANE, list(parcels)))
    assert all(receipt.decision is DeliveryDecision.REFUSED for receipt in receipts)
    return [(receipt.recipient, receipt.code) for receipt in receipts]


def test_parcel_for_nobody_here_is_refused_unverified(node: Node) -> None:
    assert codes(node, forged(NOBODY)) == [(NOBODY, "federation.unknown-recipient")]


def test_parcel_is_verified_for_those_who_are_here(node: Node, john: IdentityId) -> None:
    found = codes(node, forged(NOBODY, john))
    assert found == [(NOBODY, "federation.unknown-recipient"), (john, "entry.bad-signature")]


def test_parcel_of_somebody_who_is_blocked_is_refused_unverified(node: Node, john: IdentityId) -> None:
    node.database.write(lambda c: put_relation_state(c, JANE, john, "blocked", 0))
    assert codes(node, forged(john)) == [(john, "federation.blocked")]


def test_of_a_stranger_only_so_many_entries_are_verified_at_once(node: Node, john: IdentityId) -> None:
    few, many = forged(john, count=STRANGER_ENTRIES // 2), forged(john, count=STRANGER_ENTRIES + 1)
    assert codes(node, many) == [(john, "federation.stranger-sends-too-much")]
    told = [code for _, code in codes(node, few, few, few)]
    assert told == ["entry.bad-signature", "entry.bad-signature", "federation.stranger-sends-too-much"]
    # Who is known to one of the recipients may send more.
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    assert codes(node, many) == [(john, "entry.bad-signature")]


def test_entries_of_several_authors_are_refused_unverified(node: Node, john: IdentityId) -> None:
    mixed = Parcel(Hash(bytes(66)), (john,), [*forged(john).entries, *forged(john, author=2).entries])
    assert codes(node, mixed) == [(john, "parcel.bad")]


def test_what_a_delivery_costs_is_charged_before_it_is_verified(node: Node, john: IdentityId, clock: Clock) -> None:
    sender = RemoteIdentity(
        JANE, "jane.haiku.ink", "https://jane.haiku.ink", key(1).public, 1, key(8).public, clock(), clock() + 10**9
    )
    body = encode_delivery(Delivery(JANE, [forged(john, count=100)]))
    quotas = SenderQuotas(150_000, clock)
    charge = partial(quotas.charge_work, sender.node_key, sender.fqdn, "192.0.2.1")
    assert b"entry.bad-signature" in receive_request(node, sender, body, charge)
    with pytest.raises(QuotaUsedUp):
        receive_request(node, sender, body, charge)


def test_quota_is_shared_by_the_keys_of_a_domain_and_of_an_address(clock: Clock) -> None:
    quotas = SenderQuotas(10_000, clock)
    quotas.charge(key(1).public, "one.evil.ink", 6_000)
    with pytest.raises(QuotaUsedUp):
        quotas.charge(key(2).public, "two.evil.ink", 6_000)
    quotas.charge(key(3).public, "jane.haiku.ink", 6_000)
    for _ in range(4):
        quotas.charge_address("192.0.2.1", 10_000)
    with pytest.raises(QuotaUsedUp):
        quotas.charge_address("192.0.2.1", 10_000)
    quotas.charge_address("192.0.2.2", 10_000)


def test_large_cbor_of_many_small_parts_is_refused_before_it_is_read() -> None:
    size = 2 * MB
    with raises("cbor.too-complex"):
        cbor.decode(b"\x9a" + size.to_bytes(4, "big") + bytes(size))
    with raises("cbor.too-complex"):
        cbor.decode(cbor.encode([bytes(2 * MB)]) + b"\0")
    parts = [[bytes(170)] for _ in range(12_000)]
    assert cbor.decode(cbor.encode(parts)) == parts

"""How little travels with an instance, and how little can be guessed from it (docs/protocol.md sections 2, 3 and 8)."""

from collections.abc import Sequence
from functools import cache
from itertools import product
from random import Random

import pytest
from sqlalchemy import Connection

from inkgrove.core import Hash, certificate_pool, decode_entry, hash_yamf, identity_of
from inkgrove.federation.sharing import receive_parcel
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    Message,
    Parcel,
    SchemaVersion,
    Update,
    decode_message,
    encode_message,
    encode_salted,
)
from inkgrove.node.identity import create_identity
from inkgrove.node.publishing import DeliveryDecision, find_held_instance, pack_parcel
from inkgrove.node.runtime import Node
from inkgrove.store.logs import read_entries
from inkgrove.store.node import put_relation_state
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(7).public, 1, 2)
JANE = identity_of(key(1).public)
HEIGHT = 10_000
CHANGES: dict[int, tuple[int, ...]] = {5_000: (5_001, 7_777), 123: (4_567, 8_910, 9_876, 9_999), 2: (HEIGHT,)}
"""By the place of a create: where more is said of that instance."""


def seqs_of(parcel: Parcel) -> list[int]:
    return [decode_entry(entry).seq_num for entry, _ in parcel.entries]


def payloads_of(parcel: Parcel) -> list[int]:
    return [decode_entry(entry).seq_num for entry, payload in parcel.entries if payload is not None]


def packed(node: Node, instance: Hash) -> Parcel:
    def work(connection: Connection) -> Parcel | None:
        held = find_held_instance(connection, instance)
        assert held is not None
        return pack_parcel(connection, held, [], after=0, deletions_only=False)

    parcel = node.database.read(work)
    assert parcel is not None
    return parcel


@cache
def long_log() -> LogBuilder:
    """A log with as many entries as messages of other people, few of which say more about an earlier one."""
    log = LogBuilder()
    of = {change: create for create, changes in CHANGES.items() for change in changes}
    for seq_num in range(1, HEIGHT + 1):
        message: Message = Create(SCHEMA, {"subject": f"number {seq_num}"})
        if seq_num in of:
            message = Update(SCHEMA, log.hash(of[seq_num]), {"subject": "changed"})
        log.append(encode_message(message))
    return log


def test_instance_of_a_long_log_travels_with_few_entries(node: Node) -> None:
    log = long_log()
    node.store.ingest([(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)])
    several = {*CHANGES, *(seq_num for changes in CHANGES.values() for seq_num in changes)}
    rng = Random(1)
    singles = [1, 3, 4, 13, 40, 121, 364, 1093, 3280, 3281, 9841, 9842, 9998, *rng.sample(range(41, HEIGHT), 40)]
    sizes = {}
    for seq_num in sorted(set(singles) - several):
        parcel = packed(node, log.hash(seq_num))
        assert seqs_of(parcel) == certificate_pool(seq_num, HEIGHT)
        assert payloads_of(parcel) == [seq_num]
        sizes[seq_num] = len(parcel.entries)
    assert max(sizes.values()) <= 32
    for create, changes in CHANGES.items():
        parcel = packed(node, log.hash(create))
        union = {member for seq_num in (create, *changes) for member in certificate_pool(seq_num, HEIGHT)}
        assert seqs_of(parcel) == sorted(union)
        assert payloads_of(parcel) == [create, *changes]


def test_no_entry_of_a_log_with_10_000_needs_more_than_32() -> None:
    assert max(len(certificate_pool(seq_num, HEIGHT)) for seq_num in range(1, HEIGHT + 1)) == 32


def test_what_travels_is_just_enough_for_a_node_that_has_nothing(node: Node) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_relation_state(c, john, JANE, "accepted", 0))
    pool = certificate_pool(200, 300)
    needed = [seq_num for seq_num in pool if seq_num < 200]  # the path to the first entry
    for number, missing in enumerate([*needed, None]):
        log = LogBuilder(key(20 + number))  # a log of its own, of which the node has nothing
        for place in range(1, 301):
            log.append(encode_message(Create(SCHEMA, {"subject": f"number {place}"})))
        sent = [seq_num for seq_num in pool if seq_num != missing]
        entries = [(log.entry(n).encoded, log.payloads[n - 1] if n == 200 else None) for n in sent]
        (receipt,) = receive_parcel(node, JANE, Parcel(log.hash(200), (john,), entries))
        held = [stored.entry.seq_num for stored in node.store.read(read_entries, log.secret.public, 1)]
        assert (receipt.decision, held) == (
            (DeliveryDecision.ACCEPTED, pool) if missing is None else (DeliveryDecision.REFUSED, [])
        )


# Guessing


def votes(secret_answers: Sequence[str], *, is_salted: bool) -> LogBuilder:
    """A log of yes and no, the last of which is withdrawn."""
    log = LogBuilder()
    rng = Random(2)
    messages: list[Create | Delete] = [Create(SCHEMA, {"vote": answer}) for answer in secret_answers]
    for message in [*messages, None]:
        said = message or Delete(log.hash(len(log.entries)), SCHEMA)
        log.append(encode_salted(said, rng.randbytes) if is_salted else encode_message(said))
    return log


def candidates(log: LogBuilder, shared: Create) -> set[Hash]:
    """The hash of every payload that a recipient could think of: all that is known but the salts."""
    modes: list[Access | None] = [None, Access("listed"), Access("relations"), Access("public"), Access("self")]
    salts = [None, shared.salt, b"", bytes(16)]
    ends: list[Delete] = [
        Delete(reference, schema, salt)
        for reference in (*range(1, len(log.entries) + 1), *map(log.hash, range(1, len(log.entries) + 1)))
        for schema in (None, SCHEMA)
        for salt in salts
    ]
    guesses = [
        Create(SCHEMA, {"vote": vote}, access, salt=salt)
        for vote, access, salt in product(("yes", "no", None), modes, salts)
    ]
    possible: list[Message] = [*guesses, *ends]
    return {hash_yamf(encode_message(message)) for message in possible}


def guessed(node: Node, log: LogBuilder, place: int) -> list[int]:
    """The entries of a bundle whose content a recipient of one vote finds by trying."""
    node.store.ingest([(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)])
    bundle = packed(node, log.hash(place))
    assert payloads_of(bundle) == [place]
    assert len(bundle.entries) >= 3
    shared = decode_message(log.payloads[place - 1])
    assert isinstance(shared, Create)
    tried = candidates(log, shared)
    entries = [decode_entry(entry) for entry, _ in bundle.entries]
    return [entry.seq_num for entry in entries if entry.payload_hash in tried]


ANSWERS = ["yes", "no", "no", "yes", "no", "yes", "yes", "no", "no", "yes", "no", "no"]


@pytest.mark.parametrize("shared_at", [6, 9, 11])
def test_votes_of_others_are_not_guessed_from_the_entries_that_prove_one(node: Node, shared_at: int) -> None:
    log = votes(ANSWERS, is_salted=True)
    assert guessed(node, log, shared_at) == [shared_at]  # the shared one, whose salt came along
    sizes = {entry.payload_size for entry in log.entries}
    assert {size % 128 for size in sizes} == {0}
    assert len({log.entry(seq_num).payload_size for seq_num in range(1, len(ANSWERS) + 1)}) == 1  # yes is as long as no


def test_votes_without_salt_would_be_guessed(node: Node) -> None:
    log = votes(ANSWERS, is_salted=False)
    assert guessed(node, log, 9) == certificate_pool(9, len(log.entries))

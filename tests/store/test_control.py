"""Who controls an identity follows from what is held of log 0, in any order of arrival (protocol.md section 7.2)."""

import random
from functools import partial
from pathlib import Path

from inkgrove.core import HeldEntry, PublicKey, identity_of, verify_signed
from inkgrove.messages import Control
from inkgrove.node.identity import apply_identity_log, find_control, find_document_state
from inkgrove.reference.control import ReferenceControl, ReferenceIdentity, judge_control
from inkgrove.store.db import Connection
from inkgrove.store.logs import IngestStatus, LogStore, open_store, read_entries
from inkgrove.store.node import find_key_status, identities_of
from tests.support.identity_worlds import FIRST_KEYS, FURTHER_KEYS, IdentityWorld, copy_branch
from tests.support.logs import LogBuilder, key
from tests.support.templates import copy_empty_store
from tests.support.tiers import amount

KEYS = [secret.public for secret in FIRST_KEYS + FURTHER_KEYS]


def ingest_in_any_order(store: LogStore, items: list[HeldEntry], rng: random.Random) -> None:
    """Offer the entries in batches until nothing is new, as replication does."""
    is_new = True
    while is_new:
        is_new = False
        rng.shuffle(items)
        waiting = list(items)
        while waiting:
            size = rng.randint(1, 8)
            batch, waiting = waiting[:size], waiting[size:]
            receipts = store.ingest([(item.signed, item.payload) for item in batch])
            is_new |= any(receipt.status not in (IngestStatus.KNOWN, IngestStatus.REFUSED) for receipt in receipts)
            for author in sorted({item.signed.entry.author for item in batch}):
                store.database.write(partial(apply_identity_log, author=author))


def held_by(store: LogStore) -> list[HeldEntry]:
    """What the store has kept of log 0 of all keys."""
    stored = [item for author in KEYS for item in store.read(read_entries, author, 0)]
    return [HeldEntry(verify_signed(item.entry), item.payload) for item in stored]


def tell_of(store: LogStore, entries: list[HeldEntry]) -> ReferenceControl:
    """What the store says, in the form of the reference."""
    return store.database.read(lambda connection: _tell_of(connection, entries))


def _tell_of(connection: Connection, entries: list[HeldEntry]) -> ReferenceControl:
    told = ReferenceControl()
    for author in KEYS:
        control = find_control(connection, author)
        if control is not None:
            told.identities[control.identity] = _identity(control)
    told.owners = identities_of(connection, KEYS)
    for item in entries:
        state = find_document_state(connection, item.signed.hash)
        if state is not None:
            told.documents[item.signed.hash] = state.value
    return told


def _identity(control: Control) -> ReferenceIdentity:
    from inkgrove.reference.control import ReferenceIdentity

    keys = {author: state.value for author, state in control.keys.items()}
    return ReferenceIdentity(control.current.hash, keys, None if control.state is None else control.state.value)


def ends_in(store: LogStore) -> dict[PublicKey, dict[int, int]]:
    def work(connection: Connection) -> dict[PublicKey, dict[int, int]]:
        found = {author: find_key_status(connection, author) for author in KEYS}
        return {
            author: status.ends for author, status in found.items() if status is not None and status.ends is not None
        }

    return store.database.read(work)


def check_against_reference(store: LogStore) -> ReferenceControl:
    held = held_by(store)
    expected, told = judge_control(held), tell_of(store, held)
    assert told.identities == expected.identities
    assert told.documents == expected.documents
    for author in KEYS:
        assert told.owners.get(author, identity_of(author)) == expected.owners.get(author, identity_of(author))
    assert ends_in(store) == {key: {end.log_id: end.last for end in ends} for key, ends in expected.ends.items()}
    return expected


def test_store_says_what_the_reference_says_in_any_order(tmp_path: Path) -> None:
    for seed in range(amount(12, 200)):
        world = IdentityWorld.from_seed(seed)
        items = world.held()
        told = []
        for arrival in range(2):
            store = open_store(copy_empty_store(tmp_path / f"{seed}-{arrival}"))
            ingest_in_any_order(store, list(items), random.Random(f"{seed} {arrival}"))
            told.append(check_against_reference(store))
            store.close()
        assert told[0] == told[1], seed


def test_all_branches_of_log_0_are_kept_with_their_payloads(store: LogStore) -> None:
    log = LogBuilder(key(5), 0).grow(3)
    branches = [copy_branch(log, height) for height in (0, 1, 2)]
    for number, branch in enumerate(branches):
        for seq_num in range(3):
            branch.append(f"{number} {seq_num}".encode())
    held = [item for branch in (log, *branches) for item in branch.held()]
    for item in held:
        store.ingest([(item.signed, item.payload)])
    kept = {(item.hash, item.payload) for item in store.read(read_entries, key(5).public, 0)}
    assert kept == {(item.signed.hash, item.payload) for item in held}

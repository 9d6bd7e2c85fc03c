"""Who controls an identity follows from what is held of log 0, in any order of arrival (protocol.md section 7.2)."""

import random
from functools import partial
from pathlib import Path

from inkgrove.core import HeldEntry, verify_signed
from inkgrove.node.identity import apply_identity_log
from inkgrove.store.logs import IngestStatus, LogStore, open_store, read_entries
from tests.support.identity_worlds import FIRST_KEYS, FURTHER_KEYS, IdentityWorld, copy_branch
from tests.support.logs import LogBuilder, key
from tests.support.stored_control import check_against_reference
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


def test_store_says_what_the_reference_says_in_any_order(tmp_path: Path) -> None:
    for seed in range(amount(12, 200)):
        world = IdentityWorld.from_seed(seed)
        items = world.held()
        told = []
        for arrival in range(2):
            store = open_store(copy_empty_store(tmp_path / f"{seed}-{arrival}"))
            ingest_in_any_order(store, list(items), random.Random(f"{seed} {arrival}"))
            held = held_by(store)
            told.append(store.read(check_against_reference, KEYS, held))
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

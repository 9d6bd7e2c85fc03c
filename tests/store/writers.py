"""What other processes do to a store in tests; here, because a spawned process imports it by name."""

import random
from multiprocessing.synchronize import Barrier
from pathlib import Path

from inkgrove.core.entry import sign_entry
from inkgrove.core.errors import StaleEntry
from inkgrove.core.keys import SecretKey
from inkgrove.store.decide import Status
from inkgrove.store.opening import open_store
from tests.support.logs import LogBuilder, key

Place = Path | str


def log_of(number: int) -> SecretKey:
    return SecretKey.from_seed(number.to_bytes(32, "big"))


def publish(place: Place, start: Barrier, name: int, wins: int) -> int:
    """Publish `wins` entries to one log that others publish to as well; how often another one was faster."""
    store = open_store(place)
    secret = key(1)
    start.wait()
    losses = 0
    number = 0
    while number < wins:
        at = store.next_place(secret.public, 1)
        payload = f"{name}/{number}".encode()
        entry = sign_entry(
            secret, payload, log_id=1, seq_num=at.seq_num, lipmaa_link=at.lipmaa_link, backlink=at.backlink
        )
        (receipt,) = store.ingest([(entry, payload)], must_be_next=True)
        if receipt.status is Status.STORED:
            number += 1
        else:
            assert isinstance(receipt.error, StaleEntry), receipt
            losses += 1
    return losses


def ingest_shuffled(place: Place, start: Barrier, seed: int) -> int:
    """Ingest the same new logs as others, in an order of its own; how many entries it stored."""
    offers = [
        (entry, payload)
        for number in range(1, 31)
        for log in [LogBuilder(log_of(number)).grow(4)]
        for entry, payload in zip(log.entries, log.payloads, strict=True)
    ]
    rng = random.Random(seed)
    batches = [offers[n : n + 40] for n in range(0, len(offers), 40)]
    rng.shuffle(batches)
    store = open_store(place)
    start.wait()
    stored = 0
    for batch in batches:
        rng.shuffle(batch)
        receipts = store.ingest(batch)
        assert all(receipt.error is None for receipt in receipts)
        stored += sum(receipt.status is Status.STORED for receipt in receipts)
    return stored


def ingest_branch(place: Place, start: Barrier, name: int) -> str:
    """Ingest a branch of its own of a log that is there up to entry 3."""
    log = LogBuilder(key(1)).grow(3)
    for number in range(3):
        log.append(f"{name}/{number}".encode())
    store = open_store(place)
    start.wait()
    receipts = store.ingest([(log.entry(n), log.payloads[n - 1]) for n in (4, 5, 6)])
    return " ".join(receipt.status.value for receipt in receipts)


def open_only(place: Place, start: Barrier, _name: int) -> int:
    """Open a store at the same moment as others."""
    start.wait()
    return len(open_store(place).heights())


def write_forever(place: Place, seed: int) -> None:
    """Append batches to a few logs until killed."""
    rng = random.Random(seed)
    store = open_store(place)
    logs = [LogBuilder(log_of(seed * 10 + number)) for number in range(3)]
    while True:
        offers = []
        for log in logs:
            for _ in range(rng.randint(1, 30)):
                entry = log.append(rng.randbytes(rng.choice([20, 200, 6000])))
                offers.append((entry, log.payloads[-1] if rng.random() < 0.9 else None))
        store.ingest(offers)

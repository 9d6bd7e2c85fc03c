"""What other processes do to a store in tests; here, because a spawned process imports it by name."""

import random
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from inkgrove.core import Entry, SecretKey, sign_entry
from inkgrove.store.db import ExclusiveWork, start_pipeline_run
from inkgrove.store.logs import IngestStatus, open_store, read_next_entry
from inkgrove.store.views import find_stage_url, open_stage, open_views
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
        at = store.read(read_next_entry, secret.public, 1)
        payload = f"{name}/{number}".encode()
        entry = sign_entry(
            secret, payload, log_id=1, seq_num=at.seq_num, lipmaa_link=at.lipmaa_link, backlink=at.backlink
        )
        (receipt,) = store.ingest([(entry, payload)], must_be_next=True)
        if receipt.status is IngestStatus.STORED:
            number += 1
        else:
            assert receipt.error is not None, receipt
            assert receipt.error.code == "log.stale", receipt
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
        stored += sum(receipt.status is IngestStatus.STORED for receipt in receipts)
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


def numbered_batches(count: int) -> Iterator[list[tuple[Entry, bytes | None]]]:
    """Batches for a few logs, the same each time they are made."""
    rng = random.Random(11)
    logs = [LogBuilder(log_of(number)) for number in range(1, 4)]
    for _ in range(count):
        offers: list[tuple[Entry, bytes | None]] = []
        for log in logs:
            for _ in range(rng.randint(1, 30)):
                entry = log.append(rng.randbytes(rng.choice([20, 200, 6000])))
                offers.append((entry, log.payloads[-1] if rng.random() < 0.9 else None))
        yield offers


def write_batches(place: Place, count: int, written: Any) -> None:
    """Append the batches that are not there yet, and count each as soon as the store has said that it has it."""
    store = open_store(place)
    for number, offers in enumerate(numbered_batches(count), start=1):
        if number > written.value:
            store.ingest(offers)
            written.value = number


def hold_stream(place: Place, told: Connection) -> None:
    """Begin to stream, stage something, and wait to be killed."""
    views = open_views(place)
    run = start_pipeline_run(views.database)
    run.begin(ExclusiveWork.STREAM)
    stage = open_stage(find_stage_url(views.database.url), str(run.number), {})
    stage.finish()
    told.send((run.number, stage.name))
    told.poll(None)

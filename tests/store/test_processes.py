"""Several processes on one store: one winner and no damage, whenever one of them dies."""

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from inkgrove.core import HeldEntry, verify_log, verify_signed
from inkgrove.store.logs import LogStore, LogValidity, find_log, open_store, read_entries, read_ingests, read_logs
from tests.store import writers
from tests.support.logs import LogBuilder, key
from tests.support.tiers import amount

SPAWN = multiprocessing.get_context("spawn")


def at_once(work: Callable[..., Any], place: writers.Place, *arguments: tuple[Any, ...]) -> list[Any]:
    """Run the work in one process per tuple of arguments, all from the same moment on."""
    with SPAWN.Manager() as manager, ProcessPoolExecutor(len(arguments), SPAWN) as pool:
        start = manager.Barrier(len(arguments), timeout=60)
        return [done.result(timeout=90) for done in [pool.submit(work, place, start, *own) for own in arguments]]


def check_everything(store: LogStore) -> int:
    """Entries, logs and positions agree, and every log is worth what `verify_log` says; how many entries there are."""
    rows, _ = store.read(read_ingests, limit=1_000_000)
    happened = Counter((row.log, row.seq_num) for row in rows if row.what.value == "entry")
    total = 0
    for number, log in store.read(read_logs).items():
        stored = store.read(read_entries, log.author, log.log_id)
        total += len(stored)
        assert log.height == max(item.entry.seq_num for item in stored)
        assert log.held == len(stored)
        report = verify_log([HeldEntry(verify_signed(item.entry), item.payload) for item in stored], partial=True)
        assert {item.hash for item in stored if item.refusal is None} == {e.hash for e in report.verified.values()}
        assert all(happened[number, item.entry.seq_num] >= 1 for item in stored)
    return total


def test_publishers_of_one_log_take_turns(store: LogStore, place: writers.Place) -> None:
    at_once(writers.publish, place, (1, 25), (2, 25), (3, 25))
    assert check_everything(store) == 75
    state = store.read(find_log, key(1).public, 1)
    assert state is not None
    assert (state.height, state.is_whole, state.standing) == (75, True, LogValidity())
    payloads = [item.payload or b"" for item in store.read(read_entries, key(1).public, 1)]
    assert sorted(payloads) == sorted(f"{name}/{number}".encode() for name in (1, 2, 3) for number in range(25))


def test_same_new_logs_from_several_processes(store: LogStore, place: writers.Place) -> None:
    stored = at_once(writers.ingest_shuffled, place, (1,), (2,), (3,))
    assert sum(stored) == 120
    assert check_everything(store) == 120
    assert len(store.read(read_ingests)[0]) == 120


def test_branches_that_arrive_together_prove_the_fork(store: LogStore, place: writers.Place) -> None:
    log = LogBuilder(key(1)).grow(3)
    store.ingest(list(zip(log.entries, log.payloads, strict=True)))
    said = at_once(writers.ingest_branch, place, (1,), (2,))
    assert sorted(said) == ["evidence evidence evidence", "stored stored stored"]
    check_everything(store)
    state = store.read(find_log, key(1).public, 1)
    assert state is not None
    assert state.standing == LogValidity(forked_at=4)


def test_several_processes_create_one_store(bare: writers.Place) -> None:
    assert at_once(writers.open_only, bare, (1,), (2,), (3,)) == [0, 0, 0]


BATCHES, KILLS = 50, amount(4, 8, "INKGROVE_TEST_KILLS")


def test_writer_killed_at_random_moments_of_50_batches_leaves_whole_ones(place: writers.Place) -> None:
    rng = random.Random(int(os.environ.get("INKGROVE_TEST_SEED", "7")))
    sizes = [len(offers) for offers in writers.numbered_batches(BATCHES)]
    written = SPAWN.Value("i", 0, lock=False)
    open_store(place).close()
    kills = 0
    for number in range(1, KILLS + 2):
        process = SPAWN.Process(target=writers.write_batches, args=(place, BATCHES, written))
        process.start()
        # The last one may finish; the others are struck at a random moment somewhere in their share of the batches.
        strike = rng.randint(written.value + 1, max(written.value + 1, BATCHES * number // (KILLS + 1) - 1))
        while number <= KILLS and process.is_alive() and written.value < strike:
            time.sleep(0.0005)
        if number <= KILLS:
            time.sleep(rng.random() * 0.02)
            kills += process.is_alive()
            process.kill()
        process.join()
        with open_store(place) as store:
            # What was acknowledged is there, and of the batch in which it died all or nothing.
            assert settled_total(store) in (sum(sizes[: written.value]), sum(sizes[: written.value + 1]))
    assert kills >= KILLS // 2
    with open_store(place) as store:
        assert check_everything(store) == sum(sizes)
        wanted = {entry.encoded for offers in writers.numbered_batches(BATCHES) for entry, _ in offers}
        heights = store.heights()
        assert {item.entry.encoded for log in heights for item in store.read(read_entries, *log)} == wanted


def settled_total(store: LogStore) -> int:
    """PostgreSQL notices the death of a client a little later: until then its last transaction may still end."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return check_everything(store)
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)

"""The pipeline on one machine: a rebuild against a plain materialiser, and how soon an append is visible.

INKGROVE_BENCH_ENTRIES sets the size (100,000 by default); the signed entries are kept in .cache/bench.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from bench.harness import Row
from bench.plain import materialise
from bench.verification import slothmails
from inkgrove.core.entry import hash_entry, sign_entry
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import SecretKey
from inkgrove.core.lipmaa import has_lipmaa_link, lipmaa
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.message import encode_message
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.pipeline.definitions import take_snapshot
from inkgrove.pipeline.materialiser import Materialiser
from inkgrove.pipeline.session import start_session
from inkgrove.store.log_store import LogStore
from inkgrove.store.opening import open_store

ENTRIES = int(os.environ.get("INKGROVE_BENCH_ENTRIES", "100000"))
AUTHORS = 1_000
DEV = SecretKey.from_seed(b"\1" * 32)
SCHEMA = SchemaId(DEV.public, 12)
# The payloads of bench.verification name version 4.
VERSIONS = """kind: schema-meta
name: slothmail
spec: 1
---
kind: schema-migration
fields:
  - subject: {action: create, type: text}
  - body: {action: create, type: text}
---
kind: schema-migration
fields:
  - recipient: {action: create, type: relation}
---
kind: schema-migration
fields:
  - created: {action: create, type: timestamp}
"""


class Writer:
    """An author's log."""

    def __init__(self, number: int) -> None:
        self.key = SecretKey.from_seed(number.to_bytes(4, "big") * 8)
        self.hashes: list[Hash] = []

    def sign(self, payload: bytes, log_id: int = 1) -> tuple[bytes, bytes]:
        seq_num = len(self.hashes) + 1
        entry = sign_entry(
            self.key,
            payload,
            log_id=log_id,
            seq_num=seq_num,
            lipmaa_link=self.hashes[lipmaa(seq_num) - 1] if has_lipmaa_link(seq_num) else None,
            backlink=self.hashes[-1] if self.hashes else None,
        )
        self.hashes.append(hash_entry(entry))
        return entry.encoded, payload


def make_store(place: Path) -> None:
    """A store with the schema and ENTRIES creates."""
    store = open_store(place)
    dev = Writer(0)
    dev.key = DEV
    store.ingest([dev.sign(encode_message(message), 12) for message in parse_messages(VERSIONS)])
    store.register(SCHEMA)
    payloads = list(slothmails(ENTRIES // AUTHORS))
    for start in range(0, AUTHORS, 50):
        writers = [Writer(number + 1) for number in range(start, start + 50)]
        store.ingest([writer.sign(payload) for writer in writers for payload in payloads])
    store.close()


def rows() -> Iterator[Row]:
    cache = Path(".cache") / "bench" / f"{ENTRIES}"
    if not (cache / "node.db").exists():
        shutil.rmtree(cache, ignore_errors=True)
        make_store(cache)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shutil.copytree(cache, home)
        spark = start_session(Path(folder) / "logs", {"spark.master": f"local[{os.cpu_count()}]"})
        materialiser = Materialiser(spark, str(home))
        materialiser.settle()
        yield _rebuild(materialiser, home, Path(folder))
        yield _freshness(materialiser, Path(folder))
        materialiser.close()
        spark.stop()


def _rebuild(materialiser: Materialiser, home: Path, folder: Path) -> Row:
    snapshot = take_snapshot(materialiser.store, materialiser.views.views())
    definition = snapshot.definitions()[SCHEMA]
    materialiser.rebuild(SCHEMA)
    ours, plain = [], []
    for _ in range(3):
        start = perf_counter()
        assert materialise(home / "node.db", folder / "plain.db", definition) == ENTRIES
        plain.append(perf_counter() - start)
        start = perf_counter()
        materialiser.rebuild(SCHEMA)
        ours.append(perf_counter() - start)
    ratio = median(p / o for p, o in zip(plain, ours, strict=True))
    rates = ENTRIES / median(ours), ENTRIES / median(plain)
    note = f"{ENTRIES:,} entries of {AUTHORS:,} authors, warm"
    return Row("rebuild of a view", rates[0], "plain Python + SQLite", rates[1], ratio, ">= 1.80", ratio >= 1.8, note)


def _freshness(materialiser: Materialiser, folder: Path) -> Row:
    """Seconds from an append to its row in the view, with a warm stream."""
    query = materialiser.follow(folder / "checkpoint")
    writer = Writer(9_999_999)
    store: LogStore = materialiser.store
    query.processAllAvailable()
    waits = []
    for number, payload in enumerate(slothmails(60)):
        start = perf_counter()
        store.ingest([writer.sign(payload)])
        newest = store.newest_offset()
        while materialiser.views.progress()[1] < newest:
            sleep(0.002)
        if number >= 10:
            waits.append(perf_counter() - start)
        sleep(0.03)
    query.stop()
    waits.sort()
    p50, p99 = median(waits), waits[int(len(waits) * 0.99)]
    note = f"p99 {p99:.3f} s; {ENTRIES:,} entries in the store"
    return Row("append to visible, p50 seconds", 1 / p50, "one second", 1, p50, "<= 0.50", p50 <= 0.5, note)

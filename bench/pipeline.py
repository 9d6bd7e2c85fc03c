"""The pipeline on one machine: a rebuild against a plain materialiser, and what small changes cost in large stores.

INKGROVE_BENCH_ENTRIES sets the size (100,000 by default, 1,000,000 for the run of record).
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from pyspark.sql import SparkSession

from bench.harness import Row
from bench.plain import materialise
from bench.stores import (
    AUTHORS,
    SCHEMA,
    SCHEMAS,
    Writer,
    long_log,
    many_authors,
    many_schemas,
    messages_of_schemas,
    next_of_long_log,
)
from bench.verification import slothmails
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.pipeline.views import Materialiser, take_snapshot
from inkgrove.store.logs import newest_offset
from inkgrove.store.views import STREAM, write_progress

ENTRIES = int(os.environ.get("INKGROVE_BENCH_ENTRIES", "100000"))
FEW = 10_000
LONG = 100_000


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"spark.master": f"local[{os.cpu_count()}]", "spark.driver.memory": "1g"}
        spark = start_session(Path(folder) / "logs", settings)
        try:
            with views_of(spark, many_authors(ENTRIES), Path(folder)) as (materialiser, home):
                rebuilt, per_entry = _rebuild(spark, materialiser, home, Path(folder))
                yield rebuilt
                yield _growth(spark, per_entry, Path(folder))
                large = _incremental(materialiser), _freshness(materialiser, Path(folder))
            with views_of(spark, many_authors(FEW), Path(folder)) as (materialiser, _):
                small = _incremental(materialiser), _freshness(materialiser, Path(folder))
            yield _cost("a batch of 1,000 entries on a large view", large[0], f"on {FEW:,} rows", small[0], 2)
            yield from _freshness_rows(small[1], large[1])
            yield _long(spark, Path(folder))
            yield _schemas(spark, Path(folder))
        finally:
            spark.stop()
    yield _driver_memory()


@contextmanager
def views_of(spark: SparkSession, store: Path, folder: Path) -> Iterator[tuple[Materialiser, Path]]:
    """A copy of a store with its view built, and where it is."""
    home = folder / "home"
    shutil.copytree(store, home)
    materialiser = Materialiser(spark, str(home))
    try:
        materialiser.build_changed()
        # The view was just built from everything: a batch of all positions would fold it a second time.
        newest = materialiser.store.read(newest_offset)
        materialiser.views.database.write(lambda connection: write_progress(connection, STREAM, 0, newest))
        yield materialiser, home
    finally:
        materialiser.close()
        shutil.rmtree(home)


def _seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _cost(name: str, seconds: float, baseline: str, base_seconds: float, most: float, note: str = "") -> Row:
    cost = seconds / base_seconds
    told = f"{seconds:.3f} s against {base_seconds:.3f} s; {ENTRIES:,} entries{note}"
    return Row(name, 1 / seconds, baseline, 1 / base_seconds, cost, f"<= {most:.2f}", cost <= most, told)


def _rebuild(spark: SparkSession, materialiser: Materialiser, home: Path, folder: Path) -> tuple[Row, float]:
    definition = take_snapshot(materialiser.store, materialiser.views.views()).definitions()[SCHEMA]
    materialiser.rebuild(SCHEMA)
    ours, plain = [], []
    for _ in range(3):
        plain.append(_seconds(lambda: materialise(home / "node.db", folder / "plain.db", definition)))
        ours.append(_seconds(lambda: materialiser.rebuild(SCHEMA)))
    ratio = median(p / o for p, o in zip(plain, ours, strict=True))
    rates = ENTRIES / median(ours), ENTRIES / median(plain)
    driver = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    note = (
        f"{ENTRIES:,} entries of {AUTHORS:,} authors, warm; driver heap 1 GB,"
        f" peak resident: JVM {peak_of_jvm(spark)} MB, Python driver {driver} MB"
    )
    name = "rebuild of a view, rows per second"
    row = Row(name, rates[0], "plain Python + SQLite", rates[1], ratio, ">= 1.80", ratio >= 1.8, note)
    return row, median(ours) / ENTRIES


def peak_of_jvm(spark: SparkSession) -> int:
    """The most that was ever resident of it, in megabytes."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) // 1024


def _driver_memory() -> Row:
    """The peak of JVM and Python driver together, against a tenth of the entries; each in a process of its own."""
    few = ENTRIES // 10
    peaks = {}
    for entries in (few, ENTRIES):
        done = subprocess.run(
            [sys.executable, "-m", "bench.driver_memory", str(entries)], check=True, capture_output=True, text=True
        )
        peaks[entries] = json.loads(done.stdout)
    large, small = sum(peaks[ENTRIES].values()), sum(peaks[few].values())
    told = "; ".join(f"{count:,} entries: JVM {at['jvm']} MB, Python {at['python']} MB" for count, at in peaks.items())
    name = f"peak memory of the driver, megabytes, {ENTRIES:,} entries"
    return Row(name, large, f"{few:,} entries", small, large / small, "<= 1.20", large <= 1.2 * small, told)


def _growth(spark: SparkSession, per_entry: float, folder: Path) -> Row:
    small = ENTRIES // 10
    (folder / "small").mkdir()
    with views_of(spark, many_authors(small), folder / "small") as (materialiser, _):
        base = median(_seconds(lambda: materialiser.rebuild(SCHEMA)) for _ in range(5)) / small
    return _cost("rebuild, time per entry", per_entry * 1e6, f"with {small:,}", base * 1e6, 1.15, "; in microseconds")


def _incremental(materialiser: Materialiser) -> float:
    """Seconds to take in 1,000 new entries."""
    times = []
    for number in range(5):
        writers = [Writer(3_000_000 + number * 100 + count) for count in range(100)]
        materialiser.store.ingest([writer.sign(payload) for writer in writers for payload in slothmails(10)])
        times.append(_seconds(materialiser.catch_up))
    return median(times)


def _freshness(materialiser: Materialiser, folder: Path) -> tuple[float, float]:
    """Seconds from an append to its row in the view, with a warm stream: p50 and p99."""
    checkpoint = Path(tempfile.mkdtemp(dir=folder))
    query = materialiser.follow(checkpoint)
    writer = Writer(9_999_999)
    store = materialiser.store
    query.processAllAvailable()
    waits = []
    for number, payload in enumerate(slothmails(120)):
        start = perf_counter()
        store.ingest([writer.sign(payload)])
        newest = store.read(newest_offset)
        while materialiser.views.progress()[1] < newest:
            sleep(0.002)
        if number >= 20:
            waits.append(perf_counter() - start)
        sleep(0.03)
    query.stop()
    waits.sort()
    return median(waits), waits[int(len(waits) * 0.99)]


def _freshness_rows(small: tuple[float, float], large: tuple[float, float]) -> Iterator[Row]:
    for size, (p50, p99) in ((FEW, small), (ENTRIES, large)):
        note = f"p99 {p99:.3f} s; 100 appends"
        name = f"append to visible, {size:,} entries, p50"
        yield Row(name, 1 / p50, "one second", 1, p50, "<= 0.50", p50 <= 0.5, note)
    yield _cost("append to visible in a large store", large[0], f"with {FEW:,} entries", small[0], 1.3)


def _long(spark: SparkSession, folder: Path) -> Row:
    """One more entry on a long log against one on a short log."""

    def seconds(count: int) -> float:
        with views_of(spark, long_log(count), folder) as (materialiser, _):
            times = []
            for item in next_of_long_log(materialiser.store, 30):
                materialiser.store.ingest([item])
                times.append(_seconds(materialiser.catch_up))
        return median(times[10:])

    return _cost(f"one more entry on a log of {LONG:,}", seconds(LONG), "on a log of 100", seconds(100), 1.1)


def _schemas(spark: SparkSession, folder: Path) -> Row:
    """The same messages in 200 schemas against one, in a batch."""

    def seconds(schemas: int) -> float:
        with views_of(spark, many_schemas(SCHEMAS), folder) as (materialiser, _):
            items = messages_of_schemas(schemas, 1_000, 15)
            times = []
            for start in range(0, len(items), 3_000):
                materialiser.store.ingest(items[start : start + 3_000])
                times.append(_seconds(materialiser.catch_up))
        return median(times)

    return _cost(f"a batch in {SCHEMAS} schemas", seconds(SCHEMAS), "in one schema", seconds(1), 3, "; 3,000 messages")

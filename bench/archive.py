"""Importing an archive, against bare signature checks on all cores: the verify stage alone, and all of it.

The archive holds the entries of bench.pipeline, INKGROVE_BENCH_ENTRIES of them; it is kept in .cache/bench.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from nacl.bindings import crypto_sign_open

from bench.harness import Row
from bench.pipeline import ENTRIES
from bench.stores import AUTHORS, many_authors
from bench.verification import signed_log, slothmails
from inkgrove.pipeline.archive import import_archive, open_archive, verify_archive
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.store.logs import open_store

CORES = os.cpu_count() or 1
ROUNDS = int(os.environ.get("INKGROVE_BENCH_ROUNDS", "3"))
RAW = 40_000
_FEW = 20_000


def write_archive(home: Path, target: Path) -> None:
    """The entries of a store, as an export has them."""
    schema = pa.schema([("entry", pa.binary()), ("payload", pa.binary())])
    cursor = sqlite3.connect(home / "node.db").execute("SELECT encoded, payload FROM entries ORDER BY id")
    unfinished = target.with_suffix(".part")
    with pq.ParquetWriter(unfinished, schema) as writer:
        while some := cursor.fetchmany(25_000):
            encoded, payloads = zip(*some, strict=True)
            writer.write_table(pa.table({"entry": list(encoded), "payload": list(payloads)}, schema))
    unfinished.replace(target)


def _verify_raw(count: int) -> float:
    """Seconds for bare signature checks."""
    encoded = signed_log(list(slothmails(1_000)))
    author, signed = encoded[0][1:33], [data[-64:] + data[:-64] for data in encoded]
    start = perf_counter()
    for _ in range(count // len(signed)):
        for data in signed:
            crypto_sign_open(data, author)
    return perf_counter() - start


def raw_rate() -> float:
    """Signature checks per second with every core at work."""
    with get_context("spawn").Pool(CORES) as pool:
        return sum(RAW / seconds for seconds in pool.map(_verify_raw, [RAW] * CORES))


def rows() -> Iterator[Row]:
    cache = many_authors(ENTRIES)
    file = Path(".cache") / "bench" / f"{ENTRIES}.parquet"
    if not file.exists():
        write_archive(cache, file)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = start_session(folder / "logs", {"spark.master": f"local[{CORES}]"})
        warm_up = folder / "few.parquet"
        pq.write_table(_first(file), warm_up)

        def verify(path: Path, number: int) -> float:
            with open_store(folder / f"empty{number}") as store:
                start = perf_counter()
                verified = verify_archive(spark, store, open_archive(path))
                assert verified.logs.where("is_clean").count() >= 1
                seconds = perf_counter() - start
                verified.release()
            return seconds

        def take(path: Path, number: int) -> float:
            home = folder / f"full{number}"
            with open_store(home) as store:
                start = perf_counter()
                report = import_archive(spark, store, path, folder / "rejected.parquet", lambda _: None)
                seconds = perf_counter() - start
            assert report.appended == report.read, report
            shutil.rmtree(home)
            return seconds

        verify(warm_up, 0)
        take(warm_up, 0)
        total = open_archive(file).rows
        note = f"{total:,} entries of {AUTHORS:,} authors, {CORES} cores"
        raw: list[float] = []
        verified: list[float] = []
        taken: list[float] = []
        for number in range(1, ROUNDS + 1):
            raw.append(raw_rate())
            verified.append(total / verify(file, number))
            taken.append(total / take(file, number))
        for what, rates, target in (
            ("import: verify stage", verified, 0.75),
            ("import: whole, into SQLite", taken, 0.5),
        ):
            ratio = median(ours / base for ours, base in zip(rates, raw, strict=True))
            yield Row(
                what,
                median(rates),
                "libsodium verifies, all cores",
                median(raw),
                ratio,
                f">= {target:.2f}",
                ratio >= target,
                note,
            )
        spark.stop()


def _first(file: Path) -> pa.Table:
    return pa.Table.from_batches([next(pq.ParquetFile(file).iter_batches(_FEW))])

"""Importing an archive in any order equals taking its entries in one by one; crashes and bad files do no harm."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from inkgrove.core import Hash, decode_entry, hash_entry
from inkgrove.messages import Create, SchemaVersion, Update, encode_message
from inkgrove.pipeline.archive import (
    CHUNK,
    ArchiveRow,
    ImportReport,
    Loader,
    check_batch,
    claims_of,
    import_archive,
    judge_logs,
    keep_without_path,
    open_archive,
    read_slice,
    verify_archive,
    with_links,
)
from inkgrove.pipeline.tables import CHECKED, spark_schema
from inkgrove.store.logs import (
    IngestStatus,
    LogStore,
    find_create_seqs,
    find_fork_proof,
    newest_offset,
    open_store,
    read_entries,
    read_ingests,
    read_logs,
)
from tests.spark.test_archive import write_archive
from tests.store.test_verdicts import make_offers
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key

Lines = list[tuple[bytes | None, bytes | None]]
pytestmark = pytest.mark.usefixtures("uncompiled")


def in_order(lines: Lines) -> list[tuple[bytes, bytes | None]]:
    """The order that an import has, whatever the order of the rows: by place, hash, and the payload first."""

    def place(line: tuple[Any, Any]) -> tuple[Any, ...]:
        entry = decode_entry(line[0])
        is_rubbish = line[1] == b"rubbish"
        return entry.seq_num, bytes(hash_of(line[0])), line[1] is None or is_rubbish, is_rubbish

    return sorted(((data or b"", payload) for data, payload in lines), key=place)


def hash_of(data: bytes) -> bytes:
    return hash_entry(decode_entry(data))


def one_by_one(store: LogStore, lines: Lines) -> ImportReport:
    report = ImportReport(read=len(lines))
    for line in in_order(lines):
        (receipt,) = store.ingest([line])
        if receipt.error is not None:
            report.rejected[receipt.error.code] += 1
        elif receipt.status is IngestStatus.KNOWN:
            report.known += 1
        else:
            report.appended += 1
    return report


def state(store: LogStore) -> dict[Any, Any]:
    """Everything a store holds, but for its own numbers."""
    return {
        (log.author, log.log_id): (
            log.height,
            log.held,
            log.standing,
            store.read(find_fork_proof, log.author, log.log_id),
            sorted(
                (item.entry.encoded, item.payload or b"") for item in store.read(read_entries, log.author, log.log_id)
            ),
            {
                seq: sorted(found.items())
                for seq in [0]
                for found in [store.read(find_create_seqs, log.id, range(1, log.height + 1))]
            },
        )
        for log in store.read(read_logs).values()
    }


def messages(log: LogBuilder, count: int, rng: random.Random) -> LogBuilder:
    """Creates, and updates that name them by hash or number."""
    schema = SchemaVersion(key(9).public, 1, 2)
    for _ in range(count):
        if log.entries and rng.random() < 0.6:
            number = rng.randint(1, len(log.entries))
            either: list[Hash | int] = [log.hash(number), number]
            log.append(encode_message(Update(schema, rng.choice(either), {"a": 1})))
        else:
            log.append(encode_message(Create(schema, {"a": rng.randint(0, 99)})))
    return log


def lines_of(seed: int) -> Lines:
    rng = random.Random(seed)
    lines: Lines = []
    for _ in range(14):
        lines += [(entry.encoded, payload) for entry, payload in make_offers(rng)]
    for number in range(3):
        log = messages(LogBuilder(key(100 + number), log_id=rng.choice([1, 300, 2**40])), 30, rng)
        held = rng.choice([1.0, 0.7])
        lines += [
            (entry.encoded, rng.choice([payload, payload, None]))
            for entry, payload in zip(log.entries, log.payloads, strict=True)
            if rng.random() < held or entry.seq_num in (1, 4, 13)
        ]
    rng.shuffle(lines)
    return lines


def take(spark: SparkSession, store: LogStore, path: Path, chunk: int = CHUNK) -> ImportReport:
    return import_archive(spark, store, path, path.with_name("rejected.parquet"), lambda _: None, chunk=chunk)


@pytest.mark.parametrize("seed", range(4))
def test_import_equals_ingest_one_by_one(spark: SparkSession, place: Path | str, tmp_path: Path, seed: int) -> None:
    lines = lines_of(seed)
    with open_store(place) as store, open_store(tmp_path / "plain") as plain:
        if seed % 2:
            # The store has a part already, in whatever order that came.
            part = lines[: len(lines) // 3]
            assert one_by_one(plain, part).read == len(part)
            store.ingest(in_order(part))
            assert state(store) == state(plain)
        expected = one_by_one(plain, lines)
        found = take(spark, store, write_archive(tmp_path / "archive.parquet", lines), [CHUNK, 3][seed // 2])
        assert found == expected
        assert found.read == found.appended + found.known + found.rejected.total()
        assert state(store) == state(plain)
        offset, plain_offset = store.read(newest_offset), plain.read(newest_offset)
        again = take(spark, store, tmp_path / "archive.parquet")
        assert again.appended == 0
        # What was refused before a fork came to light is kept as evidence when it comes again, in either way.
        assert again == one_by_one(plain, lines)
        assert state(store) == state(plain)
        assert (store.read(newest_offset) == offset) is (plain.read(newest_offset) == plain_offset)
        reasons = pq.read_table(tmp_path / "rejected.parquet")["code"].to_pylist()
        assert Counter(reasons) == again.rejected


def test_every_appended_entry_has_a_position(spark: SparkSession, place: Path | str, tmp_path: Path) -> None:
    logs = [messages(LogBuilder(key(number)), 50, random.Random(number)) for number in range(1, 5)]
    lines: Lines = [(e.encoded, p) for log in logs for e, p in zip(log.entries, log.payloads, strict=True)]
    with open_store(place) as store:
        take(spark, store, write_archive(tmp_path / "first.parquet", lines[:130]))
        middle = store.read(newest_offset)
        take(spark, store, write_archive(tmp_path / "all.parquet", lines[::-1]))
        before, _ = store.read(read_ingests)
        after, _ = store.read(read_ingests, middle)
        assert (len(before), len(after)) == (200, 70)
        assert {item.hash for item in before} == {hash_of(data or b"") for data, _ in lines}


def test_late_entry_gets_the_messages_that_waited_for_it(
    spark: SparkSession, place: Path | str, tmp_path: Path
) -> None:
    schema = SchemaVersion(key(9).public, 1, 2)
    log = LogBuilder(key(1)).grow(4)
    log.append(encode_message(Create(schema, {"a": 1})))
    log.grow(3)
    log.append(encode_message(Update(schema, log.hash(5), {"a": 2})))
    # 9 links to 8, 8 to 4 and 4 to 1: entry 5 is not needed for a path.
    partial = [(log.entry(n).encoded, log.payloads[n - 1]) for n in (1, 4, 8, 9)]
    with open_store(place) as store:
        assert [receipt.status for receipt in store.ingest(partial)] == [IngestStatus.STORED] * 4
        (number,) = store.read(read_logs)
        assert store.read(find_create_seqs, number, [9]) == {log.hash(9): 9}
        rest: Lines = [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]
        found = take(spark, store, write_archive(tmp_path / "archive.parquet", rest))
        assert (found.appended, found.known, dict(found.rejected)) == (5, 4, {})
        assert store.read(find_create_seqs, number, [9]) == {log.hash(9): 5}


def test_log_that_moved_since_it_was_looked_at_is_taken_with_care(place: Path | str) -> None:
    log = LogBuilder(key(1)).grow(6)
    name = key(1).public + (1).to_bytes(8, "big")
    numbers = [1, 2, 2, 3, 4, 5, 6, 6]
    rows = [
        ArchiveRow(name, n, log.hash(n), log.entry(n).encoded, log.payloads[n - 1], False, None, None, True, 0, 0)
        for n in numbers
    ]
    with open_store(place) as store:
        # When the archive was verified, nothing was held.
        store.ingest([(entry.encoded, None) for entry in log.entries[:3]])
        loader = Loader(store.place, 3)
        for row in rows:
            loader.add(row)
        loader.flush()
        assert loader.counts == {"appended": 6, "known": 2}
        assert store.heights() == {(key(1).public, 1): 6}
        assert [item.payload for item in store.read(read_entries, key(1).public, 1)] == log.payloads


def test_large_lines_are_appended_before_many_have_gathered(place: Path | str) -> None:
    log = LogBuilder(key(1))
    for number in range(7):
        log.append(bytes([number]) * 1_000)
    name = key(1).public + (1).to_bytes(8, "big")
    with open_store(place) as store:
        for is_clean, most in ((True, 6), (False, 7)):
            loader = Loader(store.place, CHUNK, most_bytes=3_000)
            held = []
            for n in range(most - 5, most + 1):
                facts = name, n, log.hash(n), log.entry(n).encoded, log.payloads[n - 1], False
                loader.add(ArchiveRow(*facts, None, None, is_clean, 0, 0))
                held.append(loader.counts.total())
            assert held == [0, 0, 3, 3, 3, 6]
        assert store.heights() == {(key(1).public, 1): 7}


def test_links_and_forks_are_joins_and_group_bys_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder(key(1)).grow(20)
    lines: Lines = [(entry.encoded, None) for entry in log.entries]
    write_archive(tmp_path / "archive.parquet", lines)

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(check_batch, batches)

    checked = spark.read.parquet(str(tmp_path / "archive.parquet")).mapInArrow(check, spark_schema(CHECKED))
    placed = checked.repartition(2, "log").persist()
    placed.count()
    linked = with_links(placed)
    judged = plan_above_cache(judge_logs(linked))
    assert "Aggregate" in judged
    assert "Exchange" not in judged
    joined = plan_above_cache(keep_without_path(linked))
    assert joined.count("Join") == 2
    for plan in (judged, joined, plan_above_cache(claims_of(linked))):
        assert "Python" not in plan
        assert "MapInArrow" not in plan
    placed.unpersist()


def plan_above_cache(frame: Any) -> str:
    """The plan down to the checked entries, which are cached."""
    lines, depth = [], None
    for line in frame._jdf.queryExecution().executedPlan().toString().splitlines():
        indent = len(line) - len(line.lstrip(" :+-"))
        if depth is not None and indent > depth:
            continue
        depth = indent if "InMemoryTableScan" in line else None
        lines.append(line)
    return "\n".join(lines)


def test_verdicts_on_logs_do_not_depend_on_the_order_of_rows(spark: SparkSession, tmp_path: Path) -> None:
    whole, forked, cut = LogBuilder(key(1)).grow(9), LogBuilder(key(2)).grow(9), LogBuilder(key(3)).grow(9)
    lines: Lines = [(entry.encoded, None) for log in (whole, forked) for entry in log.entries]
    lines += [(forked.fork_at(7).entry(7).encoded, None)]
    lines += [(cut.entry(number).encoded, None) for number in (1, 2, 6, 7)]
    random.Random(1).shuffle(lines)
    with open_store(tmp_path / "home") as store:
        found = verify_archive(spark, store, open_archive(write_archive(tmp_path / "archive.parquet", lines)))
        verdicts = {bytes(row["log"][:32]): row["is_clean"] for row in found.logs.collect()}
        found.release()
    assert verdicts == {key(1).public: True, key(2).public: False, key(3).public: False}


def test_slices_give_every_line_once(tmp_path: Path) -> None:
    table = pa.table({"entry": [str(n).encode() for n in range(120_001)]}, pa.schema([("entry", pa.binary())]))
    pq.write_table(table, tmp_path / "big.parquet", row_group_size=110_000)
    archive = open_archive(tmp_path / "big.parquet")
    assert [part.rows for part in archive.slices] == [27_500] * 4 + [10_001]
    found = [
        int(value)
        for part in archive.slices
        for batch in read_slice(part, has_payloads=archive.has_payloads)
        for value in batch.column("entry").to_pylist()
    ]
    assert found == list(range(120_001))


def bad_archives(folder: Path) -> dict[str, Path]:
    whole = write_archive(folder / "whole.parquet", [(b"x" * 1000, None)] * 100).read_bytes()
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    (folder / "text.parquet").write_bytes(b"no Parquet at all")
    (folder / "empty").mkdir()
    pq.write_table(pa.table({"other": [1]}), folder / "columns.parquet")
    pq.write_table(pa.table({"entry": ["text"], "payload": [b""]}), folder / "types.parquet")
    pq.write_table(pa.table({"entry": [b""], "payload": [1]}), folder / "payloads.parquet")
    damaged = bytearray(whole)
    damaged[10:60] = bytes(50)
    (folder / "damaged.parquet").write_bytes(bytes(damaged))
    names = ("cut.parquet", "text.parquet", "empty", "columns.parquet", "types.parquet", "payloads.parquet")
    return {name: folder / name for name in (*names, "damaged.parquet")}


def test_what_is_no_archive_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "home") as store:
        for name, path in bad_archives(tmp_path).items():
            with raises("pipeline.bad-archive") as caught:
                take(spark, store, path)
            assert "\n" not in caught.value.message, name
            assert path.name in caught.value.message
            assert store.heights() == {}


def test_column_of_payloads_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    log = LogBuilder(key(1)).grow(3)
    entries = pa.array([entry.encoded for entry in log.entries], pa.large_binary())
    pq.write_table(pa.table({"entry": entries}), tmp_path / "archive.parquet")
    with open_store(tmp_path / "home") as store:
        assert take(spark, store, tmp_path / "archive.parquet").appended == 3


IMPORT = """
import sys
from pathlib import Path
from inkgrove.pipeline.archive import import_archive
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.store.logs.log_store import open_store

home, archive = Path(sys.argv[1]), Path(sys.argv[2])
spark = start_session(home / "spark-logs")
import_archive(spark, open_store(home), archive, home / "rejected.parquet", lambda _: None, chunk=300)
"""


def test_killed_import_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    lines: Lines = []
    for number in range(1, 41):
        log = LogBuilder(key(number)).grow(500)
        lines += [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]
    random.Random(5).shuffle(lines)
    archive, home = write_archive(tmp_path / "archive.parquet", lines), tmp_path / "home"
    with open_store(home) as store:
        process = subprocess.Popen([sys.executable, "-c", IMPORT, str(home), str(archive)])
        try:
            while process.poll() is None and not store.heights():
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
        time.sleep(2)  # a worker may finish the transaction it is in
        held = sum(log.held for log in store.read(read_logs).values())
        assert 0 < held < 20_000
        assert {log.is_whole for log in store.read(read_logs).values()} == {True}
        found = take(spark, store, archive)
        assert (found.appended, found.known, dict(found.rejected)) == (20_000 - held, held, {})
        assert [(log.height, log.held) for log in store.read(read_logs).values()] == [(500, 500)] * 40
        positions = [item.hash for item in store.read(read_ingests, limit=30_000)[0]]
        assert len(positions) == len(set(positions)) == 20_000

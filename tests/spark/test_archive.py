"""Archives: everything comes back from an export, bad entries are told by their reasons, twice changes nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from inkgrove.pipeline.archive import export_archive, import_archive, in_batches, open_archive, read_slice
from inkgrove.pipeline.runtime.progress import Progress
from inkgrove.pipeline.views import Materialiser, export_view
from inkgrove.store.logs import LogStore, newest_offset, open_store, register_schema
from tests.spark.test_views import SEEDS, Shop
from tests.support.errors import raises
from tests.support.generated import Generator
from tests.support.logs import LogBuilder, key, resign, sparse_log
from tests.support.views import expected_of, held_by, materialised
from tests.unit.schema.test_oracle import exact

SCHEMA = pa.schema([("entry", pa.binary()), ("payload", pa.binary())])
pytestmark = pytest.mark.usefixtures("uncompiled")


def write_archive(path: Path, lines: list[tuple[bytes | None, bytes | None]]) -> Path:
    entries, payloads = zip(*lines, strict=True) if lines else ((), ())
    pq.write_table(pa.table({"entry": list(entries), "payload": list(payloads)}, SCHEMA), path)
    return path


def take(spark: SparkSession, store: LogStore, path: Path) -> tuple[int, int, int, dict[str, int]]:
    report = import_archive(spark, store, path, path.with_name("rejected.parquet"), lambda _: None)
    return report.read, report.appended, report.known, dict(report.rejected)


@pytest.mark.parametrize("seed", SEEDS[: max(3, len(SEEDS) // 2)])
def test_import_of_an_export_is_the_same_store(
    spark: SparkSession, place: Path | str, tmp_path: Path, seed: int
) -> None:
    """The same worlds as those that `test_views` streams and rebuilds; what all of them are held to is the oracle."""
    archive = tmp_path / "archive"
    world = Generator(seed).world()
    with open_store(tmp_path / "first") as store:
        for _ in range(2):  # what was refused for want of a path finds one
            store.ingest([(item.signed.entry.encoded, item.payload) for item in world.held])
        held = held_by(store)
        assert export_archive(spark, store.place, archive) == len(held)
    other = Materialiser(spark, str(place))
    assert take(spark, other.store, archive)[0] == len(held)
    assert {item.signed.hash for item in held_by(other.store)} == {item.signed.hash for item in held}
    for schema_id in world.registered:
        other.store.write(register_schema, schema_id)
    other.catch_up()
    assert exact(materialised(other)) == exact(expected_of(held, world.registered))
    before = other.store.read(newest_offset)
    take(spark, other.store, archive)
    assert other.store.read(newest_offset) == before
    # And out of this database again.
    assert export_archive(spark, other.store_url, tmp_path / "again") == len(held)
    assert lines_in(tmp_path / "again") == lines_in(archive)
    other.close()


def lines_in(path: Path) -> list[tuple[bytes, bytes]]:
    table = pq.read_table(path)
    return sorted((row["entry"], row["payload"] or b"") for row in table.to_pylist())


def test_export_of_a_sparse_log_ends(spark: SparkSession, tmp_path: Path) -> None:
    entries = sparse_log(key(3), 39)
    told: list[Progress] = []
    with open_store(tmp_path / "home") as store:
        store.ingest([(entry, b"sparse") for entry in entries])
        assert export_archive(spark, store.place, tmp_path / "archive", told.append) == 39
    assert lines_in(tmp_path / "archive") == sorted((entry.encoded, b"sparse") for entry in entries)
    assert told[-1] == Progress("writing entries", 39, 39)


def test_batches_are_cut_by_bytes_as_well_as_by_lines(tmp_path: Path) -> None:
    payloads: list[bytes | None] = [*[b"x" * 999] * 5, *[None] * 4, b"y" * 9_999]
    lines = [(b"e", payload) for payload in payloads]
    assert [len(batch) for batch in in_batches(lines, 3, 2_000)] == [2, 2, 3, 3]
    assert [len(batch) for batch in in_batches(lines, 100, 2_000)] == [2, 2, 6]
    path = write_archive(tmp_path / "archive.parquet", [*lines])
    (part,) = open_archive(path).slices
    found = list(read_slice(part, has_payloads=True, most_bytes=2_000))
    assert [row for batch in found for row in batch.to_pylist()] == pq.read_table(path).to_pylist()
    assert all(batch.nbytes <= 2_000 or len(batch) == 1 for batch in found)
    assert len(found) > 4


def test_rejects_of_an_earlier_import_do_not_stay(spark: SparkSession, tmp_path: Path) -> None:
    rejects = tmp_path / "rejected.parquet"
    log = LogBuilder(key(1)).grow(3)
    lines: list[tuple[bytes | None, bytes | None]] = [(entry.encoded, None) for entry in log.entries]
    with open_store(tmp_path / "home") as store:
        bad = write_archive(tmp_path / "bad.parquet", [(b"rubbish", None)])
        assert take(spark, store, bad)[3] == {"entry.bad-tag": 1}
        assert pq.read_table(rejects)["code"].to_pylist() == ["entry.bad-tag"]
        assert take(spark, store, write_archive(tmp_path / "good.parquet", lines)) == (3, 3, 0, {})
    assert not rejects.exists()


def test_bad_entries_are_told_by_their_reasons(spark: SparkSession, tmp_path: Path) -> None:
    log, other = LogBuilder(key(1)).grow(300), LogBuilder(key(2)).grow(5)
    lines: list[tuple[bytes | None, bytes | None]] = []
    lines += [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)][::-1]
    forged = other.entry(1).encoded[:-1] + bytes([other.entry(1).encoded[-1] ^ 1])
    lines += [(forged, None), (b"rubbish", None), (None, None), (other.entry(5).encoded, None)]
    lines += [(resign(key(3), LogBuilder(key(3)).grow(1).entry(1).encoded), b"another payload")]
    archive = write_archive(tmp_path / "archive.parquet", lines)
    store = open_store(tmp_path / "home")
    assert take(spark, store, archive) == (
        305,
        300,
        0,
        {
            "entry.bad-signature": 1,
            "entry.bad-tag": 1,
            "entry.truncated": 1,
            "entry.no-path-to-first": 1,
            "payload.hash-mismatch": 1,
        },
    )
    assert pq.read_table(tmp_path / "rejected.parquet").num_rows == 5
    assert store.heights() == {(key(1).public, 1): 300, (key(3).public, 1): 1}
    assert take(spark, store, archive)[1:3] == (0, 300)
    store.close()


def test_what_is_no_archive_is_refused_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(tmp_path / "home")
    whole = write_archive(tmp_path / "whole.parquet", [(b"x" * 1000, None)]).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(pa.table({"other": [1]}), tmp_path / "columns.parquet")
    for name in ("cut.parquet", "columns.parquet"):
        with raises("pipeline.bad-archive") as caught:
            take(spark, store, tmp_path / name)
        assert "\n" not in caught.value.message
    assert take(spark, store, write_archive(tmp_path / "empty.parquet", [])) == (0, 0, 0, {})
    store.close()


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "delta"])
def test_view_is_exported_whole(on_sqlite: Materialiser, tmp_path: Path, form: str) -> None:
    shop = Shop(on_sqlite)
    shop.migrate({"b": {"action": "create", "type": "integer[]", "default": [1, 2]}})
    for number in range(7):
        shop.create(f"note {number}")
    on_sqlite.catch_up()
    (view,) = on_sqlite.views.views().values()
    target = tmp_path / "out"
    assert export_view(on_sqlite.spark, on_sqlite.store_url, view, target, form) == 7  # type: ignore[arg-type]
    # One task reads one state of the view: one file, as the documentation says.
    assert len([file for file in target.glob("part-*") if not file.name.endswith(".crc")]) == 1
    if form == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    elif form == "parquet":
        rows = pq.read_table(target).to_pylist()
    else:
        reader = on_sqlite.spark.read.option("header", "true").format(form).load(str(target))
        rows = [row.asDict() for row in reader.collect()]
    assert sorted(row["a"] for row in rows) == [f"note {number}" for number in range(7)]
    assert {str(row["b"]) for row in rows} == {"[1, 2]"}
    with raises("input.unreadable-file"):
        export_view(on_sqlite.spark, on_sqlite.store_url, view, target, form)  # type: ignore[arg-type]

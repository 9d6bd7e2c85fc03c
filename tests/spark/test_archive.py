"""Archives: everything comes back from an export, bad entries are told by their reasons, twice changes nothing."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from inkgrove.core.errors import BadArchive, UnreadableFile
from inkgrove.pipeline.archive import export_archive, import_archive
from inkgrove.pipeline.materialiser import Materialiser
from inkgrove.pipeline.view_export import export_view
from inkgrove.store.log_store import LogStore
from inkgrove.store.opening import open_store
from tests.spark.test_views import Shop, play
from tests.support.logs import LogBuilder, key, resign
from tests.support.views import expected, held_by, materialised
from tests.unit.schema.test_oracle import exact

SCHEMA = pa.schema([("entry", pa.binary()), ("payload", pa.binary())])


def write_archive(path: Path, lines: list[tuple[bytes | None, bytes | None]]) -> Path:
    entries, payloads = zip(*lines, strict=True) if lines else ((), ())
    pq.write_table(pa.table({"entry": list(entries), "payload": list(payloads)}, SCHEMA), path)
    return path


def take(spark: SparkSession, store: LogStore, path: Path) -> tuple[int, int, int, dict[str, int]]:
    report = import_archive(spark, store, path, path.with_name("rejected.parquet"), lambda _: None)
    return report.read, report.appended, report.known, dict(report.rejected)


def test_import_of_an_export_is_the_same_store(on_sqlite: Materialiser, tmp_path: Path) -> None:
    play(on_sqlite, 3)
    archive = tmp_path / "archive"
    count = export_archive(on_sqlite.spark, on_sqlite.place, archive)
    held = held_by(on_sqlite.store)
    assert count == len(held)
    other = Materialiser(on_sqlite.spark, str(tmp_path / "other"))
    read, _, _, _ = take(on_sqlite.spark, other.store, archive)
    assert read == count
    assert {item.signed.hash for item in held_by(other.store)} == {item.signed.hash for item in held}
    for schema_id in on_sqlite.store.registered():
        other.store.register(schema_id)
    other.catch_up()
    assert exact(materialised(other)) == exact(expected(other)) == exact(materialised(on_sqlite))
    before = other.store.newest_offset()
    take(on_sqlite.spark, other.store, archive)
    assert other.store.newest_offset() == before
    other.close()


def test_bad_entries_are_told_by_their_reasons(spark: SparkSession, tmp_path: Path) -> None:
    log, other = LogBuilder(key(1)).grow(300), LogBuilder(key(2)).grow(5)
    lines: list[tuple[bytes | None, bytes | None]] = [
        (entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)
    ][::-1]
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
        with pytest.raises(BadArchive) as caught:
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
    assert export_view(on_sqlite.spark, on_sqlite.place, view, target, form) == 7  # type: ignore[arg-type]
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
    with pytest.raises(UnreadableFile):
        export_view(on_sqlite.spark, on_sqlite.place, view, target, form)  # type: ignore[arg-type]

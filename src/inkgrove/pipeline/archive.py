"""Archives: all entries of a store as Parquet, and Parquet taken into a store with full verification.

docs/protocol.md section 2. An archive has the columns `entry` (binary) and `payload` (binary, may be null), in any
order. Tasks check bytes, signatures and payload hashes in Arrow batches and bring each log into order; the store then
checks links, claims and paths as it does for everyone, without verifying signatures again.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, length, lit
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import BadArchive, InkgroveError, PayloadHashMismatch, PayloadSizeMismatch
from inkgrove.core.hashing import Hash
from inkgrove.core.verify import SignedEntry, verify_payload, verify_signed
from inkgrove.pipeline.failures import first_reason
from inkgrove.pipeline.fold import open_once
from inkgrove.pipeline.source import InkgroveSource
from inkgrove.store.decide import Status
from inkgrove.store.log_store import LogStore

ARCHIVE = StructType([StructField("entry", BinaryType()), StructField("payload", BinaryType())])
CHECKED = StructType(
    [
        StructField("log", BinaryType()),
        StructField("seq_num", StringType()),
        StructField("hash", BinaryType()),
        StructField("entry", BinaryType()),
        StructField("payload", BinaryType()),
        StructField("code", StringType()),
    ]
)
_CHUNK = 5_000


@dataclass(slots=True)
class ImportReport:
    """What became of an archive."""

    read: int = 0
    appended: int = 0
    known: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


def export_archive(spark: SparkSession, place: str, path: Path) -> int:
    """Write every entry of a store, evidence included; returns how many."""
    spark.dataSource.register(InkgroveSource)
    logs = spark.read.format("inkgrove").option("store", place).load()
    logs.mapInArrow(_read_entries(place), ARCHIVE).write.mode("errorifexists").parquet(str(path))
    return spark.read.parquet(str(path)).count()


def _read_entries(place: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_once(place)
        for batch in batches:
            for log in batch.column("log").to_pylist():
                if log is None:
                    continue
                state = store.logs([log])[log]
                for first in range(1, state.height + 1, _CHUNK):
                    held = store.entries_of(state.author, state.log_id, first, first + _CHUNK - 1)
                    columns = {
                        "entry": [item.entry.encoded for item in held],
                        "payload": [item.payload for item in held],
                    }
                    yield pa.RecordBatch.from_pydict(
                        columns, pa.schema([("entry", pa.binary()), ("payload", pa.binary())])
                    )

    return run


def import_archive(
    spark: SparkSession, store: LogStore, path: Path, rejects: Path, on_progress: Callable[[ImportReport], None]
) -> ImportReport:
    """Take an archive into a store; what is refused is written to `rejects`, with the reason."""
    report = ImportReport()
    checked = _checked(spark, path)
    staged = rejects.with_name(f"{rejects.name}.checked")
    try:
        # In order of log and sequence number: every entry finds what it links to in the store or before it.
        ordered = checked.repartitionByRange(col("log")).sortWithinPartitions("log", length("seq_num"), "seq_num")
        ordered.write.mode("overwrite").parquet(str(staged))
    except (PySparkException, Py4JError) as err:
        raise BadArchive(f"{path} cannot be read as an archive: {first_reason(err)}") from err
    refused: list[dict[str, Any]] = []
    for file in sorted(staged.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(_CHUNK):
            _take(store, batch, report, refused)
            on_progress(report)
    if refused:
        rejects.parent.mkdir(parents=True, exist_ok=True)
        schema = pa.schema([("entry", pa.binary()), ("code", pa.string()), ("message", pa.string())])
        pq.write_table(pa.Table.from_pylist(refused, schema), rejects)
    shutil.rmtree(staged)
    return report


def _checked(spark: SparkSession, path: Path) -> DataFrame:
    try:
        archive = spark.read.parquet(str(path))
    except (PySparkException, Py4JError) as err:
        raise BadArchive(f"{path} cannot be read as an archive: {first_reason(err)}") from err
    columns = {item.name: item.dataType for item in archive.schema}
    if columns.get("entry") != BinaryType() or columns.get("payload", BinaryType()) != BinaryType():
        raise BadArchive(
            f"{path} needs the columns entry and payload, both binary; it has {', '.join(columns) or 'none'}"
        )
    payload = col("payload") if "payload" in columns else lit(None).cast(BinaryType()).alias("payload")
    return archive.select("entry", payload).mapInArrow(check_batches, CHECKED)


def check_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Bytes, signature and payload hash of each entry; what fails carries its code."""
    for batch in batches:
        columns: dict[str, list[Any]] = {item.name: [] for item in CHECKED}
        for encoded, payload in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            code, log, seq_num, entry_hash = None, b"", "", b""
            try:
                signed = verify_signed(decode_entry(encoded or b""))
                entry = signed.entry
                log, seq_num = entry.author + entry.log_id.to_bytes(8, "big"), str(entry.seq_num)
                entry_hash = bytes(signed.hash)
                if payload is not None:
                    verify_payload(entry, payload)
            except PayloadHashMismatch as error:
                code, payload = error.code, None  # noqa: PLW2901  rubbish: the entry is good without it
            except PayloadSizeMismatch:
                pass  # the author's lie: the store keeps it as evidence
            except InkgroveError as error:
                code = error.code
            for name, value in zip(columns, (log, seq_num, entry_hash, encoded, payload, code), strict=True):
                columns[name].append(value)
        arrow = [pa.binary(), pa.string(), pa.binary(), pa.binary(), pa.binary(), pa.string()]
        arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _take(store: LogStore, batch: pa.RecordBatch, report: ImportReport, refused: list[dict[str, Any]]) -> None:
    items, is_counted = [], set()
    for row in batch.to_pylist():
        report.read += 1
        if row["code"] is not None:
            report.rejected[row["code"]] += 1
            refused.append({"entry": row["entry"], "code": row["code"], "message": "refused before the store"})
            is_counted.add(row["hash"])
        if row["hash"]:
            # The task has verified the signature of these very bytes.
            items.append((SignedEntry(decode_entry(row["entry"]), Hash(row["hash"])), row["payload"]))
    for (signed, _), receipt in zip(items, store.ingest(items), strict=True):
        if receipt.status is Status.REFUSED or receipt.status is Status.EVIDENCE:
            code = receipt.error.code if receipt.error is not None else "inkgrove"
            message = receipt.error.message if receipt.error is not None else ""
            report.rejected[code] += 1
            refused.append({"entry": signed.entry.encoded, "code": code, "message": message})
        elif signed.hash in is_counted:
            continue  # the entry is good, and its line was counted for the payload that is not its own
        elif receipt.status is Status.KNOWN:
            report.known += 1
        else:
            report.appended += 1

"""Archives: all entries of a store as Parquet, and Parquet taken into a store with full verification.

docs/protocol.md section 2. An archive has the columns `entry` (binary) and `payload` (binary, may be null), in any
order. Tasks read and check slices of it; the checked lines are brought together by log; Spark decides which logs are
clean; tasks load them. Nothing is written before all of the archive has been read.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import Accumulator, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, lit
from pyspark.sql.functions import max as max_
from pyspark.sql.functions import sum as sum_

from inkgrove.core.errors import StoreUnavailable
from inkgrove.pipeline.archive.existing import held_of
from inkgrove.pipeline.archive.files import Archive, open_archive, read_slice
from inkgrove.pipeline.archive.load import CHUNK, FAILED, REJECTED, ArchiveRow, load_task
from inkgrove.pipeline.archive.verify import check_batch, judge_logs, keep_without_path, with_links
from inkgrove.pipeline.runtime.batches import BATCH_BYTES
from inkgrove.pipeline.runtime.failures import raised_by_a_task
from inkgrove.pipeline.runtime.progress import OnProgress, tell_nobody, watched
from inkgrove.pipeline.runtime.workers import open_once
from inkgrove.pipeline.tables import ARCHIVE, CHECKED, LOADED, spark_schema
from inkgrove.pipeline.views.plan import InkgroveSource
from inkgrove.store.logs import LogStore, open_store, read_logs

_CHUNK = 5_000
_ROWS_PER_PARTITION = 50_000
_ROW_GROUP_BYTES = 16 << 20


@dataclass(slots=True)
class ImportReport:
    """How many lines of an archive were read, appended, known already, or rejected, by code."""

    read: int = 0
    appended: int = 0
    known: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


# Export


def export_archive(spark: SparkSession, store_url: str, path: Path, on_progress: OnProgress = tell_nobody) -> int:
    """Write every entry of a store, evidence included, to a new directory and return how many."""
    spark.dataSource.register(InkgroveSource)
    with open_store(store_url, create=False) as store:
        held = sum(log.held for log in store.read(read_logs).values())
    done = spark.sparkContext.accumulator(0)
    parts = max(spark.sparkContext.defaultParallelism, -(-held // _ROWS_PER_PARTITION))
    logs = spark.read.format("inkgrove").option("store", store_url).option("partitions", parts).load()
    written = logs.mapInArrow(_read_entries(store_url, done), spark_schema(ARCHIVE)).write.mode("errorifexists")
    with watched(done, "writing entries", held, on_progress):
        # Small row groups: whoever imports it can share the work.
        written.option("parquet.block.size", _ROW_GROUP_BYTES).parquet(str(path))
    return spark.read.parquet(str(path)).count()


def _read_entries(
    store_url: str, done: "Accumulator[int]"
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = open_once(store_url)
        for batch in batches:
            for log in batch.column("log").to_pylist():
                if log is None:
                    continue
                for lines in in_batches(store.lines_of(log)):
                    yield lines
                    done.add(len(lines))

    return run


def in_batches(
    lines: Iterable[tuple[bytes, bytes | None]], most: int = _CHUNK, most_bytes: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Entries with their payloads as Arrow batches: so many lines, or so many bytes and the line that exceeds them."""
    entries: list[bytes] = []
    payloads: list[bytes | None] = []
    size = 0
    for entry, payload in lines:
        entries.append(entry)
        payloads.append(payload)
        size += len(entry) + len(payload or b"")
        if len(entries) >= most or size >= most_bytes:
            yield pa.RecordBatch.from_pydict({"entry": entries, "payload": payloads}, ARCHIVE)
            entries, payloads, size = [], [], 0
    if entries:
        yield pa.RecordBatch.from_pydict({"entry": entries, "payload": payloads}, ARCHIVE)


# Import


def import_archive(
    spark: SparkSession, store: LogStore, path: Path, rejects: Path, on_progress: OnProgress, *, chunk: int = CHUNK
) -> ImportReport:
    """Ingest an archive; what is refused is written to the Parquet file `rejects`, with the reason.

    Raises PipelineError if the archive cannot be read, StoreUnavailable if the store cannot be written.
    """
    archive = open_archive(path)
    report = ImportReport(read=archive.rows)
    if not archive.rows:
        rejects.unlink(missing_ok=True)
        return report
    verified = verify_archive(spark, store, archive, on_progress)
    try:
        done = spark.sparkContext.accumulator(0)
        loaded = verified.lines.mapInArrow(load_task(store.place, done, chunk), spark_schema(LOADED)).persist(
            StorageLevel.DISK_ONLY
        )
        with watched(done, "appending", archive.rows, on_progress):
            counts = _counts(loaded)
        for status, code, message, rows in counts:
            if status == FAILED:
                raise StoreUnavailable(message)
            if status == REJECTED:
                report.rejected[code] += rows
            else:
                setattr(report, status, rows)
        if report.rejected:
            _write_file(loaded.where(col("status") == REJECTED).select("entry", "code", "message"), rejects)
        else:
            rejects.unlink(missing_ok=True)  # it would tell of another import
        loaded.unpersist()
    finally:
        verified.release()
    return report


def _counts(loaded: DataFrame) -> list[tuple[str, str, str, int]]:
    """How many lines there are of each kind: a few rows."""
    found = loaded.groupBy("status", "code").agg(max_("message").alias("message"), sum_("rows").alias("rows"))
    return [(row["status"], row["code"], row["message"], row["rows"]) for row in found.collect()]


def _write_file(rows: DataFrame, target: Path) -> None:
    """Write one Parquet file, in the place of the one that may be there."""
    folder = target.with_name(f".{target.name}.parts")
    rows.coalesce(1).write.mode("overwrite").parquet(str(folder))
    (part,) = folder.glob("*.parquet")
    part.replace(target)
    shutil.rmtree(folder)


def _check_slices(
    archive: Archive, done: "Accumulator[int]"
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    slices, has_payloads = archive.slices, archive.has_payloads

    def run(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for lines in read_slice(slices[number], has_payloads=has_payloads):
                    yield check_batch(lines)
                    done.add(len(lines))

    return run


@dataclass(frozen=True, slots=True)
class VerifiedArchive:
    """The lines of an archive, by log and in order, each with the verdict on itself and on its log."""

    lines: DataFrame
    """Rows like `load.ArchiveRow`."""
    logs: DataFrame
    kept: list[DataFrame]

    def release(self) -> None:
        """Throw away what Spark keeps on disk."""
        for frame in self.kept:
            frame.unpersist()


def verify_archive(
    spark: SparkSession, store: LogStore, archive: Archive, on_progress: OnProgress = tell_nobody
) -> VerifiedArchive:
    """Read and check all of an archive, and decide which of its logs are clean together with what the store holds."""
    done = spark.sparkContext.accumulator(0)
    numbers = spark.range(0, len(archive.slices), 1, len(archive.slices))
    partitions = max(spark.sparkContext.defaultParallelism, -(-archive.rows // _ROWS_PER_PARTITION))
    # One exchange brings each log together; the group-bys behind it need no other.
    checked = (
        numbers.mapInArrow(_check_slices(archive, done), spark_schema(CHECKED))
        .repartition(partitions, "log")
        .sortWithinPartitions("log", "seq_num", "hash", col("payload").isNull(), col("code").isNotNull())
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        with watched(done, "verifying", archive.rows, on_progress):
            checked.count()
    except (PySparkException, Py4JError) as err:
        checked.unpersist()
        # What is wrong with a file, tasks say themselves; all else is a fault of Spark, and no fault of the archive.
        if own := raised_by_a_task(err):
            raise own from err
        raise
    linked = with_links(checked)
    kept = [checked]
    held_logs, held_claims = held_of(store, linked, kept)
    logs = judge_logs(linked, held_logs, held_claims).persist(StorageLevel.DISK_ONLY)
    kept.append(logs)
    partial = logs.where("is_clean and not is_whole")
    if not partial.isEmpty():
        lost = keep_without_path(linked.join(partial.select("log"), "log", how="left_semi"), held_claims)
        lost = lost.select("log", lit(True).alias("is_lost"))
        is_clean = col("is_clean") & ~coalesce("is_lost", lit(False))
        logs = logs.join(lost, "log", how="left").select("log", is_clean.alias("is_clean"), "height", "held")
    lines = checked.join(logs.select("log", "is_clean", "height", "held"), "log", how="left")
    defaults = {"is_clean": lit(False), "height": lit(0), "held": lit(0)}
    columns = [
        coalesce(name, defaults[name]).alias(name) if name in defaults else col(name) for name in ArchiveRow._fields
    ]
    return VerifiedArchive(lines.select(*columns), logs, kept)

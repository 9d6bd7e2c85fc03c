"""Looks up what a store holds of the logs of an archive, at the sequence numbers that the archive speaks of.

docs/protocol.md section 2. Tasks do it, each for a part of the logs.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from inkgrove.pipeline.archive.verify import claims_of
from inkgrove.pipeline.runtime.batches import record_batch
from inkgrove.pipeline.runtime.workers import open_once
from inkgrove.pipeline.tables import HELD_CLAIMS, HELD_LOGS, spark_schema
from inkgrove.store.logs import START, VALID_LOG, LogStore, find_logs, newest_offset, read_claims


def held_of(store: LogStore, linked: DataFrame, kept: list[DataFrame]) -> tuple[DataFrame | None, DataFrame | None]:
    """The logs as the store holds them, and its claims about the sequence numbers that the entries speak of.

    None and None if it holds none of them. What Spark keeps on disk for it is added to `kept`.
    """
    if store.read(newest_offset) == START and not store.heights():
        return None, None
    store_url = store.place

    def look_up_logs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = open_once(store_url).read(find_logs, batch.column(0).to_pylist())
            rows = [
                (name, log.id, log.height, log.held, log.standing != VALID_LOG or log.aside > 0)
                for name, log in found.items()
            ]
            yield record_batch(rows, HELD_LOGS)

    def look_up_claims(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("log", "id", "height", "at")]
            names = dict(zip(columns[1], columns[0], strict=True))
            heights = dict(zip(columns[1], columns[2], strict=True))
            asked = set(zip(columns[1], columns[3], strict=True))
            with open_once(store_url).database.reading() as connection:
                rows = [
                    (names[item.log], item.at, item.claim.hash, item.claim.is_held)
                    for item in read_claims(connection, asked, heights)
                    if (item.log, item.at) in asked
                ]
            yield record_batch(rows, HELD_CLAIMS)

    found = linked.select("log").distinct().mapInArrow(look_up_logs, spark_schema(HELD_LOGS))
    logs = found.persist(StorageLevel.DISK_ONLY)
    kept.append(logs)
    if logs.isEmpty():
        return None, None
    asked = claims_of(linked).join(logs, "log").where("at <= height").select("log", "id", "height", "at").distinct()
    claims = asked.mapInArrow(look_up_claims, spark_schema(HELD_CLAIMS)).persist(StorageLevel.DISK_ONLY)
    kept.append(claims)
    return logs, claims

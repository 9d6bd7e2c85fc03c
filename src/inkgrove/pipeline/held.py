"""What a store holds of the logs of an archive: looked up by tasks, only at the places that the archive speaks of.

docs/protocol.md section 2.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from inkgrove.pipeline.fold import open_once
from inkgrove.pipeline.verify import HELD_CLAIMS_DDL, HELD_LOGS_DDL, claims_of
from inkgrove.store.ingests import START
from inkgrove.store.log_store import LogStore


def held_of(store: LogStore, linked: DataFrame, kept: list[DataFrame]) -> tuple[DataFrame | None, DataFrame | None]:
    """What the store holds of these logs, and what it says about the places that their entries speak of."""
    if store.newest_offset() == START and not store.heights():
        return None, None
    place = store.place

    def find_logs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = open_once(place).find_logs(batch.column(0).to_pylist())
            rows = [
                (name, log.id, log.height, log.held, any(getattr(log.standing, x) for x in log.standing.__slots__))
                for name, log in found.items()
            ]
            yield _batch(
                rows,
                [
                    ("log", pa.binary()),
                    ("id", pa.int64()),
                    ("height", pa.int64()),
                    ("held", pa.int64()),
                    ("is_closed", pa.bool_()),
                ],
            )

    def find_claims(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("log", "id", "height", "at")]
            names = dict(zip(columns[1], columns[0], strict=True))
            heights = dict(zip(columns[1], columns[2], strict=True))
            places = set(zip(columns[1], columns[3], strict=True))
            found = open_once(place).claims_about(places, heights)
            rows = [
                (names[item.log], item.at, item.claim.hash, item.claim.is_held)
                for item in found
                if (item.log, item.at) in places
            ]
            yield _batch(
                rows, [("log", pa.binary()), ("at", pa.int64()), ("hash", pa.binary()), ("is_there", pa.bool_())]
            )

    logs = linked.select("log").distinct().mapInArrow(find_logs, HELD_LOGS_DDL).persist(StorageLevel.DISK_ONLY)
    kept.append(logs)
    if logs.isEmpty():
        return None, None
    places = claims_of(linked).join(logs, "log").where("at <= height").select("log", "id", "height", "at").distinct()
    claims = places.mapInArrow(find_claims, HELD_CLAIMS_DDL).persist(StorageLevel.DISK_ONLY)
    kept.append(claims)
    return logs, claims


def _batch(rows: Sequence[tuple[object, ...]], fields: list[tuple[str, pa.DataType]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(list(column), kind) for column, (_, kind) in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

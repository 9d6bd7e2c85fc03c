"""The Python data source `inkgrove-relations`: the edges and deletions of views and stages, and what goes with them.

    spark.read.format("inkgrove-relations").option("store", url).option("of", "edges").option("tables", ...).load()

Options: `store` (directory or URL), `of` (`edges`, `deleted`, `gone` or `folded`: the groups that stages hold anew),
`partitions` per table (1 for `gone`), `tables` (JSON: a list of `CascadeTable`). `load_relations` sets them.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inkgrove.pipeline.runtime.batches import record_batch
from inkgrove.pipeline.runtime.workers import PlannedSource, open_existing, store_url_of
from inkgrove.pipeline.tables import RELATIONS, spark_schema
from inkgrove.store.views import CascadeTable, open_views, read_cascade_table


def load_relations(
    spark: SparkSession, store_url: str, of: str, tables: Sequence[CascadeTable], parts: int = 1
) -> DataFrame:
    """The rows of some tables as `RELATIONS[of]` describes them, each table read by so many tasks."""
    source = spark.read.format("inkgrove-relations").option("store", store_url).option("of", of)
    return source.option("partitions", parts).option("tables", json.dumps(tables)).load()


@dataclass
class TablePart(InputPartition):
    """The part of a table that one task reads."""

    table: CascadeTable | None
    part: int = 0


class RelationSource(PlannedSource):
    """The Spark data source `inkgrove-relations`."""

    @classmethod
    def name(cls) -> str:
        return "inkgrove-relations"

    def schema(self) -> StructType:
        return spark_schema(RELATIONS[self.options["of"]])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.store_url = store_url_of(options)
        self.of = options["of"]
        self.parts = int(options.get("partitions", 1))
        self.tables = [CascadeTable(*item) for item in json.loads(options["tables"])]

    def partitions(self) -> list[InputPartition]:
        open_existing(self.store_url).close()
        shares = [TablePart(table, part) for table in self.tables for part in range(self.parts)]
        return [*shares] or [TablePart(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TablePart)
        if partition.table is None:
            return
        schema = RELATIONS[self.of]
        share = {"part": partition.part, "parts": self.parts}
        with open_views(self.store_url) as views:
            for rows in read_cascade_table(views.database, partition.table, self.of, schema.names, **share):
                yield record_batch(rows, schema)

"""The Python data source `inkgrove-relations`: the edges and deletions of views and stages, and what goes with them.

    spark.read.format("inkgrove-relations").option("store", place).option("of", "edges").load()

Options: `store` (directory or URL), `of` (`edges`, `deleted`, `gone` or `folded`: the groups that stages hold anew),
`partitions` per table (1 for `gone`), `tables` (JSON: where to read; a list of [stage or null, table, view left out or
null]).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from sqlalchemy import MetaData, Select, Table, null, select

from inkgrove.pipeline.runtime.batches import record_batch
from inkgrove.pipeline.runtime.workers import PlannedSource, open_existing, place_of
from inkgrove.pipeline.tables import RELATIONS, spark_schema
from inkgrove.store.views.catalog import open_views
from inkgrove.store.views.stages import open_stage_transaction, stage_table
from inkgrove.store.views.tables import deleted_table, edge_table, gone_table

_ROWS = 10_000
_TABLES = {"edges": edge_table, "deleted": deleted_table, "gone": gone_table}


@dataclass
class TablePart(InputPartition):
    """A share of a table."""

    stage: str | None
    table: str
    without_view: int | None
    part: int
    parts: int


class RelationSource(PlannedSource):
    """Registered as `inkgrove-relations`."""

    @classmethod
    def name(cls) -> str:
        return "inkgrove-relations"

    def schema(self) -> StructType:
        return spark_schema(RELATIONS[self.options["of"]])

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.place = place_of(options)
        self.of = options["of"]
        self.parts = int(options.get("partitions", 1))
        self.tables: list[tuple[str | None, str, int | None]] = json.loads(options["tables"])

    def partitions(self) -> list[InputPartition]:
        open_existing(self.place).close()
        shares = [TablePart(*item, part, self.parts) for item in self.tables for part in range(self.parts)]
        return [*shares] or [TablePart(None, "", None, 0, 1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TablePart)
        if not partition.table:
            return
        schema = RELATIONS[self.of]
        views = open_views(self.place)
        try:
            with open_stage_transaction(views.database, partition.stage) as (connection, name):
                query = _select(partition, name, self.of)
                found = connection.execute(query, execution_options={"yield_per": _ROWS})
                for rows in found.partitions(_ROWS):
                    yield record_batch(rows, schema)
        finally:
            views.close()


def _select(part: TablePart, schema: str | None, of: str) -> Select[Any]:
    table = _table(part, schema, of)
    query = select(*(table.c[field.name] if field.name in table.c else null() for field in RELATIONS[of]))
    if part.parts > 1:
        query = query.where(table.c.log % part.parts == part.part)
    return query if part.without_view is None else query.where(table.c.view != part.without_view)


def _table(part: TablePart, schema: str | None, of: str) -> Table:
    if part.stage is not None:
        return stage_table(part.table, (), schema)
    return _TABLES[of](part.table, MetaData())

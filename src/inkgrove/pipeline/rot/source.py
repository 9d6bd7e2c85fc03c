"""The Python data source `inkgrove-copies`: every copy of a store that can rot, with its guard.

Options: `store`, `partitions`, `guards` (with commas), `now` and `absence` (microseconds).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from inkgrove.pipeline.planned import PlannedSource, open_existing, place_of
from inkgrove.pipeline.tables import STORED_COPIES, record_batch, spark_schema
from inkgrove.store.rot_selection import may_rot, select_copies
from inkgrove.store.rot_tables import copies

_ROWS: Final = 10_000


@dataclass
class Share(InputPartition):
    """What one task reads."""

    part: int


class CopySource(PlannedSource):
    """Registered as `inkgrove-copies`."""

    @classmethod
    def name(cls) -> str:
        return "inkgrove-copies"

    def schema(self) -> StructType:
        return spark_schema(STORED_COPIES)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self.place = place_of(options)
        self.parts = int(options.get("partitions", 1))
        self.guards = [name for name in options.get("guards", "").split(",") if name]
        self.now, self.absence = int(options["now"]), int(options["absence"])

    def partitions(self) -> list[InputPartition]:
        return [Share(part) for part in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        # What is our own and stays takes nothing of the budgets.
        query = select_copies(self.guards, self.now, self.absence).where(may_rot(self.now))
        if self.parts > 1:
            query = query.where((copies.c.log + copies.c.create_seq) % self.parts == partition.part)
        with open_existing(self.place) as store, store.database.reading() as connection:
            found = connection.execute(query, execution_options={"yield_per": _ROWS})
            for rows in found.partitions(_ROWS):
                yield record_batch(rows, STORED_COPIES)

"""The cascade over everything, as Spark's joins: which rows go because what they point to was deleted.

docs/protocol.md section 6 rule 4. Used when all edges count: a view is built anew, or a deletion was taken back. What
one batch adds is spread in the database (`inkgrove.store.cascade`), where its few edges are found by index.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.tables import STAGED
from inkgrove.store.staging import open_stage

_ROUNDS_IN_ONE_PLAN = 10
"""After so many rounds their results become one, for a long chain would make a long plan."""


def keep_unfolded(known: DataFrame, folded: DataFrame) -> DataFrame:
    """Edges or deletions without those of the groups that were folded anew; no `create_seq` means a whole log."""
    whole = folded.where(f.col("create_seq").isNull()).select("log")
    groups = folded.where(f.col("create_seq").isNotNull()).select("log", "create_seq")
    return known.join(whole, on="log", how="left_anti").join(groups, on=["log", "create_seq"], how="left_anti")


def falling(edges: DataFrame, lost: DataFrame) -> DataFrame:
    """The rows whose cascading relation points to one of the lost instances: (view, instance), each once."""
    targets = lost.select(f.col("view").alias("target_view"), f.col("instance").alias("target"))
    return edges.join(targets, on=["target_view", "target"], how="left_semi").select("view", "instance").distinct()


def cascade(edges: DataFrame, deleted: DataFrame) -> DataFrame:
    """Every row that is gone, to the fixed point: (view, instance, round).

    Each round looks at what fell in the round before only, so it takes as many rounds as the longest chain is long.
    """
    edges = edges.where(~f.col("is_element")).select("view", "instance", "target_view", "target")
    edges = edges.persist(StorageLevel.MEMORY_AND_DISK)
    gone: DataFrame | None = None
    last, number = deleted.select("view", "instance"), 1
    while True:
        fallen = falling(edges, last)
        if gone is not None:
            fallen = fallen.join(gone.select("view", "instance"), on=["view", "instance"], how="left_anti")
        # Cut off from its history: else each round would compute all rounds before it again.
        fallen = fallen.withColumn("round", f.lit(number)).localCheckpoint()
        if fallen.isEmpty():
            break
        gone = fallen if gone is None else gone.unionByName(fallen)
        if number % _ROUNDS_IN_ONE_PLAN == 0:
            gone = gone.coalesce(2).localCheckpoint()
        last, number = fallen, number + 1
    edges.unpersist()
    return fallen if gone is None else gone


def stage_gone(staging: tuple[str, str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` that stages what is gone; the stage's name comes out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage = open_stage(*staging, {})
        try:
            for batch in batches:
                columns = [batch.column(name).to_pylist() for name in ("view", "instance", "round")]
                if columns[0]:
                    stage.write("gone", list(zip(*columns, strict=True)))
            stage.finish()
        except BaseException:
            stage.discard()
            raise
        yield pa.RecordBatch.from_pydict({"stage": [stage.name]}, schema=STAGED)

    return run

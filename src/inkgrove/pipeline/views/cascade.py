"""The cascade over everything, as Spark's joins: which rows go because what they point to was deleted.

docs/protocol.md section 6 rule 4. Used when all edges count: a view is built anew, or a deletion was taken back. What
one batch adds is spread in the database (`inkgrove.store.views.merge`), where its few edges are found by index.
`Relations` says where the edges and deletions are found: as they will be after a merge, or after a swap.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sqlalchemy import Connection, literal, select, table

from inkgrove.pipeline.tables import STAGED, spark_schema
from inkgrove.store.views.catalog import View, open_views
from inkgrove.store.views.rebuild import shadow_edges
from inkgrove.store.views.stages import open_stage
from inkgrove.store.views.tables import deleted, edges

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


Place = tuple[str | None, str, int | None]
"""The stage or None, the table, and a view whose rows in it do not count."""


@dataclass(frozen=True, slots=True)
class Relations:
    """What to compute a cascade from."""

    edges: list[Place]
    deleted: list[Place]
    new_edges: list[Place]
    new_deleted: list[Place]
    folded: list[Place]
    """Groups whose edges and deletions are in the new places only."""

    @property
    def sides(self) -> tuple[list[Place], list[Place]]:
        """All places of edges and all of deletions; if one side is empty nothing is gone."""
        return self.edges + self.new_edges, self.deleted + self.new_deleted

    @classmethod
    def after_merge(cls, stages: Mapping[str, Mapping[str, int]]) -> "Relations":
        """As they will be when the stages, given with their tables, are merged."""

        def named(*tables: str) -> list[Place]:
            return [(stage, table, None) for stage, contents in stages.items() for table in tables if table in contents]

        return cls(
            [(None, edges.name, None)],
            [(None, deleted.name, None)],
            named("edges"),
            named("deleted"),
            named("whole", "groups"),
        )

    @classmethod
    def after_swap(cls, new: View) -> "Relations":
        """As they will be when a view that was built is shown."""
        new_deleted, new_edges = shadow_edges(new)
        return cls(
            [(None, edges.name, new.id)],
            [(None, deleted.name, new.id)],
            [(None, new_edges.name, None)],
            [(None, new_deleted.name, None)],
            [],
        )


def gone_stages(spark: SparkSession, place: str, staging: tuple[str, str], relations: Relations) -> list[str]:
    """Compute the whole cascade and stage its result."""
    with open_views(place) as views, views.database.reading() as connection:
        if not all(_has_rows(connection, places) for places in relations.sides):
            return []
    # SQLite attaches ten files at most: those of the fold are eight (MOST_FILES), so these are two.
    gone = cascade(*effective(spark, place, relations)).coalesce(2)
    results = gone.mapInArrow(stage_gone(staging), spark_schema(STAGED)).toArrow().to_pylist()
    return [item["stage"] for item in results]


def _has_rows(connection: Connection, places: list[Place]) -> bool:
    """Whether there may be anything: stages have only tables with something in them."""
    return any(
        stage is not None or connection.scalar(select(literal(1)).select_from(table(name)).limit(1)) is not None
        for stage, name, _ in places
    )


def effective(spark: SparkSession, place: str, relations: Relations) -> tuple[DataFrame, DataFrame]:
    """The edges and deletions that will count."""

    def load(of: str, places: list[Place], parts: int = 1) -> DataFrame:
        source = spark.read.format("inkgrove-relations").option("store", place).option("of", of)
        return source.option("partitions", parts).option("tables", json.dumps(places)).load()

    parts = spark.sparkContext.defaultParallelism
    old_edges = load("edges", relations.edges, parts)
    old_deleted = load("deleted", relations.deleted, parts)
    if relations.folded:
        folded = load("folded", relations.folded)
        old_edges, old_deleted = keep_unfolded(old_edges, folded), keep_unfolded(old_deleted, folded)
    return (
        old_edges.unionByName(load("edges", relations.new_edges)),
        old_deleted.unionByName(load("deleted", relations.new_deleted)),
    )

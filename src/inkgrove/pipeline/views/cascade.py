"""The cascade over everything, as Spark's joins: which rows go because what they point to was deleted.

docs/protocol.md section 6 rule 4. Used when all edges count: a view is built anew, or a deletion was taken back. What
one batch adds is spread in the database (`inkgrove.store.views.merge`), where its few edges are found by index.
`Relations` says where the edges and deletions are found: as they will be after a merge, or after a swap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from inkgrove.pipeline.runtime.workers import StageRows, stage_rows
from inkgrove.pipeline.views.relation_source import load_relations
from inkgrove.store.views import CascadeTable, View, deleted, edges, may_have_rows, open_views, shadow_edges

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


@dataclass(frozen=True, slots=True)
class Relations:
    """The tables that a cascade is computed from."""

    edges: list[CascadeTable]
    deleted: list[CascadeTable]
    new_edges: list[CascadeTable]
    new_deleted: list[CascadeTable]
    folded: list[CascadeTable]
    """Groups whose edges and deletions are in the new tables only."""

    @property
    def sides(self) -> tuple[list[CascadeTable], list[CascadeTable]]:
        """All tables of edges and all of deletions; if one side is empty nothing is gone."""
        return self.edges + self.new_edges, self.deleted + self.new_deleted

    @classmethod
    def after_merge(cls, stages: Mapping[str, Mapping[str, int]]) -> "Relations":
        """As they will be when the stages, given with their tables, are merged."""

        def named(*names: str) -> list[CascadeTable]:
            return [
                CascadeTable(stage, name) for stage, contents in stages.items() for name in names if name in contents
            ]

        return cls(
            [CascadeTable(None, edges.name)],
            [CascadeTable(None, deleted.name)],
            named("edges"),
            named("deleted"),
            named("whole", "groups"),
        )

    @classmethod
    def after_swap(cls, new: View) -> "Relations":
        """As they will be when a view that was built is shown."""
        new_deleted, new_edges = shadow_edges(new)
        return cls(
            [CascadeTable(None, edges.name, new.id)],
            [CascadeTable(None, deleted.name, new.id)],
            [CascadeTable(None, new_edges.name)],
            [CascadeTable(None, new_deleted.name)],
            [],
        )


def gone_stages(spark: SparkSession, store_url: str, staging: tuple[str, str], relations: Relations) -> list[str]:
    """Compute the whole cascade and stage its result; gives the names of the stages."""
    with open_views(store_url) as views, views.database.reading() as connection:
        if not all(may_have_rows(connection, tables) for tables in relations.sides):
            return []
    # SQLite attaches ten files at most: those of the fold are eight (MOST_FILES), so these are two.
    gone = cascade(*effective(spark, store_url, relations)).coalesce(2)
    return stage_rows(gone.select("view", "instance", "round"), staging, _split_gone)


def _split_gone(batch: pa.RecordBatch) -> StageRows:
    return [("gone", list(zip(*batch.to_pydict().values(), strict=True)))]


def effective(spark: SparkSession, store_url: str, relations: Relations) -> tuple[DataFrame, DataFrame]:
    """The edges and deletions as they will be, of old tables without the groups that were folded anew."""
    load = partial(load_relations, spark, store_url)
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

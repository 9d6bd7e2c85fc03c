"""Where the cascade finds its edges and deletions: as they will be after a merge, or after a swap."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Connection, literal, select, table

from inkgrove.pipeline.cascade import cascade, keep_unfolded, stage_gone
from inkgrove.pipeline.tables import STAGED, spark_schema
from inkgrove.store.builds import shadow_edges
from inkgrove.store.view_store import View, open_views
from inkgrove.store.view_tables import deleted, edges

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

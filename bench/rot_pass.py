"""One pass of rot over many copies against a plain sort of the same table (per tick for `egi` and `area`)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.harness import Row, compare
from inkgrove.pipeline.rot.plan import Moment, decide
from inkgrove.pipeline.rot.policy import Limits, Policy
from inkgrove.pipeline.runtime.session import start_session

COPIES = int(os.environ.get("INKGROVE_BENCH_COPIES", "1000000"))
_ROUNDS = 3
_NOW = 1_600_000_000_000_000


def rows() -> Iterator[Row]:
    """Each fungus that differs in kind, at a budget of four fifths."""
    with TemporaryDirectory() as folder:
        spark = start_session(Path(folder) / "logs")
        table = make_copies(spark, str(Path(folder) / "copies"), COPIES)
        for fungus in ("rot", "uniform", "egi", "area"):
            ours, base, ratio = compare(_pass(table, fungus), lambda: _sort(table), COPIES, _ROUNDS)
            # The rate of the sort through ours: at most twice its time is at least half its rate.
            _check_budget(table, fungus)
            yield Row(f"rot: one pass of {fungus}", ours, "sort of the same table", base, ratio, ">= 0.5", ratio >= 0.5)
        spark.stop()


def make_copies(spark: SparkSession, path: str, count: int) -> DataFrame:
    """Copies of a thousand owners as the store would give them."""
    number = f.col("id")
    made = spark.range(count).select(
        f.unhex(f.sha2(number.cast("string"), 512)).alias("instance"),
        (number % 1000).alias("log"),
        (number / 1000).cast("long").alias("create_seq"),
        f.unhex(f.sha2((number % 1000).cast("string"), 256)).alias("owner"),
        (number % 7).alias("schema"),
        number.alias("arrival"),
        (number * 9 / count).cast("long").alias("born"),
        f.lit(_NOW).alias("noted"),
        (f.lit(128) + f.abs(f.xxhash64(number)) % 4000).alias("payload_bytes"),
        f.lit(0).cast("long").alias("blob_bytes"),
        (f.abs(f.xxhash64(number, f.lit(1))) % 10).cast("double").alias("reads"),
        f.lit(5).cast("long").alias("last_read"),
        f.lit(0).cast("long").alias("new_reads"),
        f.lit(1.0).alias("freshness"),
        f.lit("full").alias("step"),
        f.lit(_NOW).alias("changed"),
        f.lit(None).cast("long").alias("expires"),
        f.lit(None).cast("long").alias("ended"),
        f.lit(None).cast("long").alias("cooked"),
        f.when(number % 50 == 0, f.lit("pinned")).alias("guard"),
    )
    made.write.parquet(path)
    return spark.read.parquet(path)


def _policy(table: DataFrame, fungus: str) -> Policy:
    total = table.agg(f.sum("payload_bytes").alias("total")).first()
    assert total is not None
    return Policy(fungus=fungus, node=Limits(bytes=int(total["total"] * 0.8)))


def _check_budget(table: DataFrame, fungus: str) -> None:
    """The budget is met, and with one victim less it would not be."""
    policy = _policy(table, fungus)
    decided = decide(table, policy, {}, Moment(1, 9, _NOW))
    stays, size = f.col("to_step").isNull(), f.col("payload_bytes")
    found = decided.agg(f.sum(f.when(stays, size)).alias("kept"), f.max(f.when(~stays, size)).alias("most")).first()
    assert found is not None
    assert found["kept"] <= policy.node.bytes, f"{fungus} keeps {found['kept']}"
    assert found["kept"] + found["most"] > policy.node.bytes, f"{fungus} takes more than it must"


def _pass(table: DataFrame, fungus: str) -> Callable[[], None]:
    policy = _policy(table, fungus)

    def run() -> None:
        decide(table, policy, {}, Moment(1, 9, _NOW)).write.format("noop").mode("overwrite").save()

    return run


def _sort(table: DataFrame) -> None:
    table.orderBy("freshness", "instance").write.format("noop").mode("overwrite").save()

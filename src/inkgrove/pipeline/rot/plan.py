"""Decides from the copies and a policy which step each copy moves to: one graph of Spark, nothing collected.

docs/protocol.md section 9. Budgets are met one after the other, those of schemas first, then those of owners, then the
node's. Of bytes, blobs go first. A plan and a run are the same computation; only a run keeps the result.

The least fresh copies go until a budget is met; nothing is sorted as a whole. Copies are counted in narrow bands of
freshness; whole bands go, and only the band in which the budget is met is put in order. The result is one cut for each
scope: a few rows, which are brought to the copies, while no copy moves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.fungi import FUNGI, chance, decayed
from inkgrove.pipeline.rot.policy import Limits, Policy, parse_schema
from inkgrove.store.db import SHOWN
from inkgrove.store.rot import EXPIRED, HARD_GUARDS


@dataclass(frozen=True, slots=True)
class Moment:
    """Seed, number and time of a run."""

    seed: int
    tick: int
    now: int


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit for each of some scopes."""

    name: str
    scope: Column
    limit: Column
    """0 is none."""
    of_rows: bool


def decide(
    copies: DataFrame,
    policy: Policy,
    schema_numbers: Mapping[str, int],
    moment: Moment,
    pointed_at: DataFrame | None = None,
) -> DataFrame:
    """The copies with `to_step` (none: it stays), `why` and `is_cooked`.

    `schema_numbers` are the store's own, by AUTHOR/LOG; `pointed_at` are instances that rows cascade with. Freshness is
    computed wherever it is looked at: measured, that takes no longer than to keep whole copies in memory.
    """
    counted = count_reads(copies, moment.tick)
    if pointed_at is not None:
        counted = _guard_pointed_at(counted, pointed_at)
    shown = counted.where(f.col("step").isin(*SHOWN))
    fresh = let_decay(shown, policy, schema_numbers, moment)
    is_soft = f.col("guard").isNull() | ~f.col("guard").isin(*HARD_GUARDS, "cascade")
    is_expired = f.coalesce(f.col("expires") <= moment.now, f.lit(False)) & is_soft
    # All at once, here and below: for each step of its own Spark would look at the whole plan again.
    work = fresh.withColumns(
        {
            "is_free": f.col("guard").isNull(),
            "keep_payload": f.when(is_expired, f.lit(0)).otherwise(f.col("payload_bytes")),
            "keep_blobs": f.when(is_expired, f.lit(0)).otherwise(f.col("blob_bytes")),
            # What its owner has ended holds bytes and is no row.
            "keep_row": f.when(is_expired | f.col("ended").isNotNull(), f.lit(0)).otherwise(f.lit(1)),
            "to_step": f.when(is_expired, f.lit("cooked")),
            "why": f.when(is_expired, f.lit(EXPIRED)),
        }
    )
    for budget in budgets_of(policy, schema_numbers):
        work = squeeze(work, budget, moment)
    at_rest = _sink_further(counted.where(~f.col("step").isin(*SHOWN)), policy, moment)
    decided = work.select(*at_rest.columns).unionByName(at_rest)
    is_new = f.col("step").isin(*SHOWN) & f.col("cooked").isNull() & f.col("ended").isNull()
    return decided.withColumn("is_cooked", f.coalesce((f.col("to_step") == "cooked") & is_new, f.lit(False)))


def count_reads(copies: DataFrame, tick: int) -> DataFrame:
    """The copies as the fungi take them, with the reads since the last run counted in."""
    since = f.lit(tick) - f.coalesce(f.col("last_read"), f.lit(tick))
    is_read = f.col("new_reads") > 0
    total = decayed(f.col("reads"), since) + f.col("new_reads")
    return copies.withColumns(
        {
            "stratum": f.concat_ws("/", f.hex("owner"), f.col("schema").cast("string")),
            "bytes": f.col("payload_bytes") + f.col("blob_bytes"),
            "reads": f.when(is_read, total).otherwise(f.col("reads")),
            "last_read": f.when(is_read, f.lit(tick).cast("long")).otherwise(f.col("last_read")),
        }
    )


def _guard_pointed_at(copies: DataFrame, pointed_at: DataFrame) -> DataFrame:
    """Spare what was deleted while rows are gone because of it: without the deletion they would be back."""
    ended = copies.where(f.col("ended").isNotNull() & f.col("guard").isNull()).select("instance")
    spared = ended.join(pointed_at.select("instance").distinct(), on="instance", how="left_semi")
    marked = copies.join(f.broadcast(spared.withColumn("_is_spared", f.lit(True))), on="instance", how="left")
    guard = f.when(f.col("_is_spared"), f.lit("cascade")).otherwise(f.col("guard"))
    return marked.withColumn("guard", guard).drop("_is_spared")


def let_decay(copies: DataFrame, policy: Policy, schema_numbers: Mapping[str, int], moment: Moment) -> DataFrame:
    """The copies with their new freshness, each by the fungus of its schema."""
    chosen = {number: policy.fungi[name] for name, number in schema_numbers.items() if name in policy.fungi}
    names = sorted({policy.fungus, *chosen.values()})
    parts = []
    for name in names:
        own = [number for number, fungus in chosen.items() if fungus == name]
        is_own = f.col("schema").isin(own)
        if name == policy.fungus:
            is_own = is_own | ~f.col("schema").isin(list(chosen))
        parts.append(FUNGI[name](copies.where(is_own) if len(names) > 1 else copies, moment.seed, moment.tick))
    return reduce(lambda one, other: one.unionByName(other), parts)


def budgets_of(policy: Policy, schema_numbers: Mapping[str, int]) -> Iterator[Budget]:
    """The budgets that are set, in the order in which they are met."""
    by_schema = {str(schema_numbers[name]): limits for name, limits in policy.schemas.items() if name in schema_numbers}
    by_owner = {name.upper(): limits for name, limits in policy.identities.items()}
    scopes = [
        ("schema", f.col("schema").cast("string"), policy.per_schema, by_schema),
        ("identity", f.hex("owner"), policy.per_identity, by_owner),
        ("node", f.lit("node"), policy.node, {}),
    ]
    for name, scope, usual, single in scopes:
        for of_rows in (False, True):
            unit = "rows" if of_rows else "bytes"
            if any(getattr(limits, unit) for limits in (usual, *single.values())):
                yield Budget(f"{name} {unit}", scope, _limit(usual, single, unit), of_rows)


def _limit(usual: Limits, single: Mapping[str, Limits], unit: str) -> Column:
    default = f.lit(int(getattr(usual, unit)))
    if not single:
        return default
    pairs = chain.from_iterable((f.lit(name), f.lit(int(getattr(item, unit)))) for name, item in single.items())
    return f.coalesce(f.element_at(f.create_map(*pairs), f.col("scope")), default)


def schemas_named(policy: Policy) -> list[str]:
    """The schemas that a policy speaks of, checked."""
    names = sorted({*policy.schemas, *policy.fungi})
    for name in names:
        parse_schema(name)
    return names


# Meeting one budget


def squeeze(work: DataFrame, budget: Budget, moment: Moment) -> DataFrame:
    """Take the least fresh of each scope until its budget is met: never more than needed, never what is guarded."""
    held = f.col("keep_row") if budget.of_rows else f.col("keep_payload") + f.col("keep_blobs")
    excess = _find_excess(work, budget, held)
    if not budget.of_rows:
        of_blobs = excess.where("_blobs > 0")
        if not of_blobs.isEmpty():
            work = _take(work, budget, of_blobs, f.col("keep_blobs"), "no-blobs", moment)
            excess = _find_excess(work, budget, held)
    return work if excess.isEmpty() else _take(work, budget, excess, held, "cooked", moment)


def _find_excess(work: DataFrame, budget: Budget, held: Column) -> DataFrame:
    """The scopes that are over their budget and have something to give: by how much, and of that what is in blobs."""
    is_free = f.col("is_free")
    return (
        work.groupBy(budget.scope.alias("scope"))
        .agg(
            f.sum(held).alias("_held"),
            f.sum(f.when(is_free, held)).alias("_free"),
            f.sum(f.when(is_free, f.col("keep_blobs"))).alias("_blobs"),
        )
        .withColumn("_limit", budget.limit)
        .where((f.col("_limit") > 0) & (f.col("_held") > f.col("_limit")) & (f.col("_free") > 0))
        .select("scope", (f.col("_held") - f.col("_limit")).alias("excess"), "_blobs")
        # A few rows, cut off from how they came about: else each budget would compute all budgets before it again.
        .localCheckpoint()
    )


def _take(
    work: DataFrame, budget: Budget, excess: DataFrame, weight: Column, to_step: str, moment: Moment
) -> DataFrame:
    scoped = work.withColumn("scope", budget.scope)
    may_go = scoped.where("is_free")
    over = excess.select("scope", "excess")
    cuts = find_cuts(may_go, over, weight, seed=moment.seed, tick=moment.tick).localCheckpoint()
    placed = scoped.join(f.broadcast(cuts), on="scope", how="left")
    goes = f.col("is_free") & (weight > 0) & is_cut(moment.seed, moment.tick)
    marked = placed.withColumn("_goes", goes)
    why = f.format_string(
        f"{budget.name}: freshness %.6f, and the budget is met at %.6f",
        f.col("freshness"),
        f.coalesce(f.col("cut_rank.freshness"), f.least(f.col("cut_band") / BANDS, f.lit(1.0))),
    )
    takes_all = to_step == "cooked"
    changes = {
        "to_step": f.when(f.col("_goes"), f.lit(to_step)).otherwise(f.col("to_step")),
        "why": f.when(f.col("_goes"), why).otherwise(f.col("why")),
        "keep_blobs": f.when(f.col("_goes"), f.lit(0)).otherwise(f.col("keep_blobs")),
    }
    if takes_all:
        for name in ("keep_payload", "keep_row"):
            changes[name] = f.when(f.col("_goes"), f.lit(0)).otherwise(f.col(name))
    return marked.withColumns(changes).select(*work.columns)


def _sink_further(copies: DataFrame, policy: Policy, moment: Moment) -> DataFrame:
    """Move rotted copies on: cooked ones become stubs with time, a stub is gone after the longest absence of a peer."""
    step, is_old = f.col("step"), f.col("changed") <= moment.now - policy.cooked
    is_over = f.col("changed") <= moment.now - policy.absence
    may_move = f.col("guard").isNull() | ~f.col("guard").isin(*HARD_GUARDS, "cascade")
    came_later = (f.col("payload_bytes") > 0) & f.col("ended").isNull()
    to_step = (
        f.when(~may_move, f.lit(None))
        .when((step == "cooked") & is_old, f.lit("stub"))
        .when((step == "stub") & is_over, f.lit("gone"))
        .when(step.isin("cooked", "stub") & came_later, step)
    )
    why = f.when(to_step == step, f.lit("a later word of its owner")).when(to_step.isNotNull(), f.lit("age"))
    return copies.withColumns({"to_step": to_step.cast("string"), "why": why})


# The least fresh

BANDS: Final = 65_536
_NO_BAND: Final = BANDS + 1


def _band() -> Column:
    return f.least(f.floor(f.col("freshness") * BANDS), f.lit(BANDS))


def _rank(seed: int, tick: int) -> Column:
    """The order within a band; ties are broken by chance."""
    return f.struct(f.col("freshness"), chance(seed, tick).alias("chance"), f.col("instance"))


def find_cuts(copies: DataFrame, excess: DataFrame, weight: Column, *, seed: int, tick: int) -> DataFrame:
    """For each scope with an excess, where to cut: (scope, cut_band, cut_rank).

    All copies in bands below `cut_band` go, and of that band those up to `cut_rank`.
    """
    # A cut is made among few scopes, but there may be many bands.
    marked = copies.join(f.broadcast(excess), on="scope", how="inner")
    banded = marked.withColumn("_weight", weight).where("_weight > 0").withColumn("_band", _band())
    so_far = Window.partitionBy("scope").orderBy("_band").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    bands = (
        banded.groupBy("scope", "_band", "excess")
        .agg(f.sum("_weight").alias("_in_band"))
        .withColumn("_until", f.sum("_in_band").over(so_far))
        .where(f.col("_until") > f.col("excess"))
        .groupBy("scope")
        .agg(f.min("_band").alias("cut_band"), f.min_by(f.col("_until") - f.col("_in_band"), "_band").alias("_before"))
    )
    in_band = Window.partitionBy("scope").orderBy("_rank").rowsBetween(Window.unboundedPreceding, -1)
    cut = (
        banded.join(f.broadcast(bands), on="scope", how="inner")
        .where((f.col("_band") == f.col("cut_band")) & (f.col("_before") < f.col("excess")))
        .withColumn("_rank", _rank(seed, tick))
        .withColumn("_reached", f.col("_before") + f.coalesce(f.sum("_weight").over(in_band), f.lit(0)))
        .where(f.col("_reached") < f.col("excess"))
        .groupBy("scope")
        .agg(f.max("_rank").alias("cut_rank"))
    )
    return (
        excess.select("scope")
        .join(bands.select("scope", "cut_band"), on="scope", how="left")
        .join(cut, on="scope", how="left")
        .select("scope", f.coalesce("cut_band", f.lit(_NO_BAND)).alias("cut_band"), "cut_rank")
    )


def is_cut(seed: int, tick: int) -> Column:
    """Whether a copy, with the cut of its scope beside it, is among those that go; no cut, no victim."""
    in_band = (_band() == f.col("cut_band")) & (_rank(seed, tick) <= f.col("cut_rank"))
    return f.coalesce((_band() < f.col("cut_band")) | in_band, f.lit(False))

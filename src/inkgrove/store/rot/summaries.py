"""Summaries of a view: one exact over the rows that are held, one cooked over those that have rotted.

docs/protocol.md section 9. A copy that was cooked and fetched again counts among the cooked, and only there.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from sqlalchemy import Connection, Double, cast, exists, func, not_, select

from inkgrove.store.db import rot_tables
from inkgrove.store.db.log_tables import schemas
from inkgrove.store.db.rot_tables import summaries
from inkgrove.store.views.access import Reader, visible_rows
from inkgrove.store.views.catalog import View
from inkgrove.store.views.tables import node_table

# Sketches of quantiles (KLL) and of distinct values (HLL). Spark makes them with Apache DataSketches for Java; here its
# library for Python reads them, so that a node answers without Spark.

RANK_ERROR: Final = 0.0165
"""By how much of all ranks a quantile of a KLL sketch with k = 200 is off, in 99 of 100 cases."""
DISTINCT_ERROR: Final = 0.0325
"""By how much a count of an HLL sketch with 4096 registers is off: two standard errors."""
_LOG_REGISTERS: Final = 12


def quantiles(sketches: Iterable[bytes], ranks: Iterable[float]) -> list[float]:
    """The values at some ranks (0 to 1) of all values that the sketches have seen together; none if there are none."""
    from datasketches import kll_doubles_sketch  # noqa: PLC0415 - it brings numpy, which most nodes never need

    # The values that each kept, with their weights: to merge sketches is a matter of chance, and answers are not.
    items: list[tuple[float, int]] = sorted(
        item for sketch in sketches for item in kll_doubles_sketch.deserialize(sketch)
    )
    if not items:
        return []
    reached = list(accumulate(weight for _, weight in items))
    return [items[bisect_left(reached, rank * reached[-1])][0] for rank in ranks]


def count_distinct(sketches: Iterable[bytes]) -> float:
    """About how many different values the sketches have seen together."""
    from datasketches import hll_sketch, hll_union  # noqa: PLC0415 - as above

    union = hll_union(_LOG_REGISTERS)
    for sketch in sketches:
        union.update(hll_sketch.deserialize(sketch))
    return float(union.get_estimate())


RANKS: Final = (0.25, 0.5, 0.75)
NUMBERS: Final = ("integer", "float")
_copies = node_table(rot_tables.copies)


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """Statistics of the values of a field that are not null."""

    count: int
    sum: float | None = None
    min: float | None = None
    max: float | None = None
    quantiles: Sequence[float] = ()
    """At a quarter, half and three quarters of all values."""
    distinct: float | None = None
    rank_error: float = 0.0
    distinct_error: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of some rows: how many there are, and their fields by name."""

    count: int
    fields: dict[str, FieldSummary] = field(default_factory=dict)
    bytes: int = 0
    months: tuple[str, ...] = ()


def exact_summary(connection: Connection, view: View, reader: Reader | None) -> Summary:
    """The summary of the rows that a reader sees, or of all; `connection` is on the views with the node's tables."""
    if not view.is_built:
        return Summary(0)
    rows = view.table()
    is_cooked = exists().where(_copies.c.instance == rows.c._instance, _copies.c.cooked.is_not(None))
    conditions = [*visible_rows(rows, view.cascading, reader), not_(is_cooked)]
    columns: list[Any] = [func.count().label("_rows")]
    for name, kind in view.fields:
        column = rows.c[name]
        columns.append(func.count(column).label(f"_count_{name}"))
        if kind in NUMBERS:
            number = cast(column, Double)
            columns += [
                func.sum(number).label(f"_sum_{name}"),
                func.min(number).label(f"_min_{name}"),
                func.max(number).label(f"_max_{name}"),
            ]
        else:
            columns.append(func.count(func.distinct(column)).label(f"_distinct_{name}"))
    found = connection.execute(select(*columns).where(*conditions)).one()._mapping
    fields = {}
    for name, kind in view.fields:
        count = found[f"_count_{name}"]
        if kind not in NUMBERS:
            fields[name] = FieldSummary(count, distinct=float(found[f"_distinct_{name}"]))
            continue
        column = rows.c[name]
        ordered = select(column).where(*conditions, column.is_not(None)).order_by(column).limit(1)
        at = [connection.scalar(ordered.offset(round(rank * (count - 1)))) for rank in RANKS] if count else []
        total, least, most = (found[f"_{what}_{name}"] for what in ("sum", "min", "max"))
        fields[name] = FieldSummary(count, total, least, most, [float(value) for value in at if value is not None])
    return Summary(found["_rows"], fields)


def cooked_summary(connection: Connection, view: View, readers: Collection[bytes]) -> Summary:
    """The summary of what has rotted and was visible to the readers then; `connection` is one of the node."""
    is_it = (schemas.c.author == view.schema_id.author, schemas.c.log_id == view.schema_id.log_id)
    query = (
        select(summaries)
        .join_from(summaries, schemas, schemas.c.id == summaries.c.schema)
        .where(*is_it, summaries.c.reader.in_(list(readers)))
    )
    by_field: dict[str, list[Any]] = defaultdict(list)
    months = set()
    for row in connection.execute(query):
        by_field[row.field].append(row)
        months.add(row.month)
    whole = by_field.pop("", [])
    kinds = dict(view.fields)
    return Summary(
        sum(row.count for row in whole),
        {name: _merge(rows) for name, rows in sorted(by_field.items()) if name in kinds},
        sum(row.bytes for row in whole),
        tuple(sorted(months)),
    )


def _merge(rows: Sequence[Any]) -> FieldSummary:
    count = sum(row.count for row in rows)
    numbers = [row for row in rows if row.quantiles is not None]
    texts = [bytes(row.distinct) for row in rows if row.distinct is not None]
    if not numbers:
        return FieldSummary(count, distinct=count_distinct(texts), distinct_error=DISTINCT_ERROR)
    return FieldSummary(
        count,
        sum(row.sum for row in numbers),
        min(row.min for row in numbers),
        max(row.max for row in numbers),
        quantiles((bytes(row.quantiles) for row in numbers), RANKS),
        rank_error=RANK_ERROR,
    )


def add_summaries(exact: Summary, cooked: Summary) -> Summary:
    """Both together, as far as they can be added up: counts, sums, extremes."""
    fields = {}
    for name in dict.fromkeys((*exact.fields, *cooked.fields)):
        both = [part.fields[name] for part in (exact, cooked) if name in part.fields]
        known = [item for item in both if item.sum is not None]
        fields[name] = FieldSummary(
            sum(item.count for item in both),
            sum(item.sum or 0.0 for item in known) if known else None,
            min((item.min for item in known if item.min is not None), default=None),
            max((item.max for item in known if item.max is not None), default=None),
        )
    return Summary(exact.count + cooked.count, fields)


def summary_document(summary: Summary) -> dict[str, Any]:
    """A summary as JSON."""
    return {"count": summary.count, "fields": {name: _field_document(item) for name, item in summary.fields.items()}}


def _field_document(item: FieldSummary) -> dict[str, Any]:
    document: dict[str, Any] = {"count": item.count}
    if item.sum is not None:
        document |= {"sum": item.sum, "mean": item.sum / item.count, "min": item.min, "max": item.max}
    if item.quantiles:
        document["quantiles"] = {f"{rank:.2f}": value for rank, value in zip(RANKS, item.quantiles, strict=True)}
        document["rank_error"] = item.rank_error
    if item.distinct is not None:
        document |= {"distinct": round(item.distinct), "distinct_error": item.distinct_error}
    return document

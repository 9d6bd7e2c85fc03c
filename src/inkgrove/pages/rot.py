"""The page of rot: budgets, the steps of the ladder, freshness over the runs, the last run, one copy explained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from inkgrove.core.errors import InkgroveError, NoSuchCopy
from inkgrove.node.identity import name_of_author
from inkgrove.node.reading import explain_copy, parse_instance, read_rot_state
from inkgrove.pages.visits import PageRoute, VisitDependency
from inkgrove.pages.wording import plural
from inkgrove.store.db import LADDER
from inkgrove.store.rot import RotRun

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_STEPS: Final = {
    "full": "everything is here",
    "no-blobs": "the words are here, attachments come back when somebody reads them",
    "cooked": "only part of the sums; can be fetched again",
    "stub": "only signatures; can be fetched again",
    "gone": "forgotten; comes back as something new",
}
_HEIGHT: Final = 160
_COLUMN: Final = 26
_LEFT: Final = 56


@dataclass(frozen=True, slots=True)
class FreshnessBox:
    """Copies of about one freshness in one run; the darker, the more."""

    x: float
    y: float
    height: float
    share: float


@dataclass(frozen=True, slots=True)
class FreshnessPlot:
    """Freshness over the runs."""

    width: float
    boxes: Sequence[FreshnessBox]
    labels: Sequence[tuple[float, int]]
    text: str


@router.get("/pages/rot")
def show_rot(visit: VisitDependency, instance: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Show how many copies of other people's data are on each step and the last run; for the administrator."""
    state = read_rot_state(visit.node, visit.caller)
    policy: Mapping[str, Any] = visit.request.app.state.rot_policy
    explained, alarm, status = None, None, 200
    if instance:
        try:
            explained = explain_copy(visit.node, visit.caller, parse_instance(instance.strip()), policy)
        except InkgroveError as error:
            alarm = error.message if isinstance(error, NoSuchCopy) else "This is no id of an instance."
            status = 404
    last = state.runs[-1] if state.runs else None
    facts = {
        "ladder": [{"step": step, "means": _STEPS[step], **_counts(state.steps.get(step, {}))} for step in LADDER],
        "budgets": _budgets(policy),
        "policy": policy,
        "last": last,
        "has_changed": last is not None and policy != state.policy,
        "moves": last.report.get("moves", []) if last is not None else [],
        "kept": last.report.get("kept", {}) if last is not None else {},
        "plot": draw_freshness(state.runs),
        "regret": sum(item.get("fetched", 0) for item in state.steps.values()),
        "instance": instance,
        "explained": explained,
        "owner": None if explained is None else name_of_author(visit.node, explained.copy.author),
        "means": _STEPS,
        "alarm": alarm,
    }
    return visit.show("rot.html", facts, status=status)


def _counts(facts: Mapping[str, int]) -> dict[str, int]:
    return {"copies": facts.get("copies", 0), "bytes": facts.get("bytes", 0) + facts.get("blob_bytes", 0)}


def _budgets(policy: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Render each limit of the policy and each fungus, with a name."""
    usual = {"All copies together": "node", "Each owner": "per_identity", "Each schema": "per_schema"}
    named = [(name, policy.get(key, {})) for name, key in usual.items()]
    named += [(f"Owner {name[:8]}…", limits) for name, limits in policy.get("identities", {}).items()]
    named += [(_short(name), limits) for name, limits in policy.get("schemas", {}).items()]
    fungi = [("Fungus", policy["fungus"])] if "fungus" in policy else []
    fungi += [(f"Fungus of {_short(name).lower()}", fungus) for name, fungus in policy.get("fungi", {}).items()]
    return [*((name, _limits(limits)) for name, limits in named), *fungi]


def _short(schema: str) -> str:
    return f"Schema {schema[:8]}…/{schema.rpartition('/')[2]}"


def _limits(limits: Mapping[str, int]) -> str:
    parts = [f"{limits['bytes']:,} bytes"] if limits.get("bytes") else []
    parts += [plural(limits["rows"], "copy")] if limits.get("rows") else []
    return " and ".join(parts) or "no limit"


def draw_freshness(runs: Sequence[RotRun]) -> FreshnessPlot | None:
    """Draw a column for each run, rotten at the bottom, fresh at the top; None if no run has seen any copy."""
    told = [(run.tick, run.report.get("freshness", [])) for run in runs]
    told = [(tick, bins) for tick, bins in told if sum(bins)]
    if not told:
        return None
    boxes = []
    for number, (_, bins) in enumerate(told):
        step = _HEIGHT / len(bins)
        most = max(bins)
        boxes += [
            FreshnessBox(_LEFT + number * _COLUMN, _HEIGHT - (bin_number + 1) * step, step - 1, _shade(count, most))
            for bin_number, count in enumerate(bins)
            if count
        ]
    every = -(-len(told) // 16)
    labels = [(_LEFT + n * _COLUMN + _COLUMN / 2, tick) for n, (tick, _) in enumerate(told) if n % every == 0]
    tick, bins = told[-1]
    fresh = sum(count * (bin_number + 0.5) for bin_number, count in enumerate(bins)) / sum(bins) / len(bins)
    left = plural(sum(bins), "copy")
    text = (
        "A column for each run; the darker, the more copies."
        f" In run {tick}, the last, {left} left were {fresh:.0%} fresh on average."
    )
    return FreshnessPlot(_LEFT + len(told) * _COLUMN + 8, boxes, labels, text)


def _shade(count: int, most: int) -> float:
    """Return how dark a box is, by the square root, so that a few copies show beside many."""
    return round(0.1 + 0.9 * float((count / most) ** 0.5), 2)

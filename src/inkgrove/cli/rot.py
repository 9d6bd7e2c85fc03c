"""`inkgrove rot plan|run|explain|keep|report` and `inkgrove summary`: forgetting on purpose, and what is left of it."""

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from inkgrove.cli.options import CommandGroup, CommandOptions, current, leading_arguments
from inkgrove.cli.output import console, facts_of, note, print_facts, print_json, printable
from inkgrove.cli.schema_lookup import SchemaArgument, find_schema_id
from inkgrove.cli.spark import spark_session, watching_tasks
from inkgrove.cli.supervisor import stop_on_signals, tell_ready
from inkgrove.core import Hash, IdentityId, parse_hash
from inkgrove.core.errors import InputError, NoSuchCopy
from inkgrove.messages import Timestamp

if TYPE_CHECKING:
    from inkgrove.pipeline.rot.policy import Policy
    from inkgrove.pipeline.rot.run import RotReport
    from inkgrove.store.db import Connection
    from inkgrove.store.rot import RotRun

app = CommandGroup("Forgetting on purpose: copies of other people's data.", "rot plan")
InstanceArgument = Annotated[str, typer.Argument(metavar="INSTANCE", help="The instance's id in hex.")]
BY_HAND = IdentityId(bytes(32))
"""The identity under which the pins of `inkgrove rot keep` are stored."""


def add_to(main: CommandGroup) -> None:
    """Put `summary` beside the groups."""
    main.command(epilog="Example: inkgrove summary slothmail")(summary)


def policy_in_effect() -> "Policy":
    """Return the policy that the settings describe; raises `rot.bad-policy` if they contradict each other."""
    # Imported here and below: every other command starts faster without.
    from inkgrove.pipeline.rot.policy import Limits, Policy, named_limits

    found = current().rot
    schemas = list(named_limits(found.schemas, ("bytes", "rows", "fungus")))
    return Policy(
        fungus=found.fungus,
        seed=found.seed,
        node=Limits(found.bytes, found.rows),
        per_identity=Limits(found.bytes_per_identity, found.rows_per_identity),
        per_schema=Limits(found.bytes_per_schema, found.rows_per_schema),
        identities={name: limits for name, limits, _ in named_limits(found.identities, ("bytes", "rows"))},
        schemas={name: limits for name, limits, _ in schemas if limits != Limits()},
        fungi={name: fungus for name, _, fungus in schemas if fungus is not None},
        guards=found.guards,
        absence_seconds=found.absence_seconds,
        cooked_seconds=found.cooked_seconds,
    )


def _clock() -> int:
    return time.time_ns() // 1000


@app.command(epilog="Example: inkgrove rot plan --out victims.parquet")
def plan(
    options: CommandOptions,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="List every copy that would go as Parquet, in a new directory."),
    ] = None,
) -> None:
    """Show what a run would take now, and why; nothing goes."""
    policy = policy_in_effect()
    path = None if out is None else out.resolve()
    if path is not None and path.exists():
        raise InputError("input.unreadable-file", f"{out} exists already; choose another name")
    outcome = _with_rot(options, lambda rot: rot.plan(policy, path))
    _print_outcome(outcome, as_json=options.as_json, would=True)
    if out is not None:
        note(f"every copy that would go is listed in {out}")


@app.command(epilog="Example: inkgrove rot run")
def run(
    options: CommandOptions,
    every: Annotated[
        int | None,
        typer.Option("--every", min=1, metavar="SECONDS", help="Go on until stopped, once in so many seconds."),
    ] = None,
) -> None:
    """Let copies rot as the settings say; a run that was interrupted is ended first."""
    policy = policy_in_effect()
    if every is not None:
        _run_every(every, options)
        return
    outcome = _with_rot(options, lambda rot: rot.run(policy))
    _print_outcome(outcome, as_json=options.as_json, would=False)


def _with_rot(options: CommandOptions, work: Any) -> "RotReport":
    options.open_logs().close()  # say what is wrong with the store before anybody waits for Spark
    with spark_session(options) as (spark, bar), watching_tasks(spark, bar, "rotting ..."):
        from inkgrove.pipeline.rot.run import Rot

        rot = Rot(spark, options.store_location, options.home.resolve(), _clock)
        try:
            outcome: RotReport = work(rot)
        finally:
            rot.close()
    return outcome


def _run_every(seconds: int, options: CommandOptions) -> None:
    """Run once in so many seconds, each time in a process of its own, so that no Spark is kept between runs."""
    stop = stop_on_signals()
    arguments = [*options.arguments, *(["--json"] if options.as_json else [])]
    command = [sys.executable, "-m", "inkgrove", *leading_arguments(), "rot", "run", *arguments]
    tell_ready()
    while not stop.wait(seconds):
        child = subprocess.Popen(command)
        while child.poll() is None:
            if stop.wait(0.2):
                child.terminate()  # the next run goes on where it was
                child.wait()
        if child.returncode and not stop.is_set():
            note(f"rot: a run ended with exit code {child.returncode}; the next one goes on")


def _print_outcome(outcome: "RotReport", *, as_json: bool, would: bool) -> None:
    if as_json:
        print_json(facts_of(outcome, "tick moves kept freed before after freshness"))
        return
    table = Table(
        "from", "to", "because of", "copies", "bytes freed", title=f"run {outcome.tick}", title_justify="left"
    )
    for move in outcome.moves:
        counts = (f"{move['copies']:,}", f"{move['bytes']:,}")
        table.add_row(move["step"], move["to_step"], printable(move["why"]), *counts)
    console().print(table if outcome.moves else "nothing has to go")
    if outcome.kept:
        console().print("spared: " + ", ".join(f"{count:,} {guard}" for guard, count in outcome.kept.items()))
    if would:
        note("nothing was changed: inkgrove rot run does it")
    elif outcome.moves:
        note("views follow with the pipeline: inkgrove materialise, if it is not running")


@app.command(epilog="Example: inkgrove rot explain 0040a1b2...")
def explain(options: CommandOptions, instance: InstanceArgument) -> None:
    """Say how a copy stands: its step and why, what a planned run is to do to it, freshness, reads, guard."""
    from inkgrove.store.rot import find_copy, find_victim, read_copy

    policy, name = policy_in_effect(), parse_hash(instance)

    def look(connection: "Connection") -> dict[str, Any]:
        copy = find_copy(connection, name)
        row = read_copy(connection, name, policy.guards, _clock(), policy.absence)
        planned = find_victim(connection, name)
        if copy is None or row is None:
            raise NoSuchCopy(f"{name.hex()[:20]}… is no foreign copy that a run has seen")
        return {
            "instance": name,
            "step": copy.step,
            "since_run": copy.run,
            "why": copy.why,
            "planned_step": None if planned is None else planned.step,
            "planned_why": None if planned is None else planned.why,
            "guard": row.guard,
            "freshness": round(copy.freshness, 6),
            "reads": round(copy.reads, 3),
            "new_reads": row.new_reads,
            "last_read_in_run": copy.last_read,
            "came_in_run": copy.born,
            "arrival": copy.arrival,
            "bytes": copy.bytes,
            "blob_bytes": row.blob_bytes,
            "expires": None if copy.expires is None else Timestamp(copy.expires),
            "fetched_again": copy.fetched,
        }

    with options.open_logs() as logs:
        facts = logs.database.read(look)
    options.answer(facts, lambda: print_facts("copy", facts))


@app.command(epilog="Example: inkgrove rot keep 0040a1b2...")
def keep(
    options: CommandOptions,
    instance: InstanceArgument,
    off: Annotated[bool, typer.Option("--off", help="Keep it no longer.")] = False,
) -> None:
    """Keep a copy whatever the budget, on behalf of the node."""
    from inkgrove.store.rot import drop_pin, put_pin

    name: Hash = parse_hash(instance)
    with options.open_logs() as logs:
        if off:
            logs.database.write(lambda connection: drop_pin(connection, name, BY_HAND))
        else:
            logs.database.write(lambda connection: put_pin(connection, name, BY_HAND, _clock()))
    text = f"{name.hex()[:20]}… is {'kept no longer' if off else 'kept'}"
    options.answer({"instance": name, "kept": not off}, lambda: typer.echo(text))


@app.command(epilog="Example: inkgrove rot report --svg freshness.svg")
def report(
    options: CommandOptions,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the freshness of all copies over the runs.")
    ] = None,
) -> None:
    """Show what is on each step of the ladder, what the runs freed, and how much was wanted back."""
    from inkgrove.pipeline.rot.picture import draw_freshness, render_svg
    from inkgrove.store.db import LADDER
    from inkgrove.store.rot import count_steps, list_rot_runs

    with options.open_logs() as logs:
        steps, runs = logs.database.read(lambda connection: (count_steps(connection), list_rot_runs(connection)))
    if svg is not None:
        svg.write_text(render_svg(draw_freshness([(item.tick, item.report.get("freshness", [])) for item in runs])))
        note(f"drawn to {svg}")
    regret = sum(facts["fetched"] for facts in steps.values())
    if options.as_json:
        print_json({"steps": steps, "regret": regret, "runs": [_run_facts(item) for item in runs]})
        return
    table = Table("step", "copies", "payload bytes", "blob bytes", title="now", title_justify="left")
    for step in LADDER:
        facts = steps.get(step, {})
        table.add_row(step, *(f"{facts.get(name, 0):,}" for name in ("copies", "bytes", "blob_bytes")))
    console().print(table)
    console().print(f"fetched again: {regret:,}")
    told = Table("run", "state", "moved", "freed", "bytes before", "after", title="runs", title_justify="left")
    for item in runs:
        facts = _run_facts(item)
        numbers = (f"{facts[name]:,}" for name in ("moved", "freed", "bytes_before", "bytes_after"))
        told.add_row(str(item.tick), item.state, *numbers)
    if runs:
        console().print(told)


def _run_facts(item: "RotRun") -> dict[str, Any]:
    def total(which: str) -> int:
        return sum(facts["bytes"] + facts["blob_bytes"] for facts in item.report.get(which, {}).values())

    moves = item.report.get("moves", [])
    return {
        "tick": item.tick,
        "state": item.state,
        "at": Timestamp(item.now),
        "moved": sum(move["copies"] for move in moves),
        "freed": sum(move["bytes"] for move in moves),
        "bytes_before": total("before"),
        "bytes_after": total("after"),
        "before": item.report.get("before", {}),
        "after": item.report.get("after", {}),
        "freshness": item.report.get("freshness", []),
    }


def summary(options: CommandOptions, schema: SchemaArgument) -> None:
    """Show a view in numbers: exact over the rows that are here, cooked over those that have rotted."""
    from inkgrove.store.db import EVERYTHING
    from inkgrove.store.rot import add_summaries, cooked_summary, exact_summary, summary_document

    with options.open_logs() as logs, options.open_views(with_node=True) as built:
        known = built.views()
        schema_id = find_schema_id(schema, built)
        if schema_id not in known:
            raise InputError("input.unknown-schema", f"{schema_id} has no view: inkgrove index it first")
        view = known[schema_id]
        exact = built.database.read(lambda connection: exact_summary(connection, view, None))
        cooked = logs.database.read(lambda connection: cooked_summary(connection, view, [EVERYTHING]))
    parts = {"exact": exact, "cooked": cooked, "together": add_summaries(exact, cooked)}
    if options.as_json:
        facts = {name: summary_document(part) for name, part in parts.items()}
        facts["cooked"] |= {"bytes": cooked.bytes, "months": list(cooked.months)}
        print_json({"schema": list(schema_id), "name": view.name, **facts})
        return
    title = f"{printable(view.name or str(schema_id))}: {exact.count:,} rows here, {cooked.count:,} cooked"
    table = Table("field", "of", "values", "mean", "least", "most", "quarters", "different", title=title)
    table.title_justify = "left"
    for field, _ in view.fields:
        for name, part in parts.items():
            item = part.fields.get(field)
            if item is None:
                continue
            mean = f"{item.sum / item.count:,.6g}" if item.sum is not None and item.count else "-"
            least, most = ("-" if value is None else f"{value:,.6g}" for value in (item.min, item.max))
            quarters = " ".join(f"{value:,.6g}" for value in item.quantiles) or "-"
            different = "-" if item.distinct is None else f"{item.distinct:,.0f}"
            table.add_row(field, name, f"{item.count:,}", mean, least, most, quarters, different)
    console().print(table)
    if cooked.count:
        note("cooked quarters are off by at most 1.65 % of the ranks, cooked counts of different values by 3.25 %")

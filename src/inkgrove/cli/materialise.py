"""`inkgrove index|unindex|views|materialise|rebuild|outcomes`: which schemas are materialised, and doing it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from inkgrove.cli.options import CommandGroup, CommandOptions, current, set_flag
from inkgrove.cli.output import console, facts_of, note, print_json, printable
from inkgrove.cli.progress import Bar
from inkgrove.cli.schema_lookup import SchemaArgument, find_schema_id, require_schema_id
from inkgrove.cli.spark import following, spark_session
from inkgrove.cli.supervisor import stop_on_signals, tell_ready
from inkgrove.core.errors import InkgroveError, NoStore, StoreUnavailable
from inkgrove.messages import SchemaId

if TYPE_CHECKING:
    from inkgrove.pipeline.views import Materialiser, Report
    from inkgrove.store.db import ExclusiveWork

LogArgument = Annotated[int, typer.Argument(metavar="LOG", min=1, help="Log id of the schema.")]
AuthorArgument = Annotated[str, typer.Argument(metavar="AUTHOR", help="Public key of the schema's author, in hex.")]


def add_to(app: CommandGroup) -> None:
    """Put these commands beside the groups."""
    app.command(epilog="Example: inkgrove index 88e1cb88... 12")(index)
    app.command(epilog="Example: inkgrove unindex 88e1cb88... 12")(unindex)
    app.command(epilog="Example: inkgrove views")(views)
    app.command(epilog="Example: inkgrove materialise --once")(materialise)
    app.command(epilog="Example: inkgrove rebuild slothmail")(rebuild)
    app.command(epilog="Example: inkgrove outcomes slothmail --only quarantined")(outcomes)


def index(options: CommandOptions, author: AuthorArgument, log_id: LogArgument) -> None:
    """Put a schema on the list of those to materialise."""
    _register(options, author, log_id, is_wanted=True)


def unindex(options: CommandOptions, author: AuthorArgument, log_id: LogArgument) -> None:
    """Take a schema off the list; its view goes with the next run of the pipeline."""
    _register(options, author, log_id, is_wanted=False)


def _register(options: CommandOptions, author: str, log_id: int, *, is_wanted: bool) -> None:
    from inkgrove.store.logs import register_schema, unregister_schema

    schema_id = require_schema_id(f"{author}/{log_id}")
    with options.open_logs() as logs:
        has_changed = logs.write(register_schema, schema_id) if is_wanted else logs.write(unregister_schema, schema_id)
    texts = (
        ("is registered", "was registered already") if is_wanted else ("is registered no more", "was not registered")
    )
    facts = {"schema": list(schema_id), "registered": is_wanted, "changed": has_changed}
    options.answer(facts, lambda: typer.echo(f"{schema_id} {texts[0] if has_changed else texts[1]}"))


def views(options: CommandOptions) -> None:
    """List the registered schemas with their views: version, rows, outcomes, and what they wait for."""
    from inkgrove.store.logs import newest_offset, read_registered
    from inkgrove.store.views import count_rows, count_visible_outcomes

    logs, built = options.open_logs(), options.open_views()
    known = built.views()
    facts: list[dict[str, Any]] = []
    with built.database.reading() as connection:
        for schema_id in logs.read(read_registered):
            view = known.get(schema_id)
            facts.append(
                {
                    "schema": list(schema_id),
                    "name": view.name if view else None,
                    "version": (view.version or None) if view else None,
                    "rows": count_rows(connection, view) if view else 0,
                    "outcomes": count_visible_outcomes(connection, view) if view else {},
                    "waits_for": [list(waiting) for waiting in view.waits_for] if view else [],
                    "stopped": view.stopped if view else None,
                    "built": bool(view and view.is_built),
                }
            )
    _, offset = built.progress()
    behind = logs.read(newest_offset).position - offset.position
    logs.close()
    built.close()
    if options.as_json:
        for item in facts:
            print_json(item)
        return
    table = Table("schema", "name", "version", "rows", "applied", "pending", "quarantined", "obsolete", "state")
    for item in facts:
        counts: dict[str, int] = item["outcomes"]
        state = "not built yet: inkgrove materialise --once" if not item["built"] else "ready"
        if item["waits_for"]:
            state = "waits for " + ", ".join(SchemaId(*schema).short for schema in item["waits_for"])
        table.add_row(
            SchemaId(*item["schema"]).short,
            printable(str(item["name"] or "-")),
            str(item["version"] or "-"),
            f"{item['rows']:,}",
            *(f"{counts.get(name, 0):,}" for name in ("applied", "pending", "quarantined", "obsolete")),
            printable(str(item["stopped"] or state)),
        )
    console().print(table if facts else "no schema is registered: inkgrove index AUTHOR LOG")
    if behind > 0:
        note(f"{behind:,} positions are not in the views yet")


def materialise(
    options: CommandOptions,
    once: Annotated[bool, typer.Option("--once", help="Catch up with the store, then end.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until stopped.")] = False,
    max_entries: Annotated[
        int | None, typer.Option(min=1, help="How many positions one batch takes at most (a setting, too).")
    ] = None,
) -> None:
    """Bring the views up to date with Spark: once, or following the store."""
    from inkgrove.store.db import ExclusiveWork

    if once == follow:
        raise typer.BadParameter("say --once or --follow")
    set_flag("pipeline.max_entries_per_batch", max_entries)
    start = perf_counter()
    with _pipeline(options, ExclusiveWork.STREAM) as (materialiser, bar), tempfile.TemporaryDirectory() as checkpoint:
        materialiser.run.begin(ExclusiveWork.STREAM)
        tell_ready()  # Spark has started, and nobody else keeps these views
        bar.begin("building views ...")
        size = current().pipeline.max_entries_per_batch
        query = materialiser.follow(Path(checkpoint), once=once, max_entries=size)
        _show_batches(materialiser, bar, once=once)
        stop = stop_on_signals()
        while query.isActive and not stop.is_set():
            query.awaitTermination(0.2)
        query.stop()
        if query.exception() is not None:
            raise query.exception()
        seconds = perf_counter() - start
    _print_report(materialiser.report, seconds, as_json=options.as_json)


def rebuild(options: CommandOptions, schema: SchemaArgument) -> None:
    """Fold a view from scratch beside the one that is there, then swap it in."""
    from inkgrove.store.db import ExclusiveWork

    start = perf_counter()
    # A name that nobody has is told before anybody waits for Spark.
    with options.open_views() as built:
        schema_id = find_schema_id(schema, built)
    with _pipeline(options, ExclusiveWork.REBUILD) as (materialiser, _):
        materialiser.rebuild(schema_id)
        seconds = perf_counter() - start
    _print_report(materialiser.report, seconds, as_json=options.as_json)


def outcomes(
    options: CommandOptions,
    schema: Annotated[str, typer.Argument(metavar="SCHEMA", help="AUTHOR/LOG or name; - for messages of no schema.")],
    only: Annotated[str | None, typer.Option(help="applied, pending, quarantined or obsolete.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
) -> None:
    """Show what became of the messages of a schema, and why."""
    from inkgrove.store.views import VisibleOutcome, read_visible_outcomes

    with options.open_views() as built:
        view = None if schema == "-" else built.views().get(find_schema_id(schema, built))
        rows: list[VisibleOutcome] = []
        if schema == "-" or view is not None:
            rows = built.database.read(lambda c: read_visible_outcomes(c, view, only=only, limit=limit))
    if options.as_json:
        for row in rows:
            print_json(facts_of(row, "author log_id seq_num hash outcome code reason"))
        return
    table = Table("author", "log", "seq", "outcome", "code", "reason")
    for row in rows:
        entry = (f"{row.author.hex()[:8]}…", str(row.log_id), str(row.seq_num))
        table.add_row(*entry, row.outcome, row.code, printable(row.reason))
    console().print(table if rows else "no messages")


@contextmanager
def _pipeline(options: CommandOptions, work: "ExclusiveWork") -> Iterator[tuple["Materialiser", Bar]]:
    _check_store(options, work)
    try:
        with spark_session(options) as (spark, bar):
            from inkgrove.pipeline.views import Materialiser

            wanted = current().pipeline.partitions
            materialiser = Materialiser(spark, options.store_location, parts=wanted, on_progress=following(bar))
            if materialiser.parts < wanted and not options.as_json:
                note(f"SQLite can merge {materialiser.parts} tasks at once: pipeline.partitions is taken for that")
            try:
                yield materialiser, bar
            finally:
                with suppress(StoreUnavailable):  # it has been told, or does not matter any more
                    materialiser.close()
    except InkgroveError as error:
        from inkgrove.store.db import ExclusiveWork

        if work is ExclusiveWork.STREAM:
            _note_trouble(options, error)
        raise


def _note_trouble(options: CommandOptions, error: InkgroveError) -> None:
    """Keep the error in the store, so that the node can show why the views are not updated."""
    from inkgrove.store.views import STREAM, PipelineFailure, record_pipeline_failure

    trouble = PipelineFailure(time_ns() // 1000, error.code, error.public_message)
    with suppress(NoStore, StoreUnavailable), options.open_views() as built:
        built.database.write(lambda connection: record_pipeline_failure(connection, STREAM, trouble))


def _check_store(options: CommandOptions, work: "ExclusiveWork") -> None:
    """Raise what is wrong with the store, or that another process does this work, before anybody waits for Spark."""
    from inkgrove.store.db import start_pipeline_run

    options.open_logs().close()
    with options.open_views() as built:
        run = start_pipeline_run(built.database)
        try:
            run.begin(work)
        finally:
            run.close()


def _show_batches(materialiser: "Materialiser", bar: Bar, *, once: bool) -> None:
    """Show the position of the views on the bar after each batch, against the newest position if it runs `once`."""
    from inkgrove.store.logs import newest_offset

    begun = materialiser.views.progress()[1].position
    total = materialiser.store.read(newest_offset).position - begun if once else None
    title = "folding ..." if once else "following ..."
    bar.begin(title, total, unit="positions")

    def show(report: "Report") -> None:
        # A view that was built in between had the bar for itself.
        bar.show(title, materialiser.views.progress()[1].position - begun, total, unit="positions")
        bar(f"{'folding' if once else 'following'}: {report.written:,} rows written")

    materialiser.listener = show


def _print_report(report: "Report", seconds: float, *, as_json: bool) -> None:
    counts = {name: report.counts[name] for name in ("applied", "pending", "quarantined", "obsolete")}
    folded = sum(counts.values())
    facts = {"batches": report.batches, "rebuilt": [list(schema) for schema in report.rebuilt], **counts}
    if as_json:
        print_json({**facts, "rows_written": report.written, "seconds": round(seconds, 3)})
        return
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing to fold"
    built = f", {len(report.rebuilt)} views built" if report.rebuilt else ""
    rate = f", {folded / seconds:,.0f} messages/s" if folded else ""
    typer.echo(f"{folded:,} messages: {told}; {report.written:,} rows written{built}; {seconds:.1f} s{rate}")

"""`inkgrove import|export`: archives of entries as Parquet; `inkgrove view export`: a view as files."""

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.table import Table

from inkgrove.cli.options import CommandGroup, CommandOptions
from inkgrove.cli.output import NOT_VALID, console, note, print_json
from inkgrove.cli.schema_lookup import SchemaArgument, find_built_view
from inkgrove.cli.spark import following, spark_session
from inkgrove.core.errors import InputError

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="Parquet file or directory.")]


def add_to(app: CommandGroup, view_app: CommandGroup) -> None:
    """Put these commands where they belong."""
    app.command("import", epilog="Example: inkgrove import archive.parquet")(import_)
    app.command(epilog="Example: inkgrove export archive.parquet")(export)
    view_app.command("export", epilog="Example: inkgrove view export slothmail mails --format parquet")(export_view)


def import_(
    options: CommandOptions,
    path: PathArgument,
    rejects: Annotated[Path, typer.Option(help="Where refused entries go, with the reason.", metavar="FILE")] = Path(
        "rejected.parquet"
    ),
) -> None:
    """Take an archive (columns entry and payload) into the store, fully verified; twice changes nothing."""
    from inkgrove.cli.import_process import import_into_store

    if not path.exists():
        raise InputError("input.unreadable-file", f"cannot read {path}: no such file or directory")
    start = perf_counter()
    with spark_session(options) as (spark, bar):
        store = options.store_location
        report = import_into_store(spark, store, path.resolve(), rejects.resolve(), following(bar))
    facts = {"read": report.read, "appended": report.appended, "known": report.known}
    if options.as_json:
        print_json({**facts, "rejected": dict(report.rejected)})
    else:
        told = ", ".join(f"{count:,} {name}" for name, count in facts.items())
        typer.echo(f"{told}; {_rate(report.read, perf_counter() - start)}")
        if report.rejected:
            table = Table("rejected", "entries")
            for code, count in sorted(report.rejected.items()):
                table.add_row(code, f"{count:,}")
            console().print(table)
            note(f"the refused entries are in {rejects}")
    if report.rejected:
        raise typer.Exit(NOT_VALID)


def export(options: CommandOptions, path: PathArgument) -> None:
    """Write every entry of the store with its payload as a Parquet archive."""
    if path.exists():
        raise InputError("input.unreadable-file", f"{path} exists already; choose another name")
    options.existing_store()
    start = perf_counter()
    with spark_session(options) as (spark, bar):
        from inkgrove.pipeline.archive import export_archive

        options.open_logs().close()
        count = export_archive(spark, options.store_location, path.resolve(), following(bar))
    text = f"{count:,} entries in {path}; {_rate(count, perf_counter() - start)}"
    options.answer({"exported": count, "path": str(path)}, lambda: typer.echo(text))


def export_view(
    options: CommandOptions,
    schema: SchemaArgument,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new directory.")],
    form: Annotated[str, typer.Option("--format", help="parquet, csv, json or delta.")] = "parquet",
) -> None:
    """Write the rows of a view into a new directory, as one file."""
    if form not in ("parquet", "csv", "json", "delta"):
        raise typer.BadParameter("--format is parquet, csv, json or delta")
    with options.open_views() as views:
        view = find_built_view(schema, views)
    start = perf_counter()
    with spark_session(options) as (spark, bar):
        from inkgrove.pipeline.views import export_view as write

        count = write(spark, options.store_location, view, path.resolve(), form, following(bar))  # type: ignore[arg-type]
    text = f"{count:,} rows in {path}; {_rate(count, perf_counter() - start)}"
    options.answer({"rows": count, "path": str(path), "format": form}, lambda: typer.echo(text))


def _rate(count: int, seconds: float) -> str:
    rate = f", {count / seconds:,.0f}/s" if count >= 1_000 else ""  # of a few it says how long Spark takes to start
    return f"{seconds:.1f} s{rate}"

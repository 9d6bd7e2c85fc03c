"""`inkgrove import|export`: archives of entries as Parquet; `inkgrove view export`: a view as files."""

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.table import Table

from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import NOT_VALID, JsonOption, console, note, print_json
from inkgrove.cli.place import StoreOption, existing_store, find_by_name, store_place
from inkgrove.cli.spark import following, spark_session
from inkgrove.core.errors import UnknownSchema, UnreadableFile

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="Parquet file or directory.")]


def add_to(app: typer.Typer, view_app: typer.Typer) -> None:
    """Put these commands where they belong."""
    app.command("import", epilog="Example: inkgrove import archive.parquet")(import_)
    app.command(epilog="Example: inkgrove export archive.parquet")(export)
    view_app.command("export", epilog="Example: inkgrove view export slothmail mails --format parquet")(export_view)


def import_(
    path: PathArgument,
    rejects: Annotated[Path, typer.Option(help="Where refused entries go, with the reason.", metavar="FILE")] = Path(
        "rejected.parquet"
    ),
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take an archive (columns entry and payload) into the store, fully verified; twice changes nothing."""
    from inkgrove.node.identity_log import follow_since  # noqa: PLC0415
    from inkgrove.store.opening import open_store  # noqa: PLC0415

    if not path.exists():
        raise UnreadableFile(f"cannot read {path}: no such file or directory")
    start = perf_counter()
    with spark_session(home, quiet=as_json) as (spark, bar):
        from inkgrove.pipeline.archive import import_archive  # noqa: PLC0415

        logs = open_store(store_place(home, store))
        before = logs.newest_offset()
        try:
            report = import_archive(spark, logs, path.resolve(), rejects.resolve(), following(bar))
        finally:
            # What came in counts, however the import ended: also what it says of keys.
            logs.database.write(lambda connection: follow_since(connection, before))
            logs.close()
    facts = {"read": report.read, "appended": report.appended, "known": report.known}
    if as_json:
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


def export(
    path: PathArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Write every entry of the store with its payload as a Parquet archive."""
    from inkgrove.store.opening import open_store  # noqa: PLC0415

    if path.exists():
        raise UnreadableFile(f"{path} exists already; choose another name")
    place = existing_store(home, store)
    start = perf_counter()
    with spark_session(home, quiet=as_json) as (spark, bar):
        from inkgrove.pipeline.archive import export_archive  # noqa: PLC0415

        open_store(place).close()
        count = export_archive(spark, place, path.resolve(), following(bar))
    if as_json:
        print_json({"exported": count, "path": str(path)})
    else:
        typer.echo(f"{count:,} entries in {path}; {_rate(count, perf_counter() - start)}")


def export_view(
    schema: Annotated[str, typer.Argument(metavar="SCHEMA", help="AUTHOR/LOG, or the name if only one has it.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A new directory.")],
    form: Annotated[str, typer.Option("--format", help="parquet, csv, json or delta.")] = "parquet",
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the rows of a view into a new directory, as one file."""
    from inkgrove.store.view_store import open_views  # noqa: PLC0415

    if form not in ("parquet", "csv", "json", "delta"):
        raise typer.BadParameter("--format is parquet, csv, json or delta")
    place = existing_store(home, store)
    views = open_views(place)
    known = views.views()
    views.close()
    schema_id = find_by_name(schema, {key: view.name for key, view in known.items()})
    if schema_id not in known or not known[schema_id].is_built:
        raise UnknownSchema(f"{schema_id} has no view yet: inkgrove index it, then inkgrove materialise --once")
    start = perf_counter()
    with spark_session(home, quiet=as_json) as (spark, bar):
        from inkgrove.pipeline.views import export_view as write  # noqa: PLC0415

        count = write(spark, place, known[schema_id], path.resolve(), form, following(bar))  # type: ignore[arg-type]
    if as_json:
        print_json({"rows": count, "path": str(path), "format": form})
    else:
        typer.echo(f"{count:,} rows in {path}; {_rate(count, perf_counter() - start)}")


def _rate(count: int, seconds: float) -> str:
    rate = f", {count / seconds:,.0f}/s" if count >= 1_000 else ""  # of a few it says how long Spark takes to start
    return f"{seconds:.1f} s{rate}"

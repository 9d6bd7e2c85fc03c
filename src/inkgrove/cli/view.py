"""`inkgrove view`: tables from logs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from inkgrove.cli.files import read_entry_lines
from inkgrove.cli.options import CommandGroup, CommandOptions
from inkgrove.cli.output import JsonOption, console, facts_of, note, print_json, printable
from inkgrove.cli.schema_lookup import SchemaArgument, find_built_view, require_schema_id
from inkgrove.core import HeldEntry, decode_entry, verify_signed
from inkgrove.core.errors import InkgroveError, InputError
from inkgrove.messages import Access, access_to_json, value_to_json

if TYPE_CHECKING:
    from inkgrove.reference import ReferenceRow, ReferenceView
    from inkgrove.store.views import Filter, ViewRow

app = CommandGroup("Tables from logs.", "view show slothmail")


@app.command(epilog="Example: inkgrove view reference slothmail.jsonl feed.jsonl --table")
def reference(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Log files, schemas and instances; - is stdin.")
    ],
    schema: Annotated[
        list[str] | None, typer.Option("--schema", metavar="AUTHOR/LOG", help="Register these schemas only.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Print tables for people.")] = False,
    _json: JsonOption = False,
) -> None:
    """Fold logs with the reference and print each schema's rows and outcomes, one JSON line per schema.

    The tool to try a migration before publishing it: no Spark, no database, every rule to the letter. Without
    --schema, all schemas count as registered, those that relations point to included.
    """
    from inkgrove.reference import fold_views

    held = []
    for file in files:
        for line in read_entry_lines(file):
            if isinstance(line, tuple):
                note(f"{file}, line {line[0]} left out: {line[1].message} [{line[1].code}]")
                continue
            try:
                held.append(HeldEntry(verify_signed(decode_entry(line.entry)), line.payload))
            except InkgroveError as error:
                note(f"{file}, line {line.number} left out: {error.message} [{error.code}]")
    if not held:
        raise InputError(
            "input.unreadable-file", 'no entry was found in the files: each line is an object with "entry" in hex'
        )
    registered = None if schema is None else [require_schema_id(text) for text in schema]
    for view in fold_views(held, registered):
        if registered is None and view.version is None and not view.outcomes and not view.absent:
            continue  # only a relation points there
        if table:
            _print_view(view)
        else:
            print_json(_view_facts(view))


@app.command(epilog="Example: inkgrove view show slothmail --where subject=contains:Hello --sort -created --limit 20")
def show(
    options: CommandOptions,
    schema: SchemaArgument,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=[OP:]VALUE", help="OP: eq, ne, lt, lte, gt, gte, in (a,b), contains, is-null."),
    ] = None,
    sort: Annotated[list[str] | None, typer.Option(metavar="FIELD", help="Sort by it; -FIELD descends.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many rows at most.")] = 100,
    provenance: Annotated[bool, typer.Option("--provenance", help="With the entry behind each value.")] = False,
) -> None:
    """Show rows of a materialised view."""
    from inkgrove.store.views import read_page

    with options.open_views() as views:
        view = find_built_view(schema, views)
        filters = [_parse_filter(text, dict(view.fields)) for text in where or ()]
        order = [(text.removeprefix("-"), text.startswith("-")) for text in sort or ()]
        with views.database.reading() as connection:
            page = read_page(connection, view, where=filters, sort=order, limit=limit)
    if options.as_json:
        for row in page.rows:
            facts = _row_facts(row)
            print_json({**facts, "provenance": row.field_seq_nums} if provenance else facts)
        return
    names = [name for name, _ in view.fields]
    title = f"{printable(view.name or str(view.schema_id))}, version {view.version}"
    table = Table("author", "seq", "last", *names, title=title, title_justify="left")
    for row in page.rows:
        cells = []
        for name, value in row.fields.items():
            text = "-" if value is None else printable(str(value_to_json(value)))
            cells.append(f"{text} [{row.field_seq_nums[name]}]" if provenance else text)
        table.add_row(f"{row.author.hex()[:8]}…", str(row.seq_num), str(row.last_seq_num), *cells)
    console().print(table if page.rows else f"{title}: no rows")
    if page.after is not None:
        note(f"only the first {limit} rows; see --limit, --where and --sort")


def _parse_filter(text: str, types: dict[str, str]) -> "Filter":
    from inkgrove.store.views import OPERATORS, make_filter

    name, found, rest = text.partition("=")
    if not found:
        raise typer.BadParameter(f"{text!r} is not FIELD=VALUE or FIELD=OP:VALUE")
    operator, colon, value = rest.partition(":")
    if not colon or operator not in OPERATORS:
        return make_filter(name, "eq", rest, types)
    return make_filter(name, OPERATORS[operator], value, types)


def _row_facts(row: "ReferenceRow | ViewRow") -> dict[str, object]:
    facts = facts_of(row, "instance author log_id seq_num last_seq_num last_hash fields")
    return {**facts, "access": _access_facts(row.access), **facts_of(row, "expires copied_from")}


def _view_facts(view: "ReferenceView") -> dict[str, object]:
    return {
        "schema": None if view.schema is None else list(view.schema),
        "version": view.version,
        "rows": [_row_facts(row) for row in view.rows],
        "outcomes": [
            {
                **facts_of(item, "author log_id seq_num hash"),
                "outcome": item.outcome.value,
                **facts_of(item, "code reason"),
            }
            for item in view.outcomes
        ],
        "absent": view.absent,
        "waits_for": [list(waiting) for waiting in view.waits_for],
        "stopped": view.stopped,
    }


def _access_facts(access: Access | None) -> dict[str, object] | None:
    return None if access is None else access_to_json(access)


def _print_view(view: "ReferenceView") -> None:
    name = "messages of no schema" if view.schema is None else view.schema.short
    out = console()
    if view.schema is not None:
        columns = list(view.rows[0].fields) if view.rows else []
        rows = Table("author", "seq", "last", *columns, title=f"{name} at version {view.version}", title_justify="left")
        for row in view.rows:
            values = ["-" if value is None else printable(str(value_to_json(value))) for value in row.fields.values()]
            rows.add_row(f"{row.author.hex()[:8]}…", str(row.seq_num), str(row.last_seq_num), *values)
        out.print(rows if view.rows else f"{name} at version {view.version}: no rows")
        if view.stopped:
            out.print(f"the schema's known versions end: {view.stopped}")
    outcomes = Table("author", "log", "seq", "outcome", "code", "reason", title="outcomes", title_justify="left")
    for item in view.outcomes:
        entry = (f"{item.author.hex()[:8]}…", str(item.log_id), str(item.seq_num))
        outcomes.add_row(*entry, item.outcome.value, item.code, printable(item.reason))
    if view.outcomes:
        out.print(outcomes)

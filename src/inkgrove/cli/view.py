"""`inkgrove view`: tables from logs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from inkgrove.cli.files import read_entry_lines
from inkgrove.cli.output import JsonOption, console, note, plain, print_json, printable
from inkgrove.core.entry import decode_entry
from inkgrove.core.errors import InkgroveError, UnreadableFile
from inkgrove.core.keys import parse_public_key
from inkgrove.core.log import HeldEntry
from inkgrove.core.verify import verify_signed
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Access
from inkgrove.reference import ReferenceView, fold

app = typer.Typer(no_args_is_help=True, help="Tables from logs.")


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

    The tool to try a migration before publishing it: no Spark, no database, every rule to the letter.
    """
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
        raise UnreadableFile('no entry was found in the files: each line is an object with "entry" in hex')
    registered = None if schema is None else [_parse_schema_id(text) for text in schema]
    for view in fold(held, registered):
        if table:
            _print_view(view)
        else:
            print_json(_view_facts(view))


def _parse_schema_id(text: str) -> SchemaId:
    author, _, log_id = text.partition("/")
    if not log_id.isascii() or not log_id.isdigit():
        raise typer.BadParameter(f"{text!r} is not AUTHOR/LOG")
    return SchemaId(parse_public_key(author), int(log_id))


def _view_facts(view: ReferenceView) -> dict[str, object]:
    return {
        "schema": None if view.schema is None else list(view.schema),
        "version": view.version,
        "rows": [
            {
                "instance": row.instance,
                "author": row.author,
                "log_id": row.log_id,
                "seq_num": row.seq_num,
                "last_seq_num": row.last_seq_num,
                "last_hash": row.last_hash,
                "fields": row.fields,
                "access": _access_facts(row.access),
                "expires": row.expires,
                "copied_from": row.copied_from,
            }
            for row in view.rows
        ],
        "outcomes": [
            {
                "author": item.author,
                "log_id": item.log_id,
                "seq_num": item.seq_num,
                "hash": item.hash,
                "outcome": item.outcome.value,
                "code": item.code,
                "reason": item.reason,
            }
            for item in view.outcomes
        ],
        "absent": view.absent,
        "waits_for": [list(waiting) for waiting in view.waits_for],
        "stopped": view.stopped,
    }


def _access_facts(access: Access | None) -> dict[str, object] | None:
    return None if access is None else {"mode": access.mode, "to": list(access.to)}


def _print_view(view: ReferenceView) -> None:
    name = "messages of no schema" if view.schema is None else f"{view.schema.author.hex()[:8]}…/{view.schema.log_id}"
    out = console()
    if view.schema is not None:
        columns = list(view.rows[0].fields) if view.rows else []
        rows = Table("author", "seq", "last", *columns, title=f"{name} at version {view.version}", title_justify="left")
        for row in view.rows:
            values = ["-" if value is None else printable(str(plain(value))) for value in row.fields.values()]
            rows.add_row(f"{row.author.hex()[:8]}…", str(row.seq_num), str(row.last_seq_num), *values)
        out.print(rows if view.rows else f"{name} at version {view.version}: no rows")
        if view.stopped:
            out.print(f"the schema's known versions end: {view.stopped}")
    outcomes = Table("author", "log", "seq", "outcome", "code", "reason", title="outcomes", title_justify="left")
    for item in view.outcomes:
        place = (f"{item.author.hex()[:8]}…", str(item.log_id), str(item.seq_num))
        outcomes.add_row(*place, item.outcome.value, item.code, printable(item.reason))
    if view.outcomes:
        out.print(outcomes)

"""Where a command finds its store: the home directory, or a PostgreSQL database by URL."""

from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.configuration import take_flag
from inkgrove.core.errors import InkgroveError, UnknownSchema
from inkgrove.core.keys import parse_public_key
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages.ids import SchemaId

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="INKGROVE_STORE",
        help="PostgreSQL URL, instead of files in --home.",
        metavar="URL",
        callback=take_flag,
    ),
]


def store_place(home: Path, store: str | None) -> str:
    """The place that `open_store` takes, for commands that may make a new store there."""
    return store or str(home.resolve())


def existing_store(home: Path, store: str | None) -> str:
    """The same for commands that make no store; raises `NoStore` if there is none, and writes nothing."""
    # Imported here: every command that needs no store starts faster without.
    from inkgrove.store.opening import require_store  # noqa: PLC0415

    place = store_place(home, store)
    require_store(place)
    return place


def parse_schema_id(text: str) -> SchemaId:
    """`AUTHOR/LOG`; a schema's log has an id from 1 to 2^63 - 1."""
    author, _, log_id = text.partition("/")
    is_number = log_id.isascii() and log_id.isdigit() and len(log_id) < 20
    if not is_number or not 1 <= int(log_id) <= MAX_STORED_INTEGER:
        raise typer.BadParameter(f"{text[:120]!r} is not AUTHOR/LOG, with a log id from 1 to 2^63 - 1")
    try:
        return SchemaId(parse_public_key(author), int(log_id))
    except InkgroveError as err:
        raise typer.BadParameter(f"{text!r} is not AUTHOR/LOG: {err.message}") from err


def find_by_name(text: str, names: dict[SchemaId, str | None]) -> SchemaId:
    """A schema by `AUTHOR/LOG`, or by its name if only one has it."""
    if "/" in text:
        return parse_schema_id(text)
    found = [schema_id for schema_id, name in names.items() if name == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownSchema(f"several schemas are called {text!r}; say which: {', '.join(map(str, found))}")
    known = ", ".join(sorted({name for name in names.values() if name})) or "none"
    raise UnknownSchema(
        f"no registered schema is called {text!r}; there are: {known}. `inkgrove index AUTHOR LOG` registers one."
    )

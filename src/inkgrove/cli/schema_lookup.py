"""Finds schemas by name or AUTHOR/LOG: among the files of a home, and among those that its store holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from inkgrove.cli.options import CommandOptions
from inkgrove.cli.schema_files import find_schema, read_schema_file, schema_paths
from inkgrove.core.errors import InkgroveError, InputError, NoStore
from inkgrove.messages import Create, SchemaId, Update, decode_message, parse_schema_id
from inkgrove.schema import Schema, fold_schema

if TYPE_CHECKING:
    from inkgrove.store.logs import LogStore
    from inkgrove.store.views import View, ViewStore


SchemaArgument = Annotated[str, typer.Argument(metavar="SCHEMA", help="AUTHOR/LOG, or the name if only one has it.")]


class RelationTarget(NamedTuple):
    """The schema that a relation points to, as far as it is known here."""

    field: str
    schema_id: SchemaId
    name: str | None
    version: int
    """The newest that is known; 0 if nothing of the schema is."""
    is_registered: bool | None
    """Whether the store materialises it; None without a store."""


class SchemaLookup:
    """Finds schemas in the files of a home and in its store."""

    def __init__(self, home: Path, store: "LogStore | None") -> None:
        self._home = home
        self._store = store

    def find(self, name: str | None) -> Schema:
        """Find a schema: a file by its name, or one of the store by AUTHOR/LOG or by the name of a registered one.

        None is the only file there is. Raises `input.unknown-schema` if there is none, or several.
        """
        from inkgrove.store.logs import read_registered

        files = [path.stem for path in schema_paths(self._home)]
        if self._store is None or name in files or (name is None and files):
            return find_schema(self._home, name).schema
        registered = {schema_id: self.read(schema_id) for schema_id in self._store.read(read_registered)}
        if name is None:
            known = ", ".join(map(str, registered)) or "none"
            raise InputError(
                "input.unknown-schema", f"say which schema with --schema AUTHOR/LOG or NAME; registered are: {known}"
            )
        if "/" in name:
            found = self.read(require_schema_id(name))
            if not found.versions:
                raise InputError("input.unknown-schema", f"the store holds no schema {name}")
            return found
        return registered[
            find_by_name(name, {key: schema.meta.name if schema.meta else None for key, schema in registered.items()})
        ]

    def read(self, schema_id: SchemaId) -> Schema:
        """Return a schema with the versions that are known here, which may be none."""
        from inkgrove.store.logs import payloads_of_schema

        in_files = [read_schema_file(path).schema for path in schema_paths(self._home)]
        found = [schema for schema in in_files if schema.id == schema_id]
        if self._store is not None:
            log = self._store.database.read(lambda connection: payloads_of_schema(connection, schema_id))
            found.append(fold_schema(schema_id, log.payloads, log.invalid_from))
        return max(found, key=lambda schema: len(schema.versions), default=Schema(schema_id, ()))

    def relation(self, field: str, schema_id: SchemaId) -> RelationTarget:
        """Return the target of the relation `field`."""
        from inkgrove.store.logs import read_registered

        found = self.read(schema_id)
        is_registered = None if self._store is None else schema_id in self._store.read(read_registered)
        name = found.meta.name if found.meta is not None else None
        return RelationTarget(field, schema_id, name, len(found.versions), is_registered)

    def messages(self, schema_id: SchemaId) -> Iterator[Create | Update]:
        """Yield the creates and updates of a schema in the store, without those in invalid parts of logs.

        Raises `NoStore` if there is no store.
        """
        from inkgrove.store.logs import logs_of_schema, messages_between

        if self._store is None:
            raise NoStore("there is no store to count in: give a log file with --messages instead")
        for number in self._store.read(logs_of_schema, schema_id):
            for item in self._store.read(messages_between, number):
                if item.payload is None or item.invalid_code is not None:
                    continue
                try:
                    message = decode_message(item.payload)
                except InkgroveError:
                    continue
                if isinstance(message, Create | Update) and message.schema.schema_id == schema_id:
                    yield message


@contextmanager
def open_lookup(options: CommandOptions) -> Iterator[SchemaLookup]:
    """Open the schemas of a home, with those of its store if there is one.

    Raises `NoStore` if a store was named with `--store` and is not there.
    """
    # Imported here: every command that needs no store starts faster without.
    from inkgrove.store.logs import open_store

    try:
        opened = open_store(options.store_location, create=False)
    except NoStore:
        if options.store is not None:
            raise
        yield SchemaLookup(options.home, None)
        return
    with opened:
        yield SchemaLookup(options.home, opened)


def require_schema_id(text: str) -> SchemaId:
    """Parse `AUTHOR/LOG`; raises `typer.BadParameter` if the text is anything else."""
    schema_id = parse_schema_id(text)
    if schema_id is None:
        raise typer.BadParameter(
            f"{text[:120]!r} is not AUTHOR/LOG: a key of 64 hex characters, and a log id from 1 to 2^63 - 1"
        )
    return schema_id


def find_by_name(text: str, names: dict[SchemaId, str | None]) -> SchemaId:
    """Find a schema by `AUTHOR/LOG`, or by its name in `names`; raises `input.unknown-schema` if none or several."""
    if "/" in text:
        return require_schema_id(text)
    found = [schema_id for schema_id, name in names.items() if name == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            "input.unknown-schema", f"several schemas are called {text!r}; say which: {', '.join(map(str, found))}"
        )
    known = ", ".join(sorted({name for name in names.values() if name})) or "none"
    raise InputError(
        "input.unknown-schema",
        f"no registered schema is called {text!r}; there are: {known}. `inkgrove index AUTHOR LOG` registers one.",
    )


def find_schema_id(text: str, views: "ViewStore") -> SchemaId:
    """Find a schema by `AUTHOR/LOG` or by the name of a view; raises `input.unknown-schema` if none or several."""
    return find_by_name(text, {schema_id: view.name for schema_id, view in views.views().items()})


def find_built_view(text: str, views: "ViewStore") -> "View":
    """Find a view that can be read, by `AUTHOR/LOG` or name; raises `input.unknown-schema` if there is none yet."""
    known = views.views()
    schema_id = find_by_name(text, {key: view.name for key, view in known.items()})
    view = known.get(schema_id)
    if view is None or not view.is_built:
        raise InputError(
            "input.unknown-schema", f"{schema_id} has no view yet: inkgrove index it, then inkgrove materialise --once"
        )
    return view

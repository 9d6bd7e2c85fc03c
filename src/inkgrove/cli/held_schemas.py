"""The schemas that a command can look at: those in files of the home, and those that the home's store holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from inkgrove.cli.home import find_schema, read_schema_file, schema_paths
from inkgrove.cli.place import find_by_name, parse_schema_id, store_place
from inkgrove.core.errors import InkgroveError, NoStore, UnknownSchema
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.instance import Create, Update
from inkgrove.messages.message import decode_message
from inkgrove.schema.schema import Schema, fold_schema

if TYPE_CHECKING:
    from inkgrove.store.log_store import LogStore


class Relation(NamedTuple):
    """What is known of the schema that a relation points to."""

    field: str
    schema_id: SchemaId
    name: str | None
    version: int
    """The newest that is known; 0 if nothing of the schema is."""
    is_registered: bool | None
    """Whether the store materialises it; None without a store."""


class HeldSchemas:
    """Finds schemas in the files of a home and in its store."""

    def __init__(self, home: Path, store: "LogStore | None") -> None:
        self._home = home
        self._store = store

    def find(self, name: str | None) -> Schema:
        """The schema of a file by its name, or one of the store by `AUTHOR/LOG` or the name of a registered one."""
        files = [path.stem for path in schema_paths(self._home)]
        if self._store is None or name in files or (name is None and files):
            return find_schema(self._home, name).schema
        registered = {schema_id: self.read(schema_id) for schema_id in self._store.registered()}
        if name is None:
            known = ", ".join(map(str, registered)) or "none"
            raise UnknownSchema(f"say which schema with --schema AUTHOR/LOG or NAME; registered are: {known}")
        if "/" in name:
            found = self.read(parse_schema_id(name))
            if not found.versions:
                raise UnknownSchema(f"the store holds no schema {name}")
            return found
        return registered[
            find_by_name(name, {key: schema.meta.name if schema.meta else None for key, schema in registered.items()})
        ]

    def read(self, schema_id: SchemaId) -> Schema:
        """A schema as far as it is known here; without versions if it is not."""
        from inkgrove.store.messages import payloads_of_schema  # noqa: PLC0415

        in_files = [read_schema_file(path).schema for path in schema_paths(self._home)]
        found = [schema for schema in in_files if schema.id == schema_id]
        if self._store is not None:
            log = self._store.database.read(lambda connection: payloads_of_schema(connection, schema_id))
            found.append(fold_schema(schema_id, log.payloads, log.invalid_from))
        return max(found, key=lambda schema: len(schema.versions), default=Schema(schema_id, ()))

    def relation(self, field: str, schema_id: SchemaId) -> Relation:
        """What is known of the target of a relation."""
        found = self.read(schema_id)
        is_registered = None if self._store is None else schema_id in self._store.registered()
        name = found.meta.name if found.meta is not None else None
        return Relation(field, schema_id, name, len(found.versions), is_registered)

    def messages(self, schema_id: SchemaId) -> Iterator[Create | Update]:
        """The creates and updates of a schema that the store holds, those in invalid parts of logs left out."""
        if self._store is None:
            raise NoStore("there is no store to count in: give a log file with --messages instead")
        for number in self._store.logs_of_schema(schema_id):
            for item in self._store.messages_between(number):
                if item.payload is None or item.invalid_code is not None:
                    continue
                try:
                    message = decode_message(item.payload)
                except InkgroveError:
                    continue
                if isinstance(message, Create | Update) and message.schema.schema_id == schema_id:
                    yield message


@contextmanager
def held_schemas(home: Path, store: str | None) -> Iterator[HeldSchemas]:
    """The schemas of a home, with those of its store if there is one."""
    # Imported here: every command that needs no store starts faster without.
    from inkgrove.store.opening import open_store  # noqa: PLC0415

    try:
        opened = open_store(store_place(home, store), create=False)
    except NoStore:
        if store is not None:  # it was asked for by name
            raise
        yield HeldSchemas(home, None)
        return
    with opened:
        yield HeldSchemas(home, opened)

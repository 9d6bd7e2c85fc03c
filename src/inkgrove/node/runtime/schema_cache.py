"""The schemas that a node has folded from their logs, kept until a log changes (docs/protocol.md section 4).

A node has one `SchemaCache` (`Node.schemas`), which reading, publishing, routes and pages share.
"""

from collections.abc import Sequence
from itertools import count, takewhile
from threading import Lock
from typing import Final, NamedTuple

from inkgrove.messages import SchemaId
from inkgrove.schema import Schema, Version, ViewDefinition, fold_schema
from inkgrove.store.db import Connection, Database
from inkgrove.store.logs import LogState, find_log, payloads_of_schema

_MAX_SCHEMAS: Final = 1000
_MAX_BYTES: Final = 32 * 1024 * 1024
"""How large the logs of the cached schemas are together; the one that is read last is always cached."""


class _EverySchema:
    """Contains every schema: what is published must fit the newest version, whichever views a node has."""

    def __contains__(self, item: object) -> bool:
        return True


EVERY_SCHEMA: Final = _EverySchema()


class _CachedSchema(NamedTuple):
    log: LogState | None
    schema: Schema
    payload_hashes: tuple[int, ...]
    """By `hash()`, so of this process alone."""


class SchemaCache:
    """Schemas by id; one whose log has grown is folded from its first new entry on. Safe for threads."""

    def __init__(self, database: Database, max_bytes: int = _MAX_BYTES) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._schemas: dict[SchemaId, _CachedSchema] = {}
        self._bytes = 0
        self._definitions: dict[SchemaId, ViewDefinition] = {}
        self._lock = Lock()

    def read(self, schema_id: SchemaId) -> Schema:
        """Return a schema with its known versions; without any if nothing of it is held."""
        return self._database.read(lambda connection: self.read_on(connection, schema_id))

    def read_on(self, connection: Connection, schema_id: SchemaId) -> Schema:
        """Return a schema as `read` does, in a transaction that has not written to the schema's log."""
        state = find_log(connection, *schema_id)
        cached = self._schemas.get(schema_id)
        if cached is not None and cached.log == state:
            return cached.schema
        log = payloads_of_schema(connection, schema_id)
        hashes = tuple(hash(log.payloads[number]) for number in takewhile(log.payloads.__contains__, count(1)))
        unchanged = _keep_unchanged(cached, hashes, log.invalid_from)
        schema = fold_schema(schema_id, log.payloads, log.invalid_from, unchanged)
        if state is None or len(log.payloads) < state.held:
            return schema  # a payload that comes later would not change `state`
        size = sum(map(len, log.payloads.values()))
        with self._lock:
            if len(self._schemas) >= _MAX_SCHEMAS or self._bytes + size > self._max_bytes:
                self._schemas.clear()
                self._definitions.clear()
                self._bytes = 0
            self._schemas[schema_id] = _CachedSchema(state, schema, hashes)
            self._bytes += size
        return schema

    def definition_on(self, connection: Connection, schema_id: SchemaId) -> ViewDefinition:
        """Return how messages of a schema are read at its newest version, whichever schemas are materialised."""
        schema = self.read_on(connection, schema_id)
        cached = self._definitions.get(schema_id)
        if cached is not None and cached.schema is schema:
            return cached
        definition = ViewDefinition(schema, EVERY_SCHEMA)
        with self._lock:
            if len(self._definitions) >= _MAX_SCHEMAS:
                self._definitions.clear()
            self._definitions[schema_id] = definition
        return definition


def _keep_unchanged(cached: _CachedSchema | None, hashes: Sequence[int], invalid_from: int | None) -> Sequence[Version]:
    """Return the first versions, up to where a payload is another one or the log turns invalid."""
    if cached is None:
        return ()
    pairs = zip(cached.payload_hashes, hashes, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return cached.schema.versions[: same if invalid_from is None else min(same, invalid_from - 1)]

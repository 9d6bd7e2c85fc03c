"""Schemas as the node knows them: found by name, folded from their logs, kept until the log changes.

docs/protocol.md section 4. Names identify nothing: one that several schemas have is refused with the candidates.
"""

from collections.abc import Sequence
from itertools import count, takewhile
from threading import Lock
from typing import Final, NamedTuple

from inkgrove.messages.ids import SchemaId, parse_schema_id
from inkgrove.node.errors import AmbiguousName, UnknownView
from inkgrove.node.runtime.node import Node
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.schema import Schema, Version, fold_schema
from inkgrove.store.db import Connection
from inkgrove.store.logs.entries import LogState, find_log
from inkgrove.store.logs.messages import payloads_of_schema
from inkgrove.store.views.catalog import View, view_of, views_called

_KEPT: Final = 1000
_KEPT_BYTES: Final = 32 * 1024 * 1024
"""How much of their logs the schemas that are kept have, all together; the one that is read last is always kept."""


def resolve_view(node: Node, text: str) -> View:
    """A registered view by `AUTHOR/LOG`, or by the name of its schema if only one has it."""
    return node.views.database.read(lambda connection: resolve_view_on(connection, text))


def resolve_view_on(connection: Connection, text: str) -> View:
    """The same in a transaction of the views."""
    schema_id = parse_schema_id(text)
    view = view_of(connection, schema_id) if schema_id is not None else None
    if view is not None:
        return view
    named = views_called(connection, text) if len(text) <= 255 and "\0" not in text else []
    if len(named) == 1:
        return named[0]
    if named:
        candidates = [str(view.schema_id) for view in named]
        words = (
            f"{len(named)} schemas are called {text[:63]!r}: say which by author and log, as `candidates` lists them"
        )
        raise AmbiguousName(words, candidates=candidates)
    raise UnknownView(
        f"no view {text[:140]!r} is on this node; GET /views lists them, and an administrator adds one with"
        " PUT /views/AUTHOR/LOG"
    )


class _Everything:
    """All schemas count as registered: what is published must fit the newest version, whoever shows it."""

    def __contains__(self, item: object) -> bool:
        return True


EVERY_SCHEMA: Final = _Everything()


class _Kept(NamedTuple):
    """A schema that was folded."""

    state: LogState | None
    schema: Schema
    hashes: tuple[int, ...]
    """Of its payloads, in this process."""


def _still_valid(kept: _Kept | None, hashes: Sequence[int], invalid_from: int | None) -> Sequence[Version]:
    """The versions that follow from payloads that are still the same: a log that has grown is folded from there on."""
    if kept is None:
        return ()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(kept.hashes, hashes, strict=False)))
    return kept.schema.versions[: same if invalid_from is None else min(same, invalid_from - 1)]


class SchemaCache:
    """The schemas of a node, each folded again only when its log has changed, and then only what is new."""

    def __init__(self, node: Node, most_bytes: int = _KEPT_BYTES) -> None:
        self._node = node
        self._most_bytes = most_bytes
        self._kept: dict[SchemaId, _Kept] = {}
        self._bytes = 0
        self._definitions: dict[SchemaId, ViewDefinition] = {}
        self._lock = Lock()

    def read(self, schema_id: SchemaId) -> Schema:
        """A schema with its known versions; none if nothing of it is held."""
        return self._node.database.read(lambda connection: self.read_on(connection, schema_id))

    def read_on(self, connection: Connection, schema_id: SchemaId) -> Schema:
        """The same in a transaction that has not written to the schema's log."""
        state = find_log(connection, *schema_id)
        kept = self._kept.get(schema_id)
        if kept is not None and kept.state == state:
            return kept.schema
        log = payloads_of_schema(connection, schema_id)
        hashes = tuple(hash(log.payloads[number]) for number in takewhile(log.payloads.__contains__, count(1)))
        schema = fold_schema(schema_id, log.payloads, log.invalid_from, _still_valid(kept, hashes, log.invalid_from))
        if state is None or len(log.payloads) < state.held:
            return schema  # a payload that comes later changes nothing that `state` tells
        size = sum(map(len, log.payloads.values()))
        with self._lock:
            if len(self._kept) >= _KEPT or self._bytes + size > self._most_bytes:
                self._kept.clear()
                self._definitions.clear()
                self._bytes = 0
            self._kept[schema_id] = _Kept(state, schema, hashes)
            self._bytes += size
        return schema

    def definition_on(self, connection: Connection, schema_id: SchemaId) -> ViewDefinition:
        """How messages of a schema are read at its newest version, whatever schemas are materialised."""
        schema = self.read_on(connection, schema_id)
        kept = self._definitions.get(schema_id)
        if kept is not None and kept.schema is schema:
            return kept
        definition = ViewDefinition(schema, EVERY_SCHEMA)
        with self._lock:
            if len(self._definitions) >= _KEPT:
                self._definitions.clear()
            self._definitions[schema_id] = definition
        return definition

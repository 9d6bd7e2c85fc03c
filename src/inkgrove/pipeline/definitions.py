"""The definitions of all views, as one value that the driver makes and every task of a batch folds with."""

import json
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b

from inkgrove.messages.ids import SchemaId
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.schema import fold_schema
from inkgrove.store.ingests import Offset
from inkgrove.store.log_store import LogStore
from inkgrove.store.messages import SchemaLog
from inkgrove.store.view_store import View


@dataclass(frozen=True)
class Snapshot:
    """What the registered schemas were when the batch was planned; small, and sent to every task."""

    views: dict[SchemaId, int]
    """The number of each registered schema's view."""
    logs: dict[SchemaId, SchemaLog]
    """Of each schema: the payloads of its log, and where that turns invalid."""

    @cached_property
    def key(self) -> bytes:
        """The same for equal snapshots."""
        parts = [
            (bytes(schema_id.author), schema_id.log_id, self.views[schema_id], sorted(log.payloads.items()), log[1])
            for schema_id, log in sorted(self.logs.items())
        ]
        return blake2b(repr(parts).encode(), digest_size=16).digest()

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Snapshot) and self.key == other.key

    def definition(self, schema_id: SchemaId) -> ViewDefinition | None:
        """The definition of a schema's view, if it is registered."""
        return _definition(self, schema_id) if schema_id in self.views else None

    def definitions(self) -> dict[SchemaId, ViewDefinition]:
        """Every view's definition."""
        return {schema_id: _definition(self, schema_id) for schema_id in self.logs}


@lru_cache(maxsize=4096)
def _definition(snapshot: Snapshot, schema_id: SchemaId) -> ViewDefinition:
    # A worker process folds batch after batch with the same definitions: each is made once, when it is asked for.
    return ViewDefinition(fold_schema(schema_id, *snapshot.logs[schema_id]), snapshot.views)


def take_snapshot(store: LogStore, views: dict[SchemaId, View]) -> Snapshot:
    """The registered schemas as they are now."""
    logs = {schema_id: store.payloads_of_schema(schema_id) for schema_id in views}
    return Snapshot({schema_id: view.id for schema_id, view in views.items()}, logs)


class Definitions:
    """The registered schemas as they are now, read anew only when something happened to one of them."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._read: tuple[Offset, Snapshot, dict[SchemaId, str]] | None = None

    def now(self, views: dict[SchemaId, View]) -> tuple[Snapshot, dict[SchemaId, str]]:
        """The snapshot, and the fingerprint of each definition in it."""
        numbers = {schema_id: view.id for schema_id, view in views.items()}
        newest = self._store.newest_offset()
        if self._read is not None:
            before, snapshot, prints = self._read
            if snapshot.views == numbers and not self._store.has_schema_news(before):
                self._read = newest, snapshot, prints
                return snapshot, prints
        snapshot = take_snapshot(self._store, views)
        prints = {schema_id: fingerprint(definition) for schema_id, definition in snapshot.definitions().items()}
        self._read = newest, snapshot, prints
        return snapshot, prints


def fingerprint(definition: ViewDefinition) -> str:
    """Tells definitions apart whose rows may differ: the live path with all it does, and where it ends."""
    schema = definition.schema
    parts = [
        definition.version,
        list(definition.live_path),
        [repr(schema.version(number)) for number in definition.live_path],
        len(schema.versions),
        schema.stopped_at,
        schema.invalid_from,
        [str(waiting) for waiting in definition.waits_for],
    ]
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

"""The definitions of all views, as one value that the driver makes and every task of a batch folds with."""

import json
from dataclasses import dataclass
from hashlib import blake2b

from inkgrove.messages.ids import SchemaId
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.schema import fold_schema
from inkgrove.store.log_store import LogStore
from inkgrove.store.view_store import View


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the registered schemas were when the batch was planned; small, and sent to every task."""

    views: dict[SchemaId, int]
    """The number of each registered schema's view."""
    logs: dict[SchemaId, tuple[dict[int, bytes], int | None]]
    """Of each schema: the payloads of its log, and where that turns invalid."""

    def definitions(self) -> dict[SchemaId, ViewDefinition]:
        """Every view's definition."""
        return {
            schema_id: ViewDefinition(fold_schema(schema_id, *log), self.views) for schema_id, log in self.logs.items()
        }


def take_snapshot(store: LogStore, views: dict[SchemaId, View]) -> Snapshot:
    """The registered schemas as they are now."""
    logs = {schema_id: tuple(store.payloads_of_schema(schema_id)) for schema_id in views}
    return Snapshot({schema_id: view.id for schema_id, view in views.items()}, logs)  # type: ignore[arg-type]


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

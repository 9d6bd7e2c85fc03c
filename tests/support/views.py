"""What the materialised views hold, in the plain form that the oracle's results have too."""

from collections.abc import Collection
from typing import Any, NamedTuple

from inkgrove.core import HeldEntry, verify_signed
from inkgrove.messages import Outcome, SchemaId
from inkgrove.pipeline.views import Materialiser
from inkgrove.reference import fold_views
from inkgrove.store.logs import LogStore, read_beside, read_entries, read_registered
from inkgrove.store.views import ViewStore, read_all_rows, read_visible_outcomes
from tests.support.whole_fold import Comparable, comparable


class Stores(NamedTuple):
    """What a pipeline works on, without one."""

    store: LogStore
    views: ViewStore


def held_by(store: LogStore) -> list[HeldEntry]:
    """Every entry of a store, as the oracle takes it."""
    return [
        HeldEntry(verify_signed(stored.entry), stored.payload)
        for author, log_id in store.heights()
        for stored in (*store.read(read_entries, author, log_id), *store.read(read_beside, author, log_id))
    ]


def materialised(materialiser: Materialiser | Stores) -> Comparable:
    """All views of a store."""
    known = materialiser.views.views()
    result: Comparable = {}
    with materialiser.views.database.reading() as connection:
        for schema_id, view in [(None, None), *known.items()]:
            rows = (
                {} if view is None else {row.instance: _plain(row) for row in read_all_rows(connection, view, page=3)}
            )
            outcomes = read_visible_outcomes(connection, view, limit=1_000_000)
            result[schema_id] = {
                "version": None if view is None else view.version or None,
                "waits_for": [] if view is None else list(view.waits_for),
                "rows": rows,
                "outcomes": {row.hash: (Outcome(row.outcome), row.code) for row in outcomes},
                "absent": 0,
            }
    return result


def _plain(row: Any) -> dict[str, Any]:
    return {
        "place": (row.author, row.log_id, row.seq_num),
        "last": (row.last_seq_num, row.last_hash),
        "fields": row.fields,
        "rest": (row.access, row.expires, row.copied_from),
    }


def expected(materialiser: Materialiser | Stores) -> Comparable:
    """What the oracle makes of the same store; absent payloads are counted by the store, not by views."""
    return expected_of(held_by(materialiser.store), materialiser.store.read(read_registered))


def expected_of(held: list[HeldEntry], registered: Collection[SchemaId]) -> Comparable:
    """What the oracle makes of entries."""
    views = comparable(fold_views(held, registered))
    return {schema: {**view, "absent": 0} for schema, view in views.items()}

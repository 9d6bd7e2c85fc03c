"""One row of a view as one reader may see it (docs/protocol.md section 8)."""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, exists, not_, select

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import SchemaId
from inkgrove.store.cells import decode_cell
from inkgrove.store.view_store import View
from inkgrove.store.view_tables import gone
from inkgrove.store.visibility import visible_rows


class VisibleRow(NamedTuple):
    """The values of an instance by field, at the version of its view."""

    schema: SchemaId
    fields: dict[str, Any]


def find_visible_row(
    connection: Connection,
    view: View,
    instance: Hash,
    reader: IdentityId | None,
    own_keys: Collection[PublicKey],
    now: int,
) -> VisibleRow | None:
    """The row of an instance, if the reader may see it."""
    if not view.is_built:
        return None
    rows = view.table()
    is_gone = exists().where(gone.c.view == view.id, gone.c.instance == rows.c._instance)
    query = select(rows).where(rows.c._instance == instance, visible_rows(rows, reader, own_keys, now), not_(is_gone))
    row = connection.execute(query).first()
    if row is None:
        return None
    cells = row._mapping
    return VisibleRow(view.schema_id, {name: decode_cell(kind, cells[name]) for name, kind in view.fields})

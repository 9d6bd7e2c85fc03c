"""Fills the views of a node from the oracle, without Spark: for tests of what is read from them."""

import json
from typing import Any

from sqlalchemy import Connection, delete, insert, update

from inkgrove.core import Hash, HeldEntry, PublicKey, verify_signed
from inkgrove.node.runtime import Node, SchemaCache
from inkgrove.reference import ReferenceRow, fold_views
from inkgrove.store.logs import newest_offset, read_entries, read_logs, read_registered
from inkgrove.store.views import (
    STREAM,
    View,
    cell_encoder,
    edges,
    outcomes_of,
    read_views,
    rows_of,
    views,
    write_progress,
)


def build_views(node: Node) -> None:
    """Build every registered view anew from all that the store holds."""
    newest = node.store.read(newest_offset)  # before the entries: what comes meanwhile is not yet in the views
    held = [
        HeldEntry(verify_signed(stored.entry), stored.payload)
        for author, log_id in node.store.heights()
        for stored in node.store.read(read_entries, author, log_id)
    ]
    registered = node.store.read(read_registered)
    folded = {view.schema: view for view in fold_views(held, registered)}
    node.views.sync(registered)
    logs = {(log.author, log.log_id): log.id for log in node.store.read(read_logs).values()}

    def work(connection: Connection) -> None:
        for schema_id, view in read_views(connection).items():
            schema, result = SchemaCache(node.database).read(schema_id), folded[schema_id]
            if not result.version:
                continue
            _write_lines(connection, view, result.lines)
            fields = [(field.name, field.type) for field in schema.version(result.version).fields]
            _build(
                connection, view, fields, result.rows, result.version, schema.meta.name if schema.meta else None, logs
            )
        write_progress(connection, STREAM, 1, newest)

    node.views.database.write(work)


def _write_lines(connection: Connection, view: View, lines: dict[Hash, Hash]) -> None:
    connection.execute(delete(edges).where(edges.c.view == view.id))
    for instance, last in lines.items():
        line = {"view": view.id, "instance": instance, "is_element": False, "target_view": view.id, "target": last}
        connection.execute(insert(edges), {**line, "log": 0, "create_seq": 0})


def _build(
    connection: Connection,
    old: View,
    fields: Any,
    rows: list[ReferenceRow],
    version: int,
    name: str | None,
    logs: dict[tuple[PublicKey, int], int],
) -> None:
    if old.is_built:
        old.table().drop(connection)
        old.outcomes().drop(connection)
    table = rows_of(old.id, old.generation + 1, tuple(fields))
    table.create(connection)
    outcomes_of(old.id, old.generation + 1).create(connection)
    for row in rows:
        cells = {
            "_instance": bytes(row.instance),
            "_author": bytes(row.author),
            "_log_id": row.log_id,
            "_seq_num": row.seq_num,
            "_last_seq_num": row.last_seq_num,
            "_last_hash": bytes(row.last_hash),
            "_access": json.dumps({"mode": row.access.mode, "to": [to.hex() for to in row.access.to]})
            if row.access
            else None,
            "_expires": row.expires.microseconds if row.expires else None,
            "_copied_from": row.copied_from,
            "_log": logs[row.author, row.log_id],
            "_field_seq_nums": json.dumps([row.last_seq_num for _ in fields]),
        }
        for field_name, type_name in fields:
            value, encode = row.fields[field_name], cell_encoder(type_name)
            cells[field_name] = value if value is None or encode is None else encode(value)
        connection.execute(insert(table), cells)
    described = json.dumps([{"name": field, "type": kind, "target": None} for field, kind in fields])
    facts = {"generation": old.generation + 1, "version": version, "fields": described, "name": name}
    connection.execute(update(views).where(views.c.id == old.id).values(facts))

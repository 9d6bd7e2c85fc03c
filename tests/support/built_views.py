"""Views built without Spark, for tests of who sees what: rows as the fold of one instance gives them."""

import json
from typing import Any

from sqlalchemy import Connection, insert, update

from inkgrove.core import PublicKey, parse_hash
from inkgrove.messages import Access
from inkgrove.node.runtime import Node, SchemaCache
from inkgrove.schema import Field
from inkgrove.store.logs import find_log, read_registered, register_schema
from inkgrove.store.views import View, read_views, views
from tests.support.publishing import schema_id


def build_view(node: Node, schema: str) -> View:
    """Register a schema and make the empty table of its view."""
    wanted = schema_id(schema)
    node.store.write(register_schema, wanted)
    node.views.sync(node.store.read(read_registered))
    folded = SchemaCache(node.database).read(wanted)
    assert folded.meta is not None
    newest = folded.versions[-1]
    facts = {
        "generation": 1,
        "name": folded.meta.name,
        "version": newest.number,
        "fields": json.dumps([_describe(field) for field in newest.fields]),
    }

    def work(connection: Connection) -> View:
        is_it = (views.c.author == wanted.author) & (views.c.log_id == wanted.log_id)
        connection.execute(update(views).where(is_it).values(facts))
        view = read_views(connection)[wanted]
        view.table().create(connection)
        return view

    return node.views.database.write(work)


def _describe(field: Field) -> dict[str, Any]:
    return {"name": field.name, "type": field.type}


def add_row(node: Node, view: View, published: dict[str, Any], access: Access | None = None, **fields: Any) -> None:
    """Put an instance into its view."""
    instance = parse_hash(published["instance"])
    log = node.store.read(find_log, PublicKey.fromhex(published["author"]), published["log_id"])
    assert log is not None
    row = {
        "_log": log.id,
        "_instance": instance,
        "_author": bytes.fromhex(published["author"]),
        "_log_id": published["log_id"],
        "_seq_num": published["seq_num"],
        "_last_seq_num": published["seq_num"],
        "_last_hash": instance,
        "_access": None if access is None else json.dumps({"mode": access.mode, "to": [to.hex() for to in access.to]}),
        "_field_seq_nums": json.dumps([published["seq_num"]] * len(view.fields)),
        **fields,
    }
    node.views.database.write(lambda connection: connection.execute(insert(view.table()), row))

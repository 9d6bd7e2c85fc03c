"""Lines: which instance continues another one, as the views have it (docs/protocol.md section 5.7).

An instance that was continued has no row; an edge says which one has come in its place.
"""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Select, exists, select

from inkgrove.core import Hash
from inkgrove.store.db.connection import in_lists
from inkgrove.store.views.catalog import View
from inkgrove.store.views.tables import edges


def follow_lines(connection: Connection, view: View, instances: Collection[Hash]) -> dict[Hash, Hash]:
    """Return the last of the line of each of these instances that another one continues.

    The last one need not have a row: it may have been deleted.
    """
    if not view.is_built:
        return {}
    last = {instance: instance for instance in instances}
    moving = set(last)
    while moving:
        following = _read_following(connection, view, {last[instance] for instance in moving})
        moving = {instance for instance in moving if last[instance] in following}
        last |= {instance: following[last[instance]] for instance in moving}
    return {instance: end for instance, end in last.items() if end != instance}


def _read_following(connection: Connection, view: View, instances: Collection[Hash]) -> dict[Hash, Hash]:
    query = _select_lines(view)
    return {
        Hash(instance): Hash(following)
        for some in in_lists(instances)
        for instance, following in connection.execute(query.where(edges.c.instance.in_(some)))
    }


def _select_lines(view: View) -> Select[Any]:
    rows = view.table()
    has_row = exists().where(rows.c._instance == edges.c.instance)
    return select(edges.c.instance, edges.c.target).where(edges.c.view == view.id, ~has_row)


def read_all_lines(connection: Connection, view: View) -> dict[Hash, Hash]:
    """Return the last of its line for every instance of a view that another one continues."""
    continued = {Hash(instance) for instance, _ in connection.execute(_select_lines(view))} if view.is_built else set()
    return follow_lines(connection, view, continued)

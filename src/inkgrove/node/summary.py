"""The summary of a view for a caller: exact and cooked, each marked (docs/protocol.md section 9)."""

from dataclasses import dataclass

from sqlalchemy import Connection

from inkgrove.core.keys import IdentityId
from inkgrove.node.caller import Caller
from inkgrove.node.node import Node
from inkgrove.node.schemas import find_view_on
from inkgrove.store.db import PUBLIC
from inkgrove.store.rot import Summary, cooked_summary, exact_summary
from inkgrove.store.views import View, reader_on


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """What the caller may see, and might have seen when it rotted."""

    view: View
    exact: Summary
    cooked: Summary


def summarise(node: Node, caller: Caller, name: str) -> ViewSummary:
    """The summary of a view, by `AUTHOR/LOG` or name."""

    def work(connection: Connection) -> tuple[View, IdentityId | None, Summary]:
        view = find_view_on(connection, name)
        identity = caller.reader_of(view.schema_id)
        with node.limit_for(identity).on(connection):
            return view, identity, exact_summary(connection, view, reader_on(connection, identity, node.clock()))

    view, identity, exact = node.views.database.read(work)
    readers = [PUBLIC] if identity is None else [PUBLIC, bytes(identity)]
    cooked = node.database.read(lambda connection: cooked_summary(connection, view, readers))
    return ViewSummary(view, exact, cooked)

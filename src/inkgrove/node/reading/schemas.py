"""Resolves texts to schemas and views (docs/protocol.md section 4).

A text is `AUTHOR/LOG` or a name. Names identify nothing: one that several schemas have is refused with the candidates.
"""

from inkgrove.messages import parse_schema_id
from inkgrove.node.errors import AmbiguousName, UnknownView
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.views import View, view_of, views_called


def resolve_view(node: Node, text: str) -> View:
    """Return a registered view by `AUTHOR/LOG`, or by the name of its schema.

    Raises `UnknownView` if there is none, `AmbiguousName` if several schemas have the name.
    """
    return node.views.database.read(lambda connection: resolve_view_on(connection, text))


def resolve_view_on(connection: Connection, text: str) -> View:
    """Return a view as `resolve_view` does, in a transaction of the views."""
    schema_id = parse_schema_id(text)
    view = view_of(connection, schema_id) if schema_id is not None else None
    if view is not None:
        return view
    named = views_called(connection, text) if len(text) <= 255 and "\0" not in text else []
    if len(named) == 1:
        return named[0]
    if named:
        raise AmbiguousName(
            f"{len(named)} schemas are called {text[:63]!r}: say which by author and log, as `candidates` lists them",
            candidates=[str(view.schema_id) for view in named],
        )
    raise UnknownView(
        f"no view {text[:140]!r} is on this node; GET /views lists them, and an administrator adds one with"
        " PUT /views/AUTHOR/LOG"
    )

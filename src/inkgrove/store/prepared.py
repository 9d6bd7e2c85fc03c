"""Queries that are compiled once and then run by the driver itself.

To build, look up and unpack a statement through SQLAlchemy takes many times as long as a read by an index. What
every request asks is therefore kept as text with the names of its parameters; rows are tuples as the driver gives them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select


class _Text(NamedTuple):
    text: str
    constants: Mapping[str, Any]
    order: tuple[str, ...] | None
    """The parameters in the order of the text, if they have no names in it."""


class Prepared:
    """A query with named parameters; how it is built may differ between databases."""

    def __init__(self, build: Callable[[Connection], Select[Any]]) -> None:
        self._build = build
        self._texts: dict[str, _Text] = {}

    def rows(self, connection: Connection, **parameters: Any) -> list[Any]:
        """All rows, in the transaction of the connection."""
        if not connection.in_transaction():
            connection.begin()
        found = self._texts.get(connection.dialect.name) or self._compile(connection)
        values: Any = {**found.constants, **parameters}
        if found.order is not None:
            values = [values[name] for name in found.order]
        driver: Any = connection.connection.driver_connection
        rows: list[Any] = driver.execute(found.text, values).fetchall()
        return rows

    def first(self, connection: Connection, **parameters: Any) -> Any:
        """The first row; None if there is none."""
        rows = self.rows(connection, **parameters)
        return rows[0] if rows else None

    def _compile(self, connection: Connection) -> _Text:
        names = connection.get_execution_options().get("schema_translate_map")
        compiled = self._build(connection).compile(
            dialect=connection.dialect,
            schema_translate_map=names,
            render_schema_translate=names is not None,
            compile_kwargs={"render_postcompile": True},
        )
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        found = self._texts[connection.dialect.name] = _Text(str(compiled), dict(compiled.params), order)
        return found

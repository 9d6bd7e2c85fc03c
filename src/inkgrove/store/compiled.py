"""Queries and changes that are compiled once and then run by the driver itself.

To build, look up and unpack a statement through SQLAlchemy takes many times as long as a read by an index. What
every request asks is therefore kept as text with the names of its parameters; rows are tuples as the driver gives them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final, NamedTuple

from sqlalchemy import BindParameter, Connection, SelectBase, UpdateBase, bindparam

_SIZES: Final = (1, 10, 100, 1_000, 10_000)
_PIECE: Final = 100
"""How many rows are had from PostgreSQL at a time, if not all are."""


class _Text(NamedTuple):
    text: str
    constants: Mapping[str, Any]
    order: tuple[str, ...] | None
    """The parameters in the order of the text, if they have no names in it."""


class Compiled:
    """A statement with named parameters; how it is built may differ between databases."""

    def __init__(self, build: Callable[[Connection], SelectBase | UpdateBase]) -> None:
        self.build = build
        self._texts: dict[str, _Text] = {}

    def rows(self, connection: Connection, **parameters: Any) -> list[Any]:
        """All rows, in the transaction of the connection."""
        rows: list[Any] = self._execute(connection, parameters).fetchall()
        return rows

    @contextmanager
    def reading(self, connection: Connection, *, limit: int, **parameters: Any) -> Iterator[Iterator[Any]]:
        """The same with a parameter `limit`, row by row: who stops early has not loaded them all."""
        if connection.dialect.name == "postgresql" and limit > _PIECE:
            driver: Any = connection.connection.driver_connection
            text, values = self.prepared(connection, {"limit": limit, **parameters})
            with driver.cursor("pieces") as cursor:
                cursor.itersize = _PIECE
                yield cursor.execute(text, values)
            return
        with closing(self._execute(connection, {"limit": limit, **parameters})) as cursor:
            yield cursor

    def run(self, connection: Connection, **parameters: Any) -> None:
        """Change something that gives no rows, in the transaction of the connection."""
        self._execute(connection, parameters)

    def _execute(self, connection: Connection, parameters: Mapping[str, Any]) -> Any:
        text, values = self.prepared(connection, parameters)
        driver: Any = connection.connection.driver_connection
        return driver.execute(text, values)

    def prepared(self, connection: Connection, parameters: Mapping[str, Any]) -> tuple[str, Any]:
        """The text and the values as the driver takes them; begins a transaction if there is none."""
        if not connection.in_transaction():
            connection.begin()
        found = self._texts.get(connection.dialect.name) or self._compile(connection)
        values: Any = {**found.constants, **parameters}
        if found.order is not None:
            values = [values[name] for name in found.order]
        return found.text, values

    def first(self, connection: Connection, **parameters: Any) -> Any:
        """The first row; None if there is none."""
        rows = self.rows(connection, **parameters)
        return rows[0] if rows else None

    def _compile(self, connection: Connection) -> _Text:
        names = connection.get_execution_options().get("schema_translate_map")
        compiled = self.build(connection).compile(
            dialect=connection.dialect,
            schema_translate_map=names,
            render_schema_translate=names is not None,
            compile_kwargs={"render_postcompile": True},
        )
        order = None if compiled.positiontup is None else tuple(compiled.positiontup)
        found = self._texts[connection.dialect.name] = _Text(str(compiled), dict(compiled.params), order)
        return found


class CompiledList:
    """A query about a list of values, `IN` some parameters; for the sizes of lists that there are, a few texts."""

    def __init__(self, build: Callable[[list[BindParameter[Any]]], SelectBase]) -> None:
        self.build = build
        self._by_size: dict[int, Compiled] = {}

    def rows(self, connection: Connection, values: Sequence[Any], **parameters: Any) -> list[Any]:
        """All rows about at most 10,000 values."""
        if not values:
            return []
        size = next(size for size in _SIZES if size >= len(values))
        compiled = self._by_size.get(size)
        if compiled is None:
            compiled = self._by_size[size] = self._compile(size)
        # The last value stands for what is missing: to ask for it twice changes nothing.
        given = {f"item{number}": value for number, value in enumerate(values)}
        given |= {f"item{number}": values[-1] for number in range(len(values), size)}
        return compiled.rows(connection, **given, **parameters)

    def _compile(self, size: int) -> Compiled:
        query = self.build([bindparam(f"item{number}") for number in range(size)])
        return Compiled(lambda _: query)

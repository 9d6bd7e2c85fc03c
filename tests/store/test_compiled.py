"""Both databases understand every statement that is kept compiled, before the first request asks for it."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, bindparam
from sqlalchemy.exc import DBAPIError

import inkgrove
from inkgrove.store.db import Compiled, CompiledList
from inkgrove.store.logs import LogStore
from inkgrove.store.views import open_views


def kept() -> Iterator[tuple[str, Compiled | CompiledList]]:
    """The statements that modules keep for themselves, each with its name."""
    for module in pkgutil.walk_packages(inkgrove.__path__, "inkgrove."):
        if not module.name.endswith(("__main__", ".env")):
            for name, found in vars(import_module(module.name)).items():
                if isinstance(found, Compiled | CompiledList):
                    yield f"{module.name}.{name}", found


def explain(connection: Connection, kept: Compiled | CompiledList) -> str | None:
    """What the database has against a statement, with nothing for each parameter."""
    given: Any = [bindparam("item0"), bindparam("item1")] if isinstance(kept, CompiledList) else connection
    statement = kept.build(given)
    names = connection.get_execution_options().get("schema_translate_map")
    compiled = statement.compile(
        dialect=connection.dialect,
        schema_translate_map=names,
        render_schema_translate=names is not None,
        compile_kwargs={"render_postcompile": True},
    )
    values: Any = compiled.params
    if compiled.positiontup is not None:
        values = tuple(values[name] for name in compiled.positiontup)
    try:
        connection.exec_driver_sql(f"EXPLAIN {compiled}", values)
    except DBAPIError as error:
        connection.rollback()
        return str(error)
    return None


def test_both_databases_understand_what_is_kept_compiled(store: LogStore, place: Path | str) -> None:
    statements = dict(kept())
    assert len(statements) > 40
    views = open_views(place, with_node=True)
    troubles = {}
    for name, statement in statements.items():
        # Each is for the node's tables or for the views beside them.
        told = [database.read(lambda at: explain(at, statement)) for database in (store.database, views.database)]  # noqa: B023
        if all(told):
            troubles[name] = told
    views.close()
    assert troubles == {}

"""Stores as older versions left them."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, inspect, text


def make_older(directory: Path, revision: str) -> None:
    """Turn the SQLite store in a directory into one of an older revision, with the same rows as far as it has them."""
    newer, older = directory / "node.db", directory / "older.db"
    engine = create_engine(f"sqlite:///{older}")
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", "inkgrove.store:migrations")
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    with engine.connect() as connection:
        connection.execute(text("ATTACH DATABASE :newer AS newer"), {"newer": str(newer)})
        inspector = inspect(connection)
        for table in inspector.get_table_names():
            if table != "alembic_version" and inspector.has_table(table, schema="newer"):
                columns = ", ".join(f'"{column["name"]}"' for column in inspector.get_columns(table))
                connection.execute(text(f'DELETE FROM "{table}"'))
                connection.execute(text(f'INSERT INTO "{table}" ({columns}) SELECT {columns} FROM newer."{table}"'))
        connection.commit()
    engine.dispose()
    for path in directory.glob("node.db*"):
        path.unlink()
    older.rename(newer)

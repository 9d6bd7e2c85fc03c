"""Puts back an older state of a database under a home, by hand, as an operator would who has no command for it."""

import sqlite3
from pathlib import Path

import psycopg

from tests.store.postgres import PostgresServer


class Copy:
    """A copy of the database at a place, made when nobody has it open or, on SQLite, at any time."""

    def __init__(self, place: Path | str, folder: Path, server: PostgresServer | None = None) -> None:
        self._place, self._server = place, server
        self._file = folder / "copy.db"
        if isinstance(place, str):
            self._execute("CREATE DATABASE {copy} TEMPLATE {name}")
        else:
            with sqlite3.connect(place / "node.db") as source, sqlite3.connect(self._file) as target:
                source.backup(target)
            source.close()
            target.close()

    def put_back(self) -> None:
        """Let the database be as it was; nobody has it open."""
        if isinstance(self._place, str):
            self._execute("DROP DATABASE {name} WITH (FORCE)")
            self._execute("CREATE DATABASE {name} TEMPLATE {copy}")
            return
        for path in self._place.glob("node.db*"):
            path.unlink()
        (self._place / "node.db").write_bytes(self._file.read_bytes())

    def _execute(self, statement: str) -> None:
        assert self._server is not None
        assert isinstance(self._place, str)
        name = self._place.partition("@/")[2].partition("?")[0]
        names = {"name": psycopg.sql.Identifier(name), "copy": psycopg.sql.Identifier(f"{name}_copy")}
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as connection:
            connection.execute(psycopg.sql.SQL(statement).format(**names))

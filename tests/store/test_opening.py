"""Opening a store: made, migrated, or a clear word on why it cannot be used."""

import os
import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import column, insert, inspect, literal, select, table, update

from inkgrove.core import IdentityId
from inkgrove.core.errors import NoStore, StoreUnavailable
from inkgrove.store import migrations
from inkgrove.store.db import Database, deliveries, fork_proofs, identities, logs, parse_store_url
from inkgrove.store.logs import (
    MIGRATIONS,
    NEWEST,
    OLDEST,
    LogStore,
    bring_up_to_date,
    find_fork_proof,
    open_store,
    read_entries,
    read_revision,
    require_store,
)
from inkgrove.store.node import StoredSession, list_sessions
from inkgrove.store.views import open_stage, open_views
from tests.store.postgres import PostgresServer
from tests.support.components import require_component
from tests.support.errors import raises
from tests.support.logs import LogBuilder

Place = Path | str


def test_new_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        place = tmp_path / "above" / "home"
        store, views = open_store(place), open_views(place)
        stage = open_stage(str(place), "1", {})
        modes = {path.name.partition("_")[0]: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
        stage.discard()
        views.close()
        store.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {"node.db", "node.db-wal", "node.db-shm", "views.db", "inkgrove"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes


def test_store_that_is_not_there_is_made_only_on_purpose(bare: Place) -> None:
    for _ in range(2):
        with pytest.raises(NoStore):
            open_store(bare, create=False)
        with pytest.raises(NoStore):
            require_store(bare)
    if isinstance(bare, Path):
        assert not bare.exists() or list(bare.iterdir()) == []
    open_store(bare).close()
    require_store(bare)
    open_store(bare, create=False).close()


def test_empty_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "node.db").touch()
    with pytest.raises(NoStore):
        open_store(tmp_path, create=False)
    open_store(tmp_path).close()
    require_store(tmp_path)


def test_store_that_is_there_keeps_its_modes(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    (tmp_path / "node.db").chmod(0o640)
    tmp_path.chmod(0o750)
    open_store(tmp_path).close()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path, tmp_path / "node.db")]
    assert modes == [0o750, 0o640]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a little more than an empty store."""
    directory = tmp_path / "small"
    directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=False, capture_output=True
    )
    require_component("a small file system", done.returncode == 0, "run the tests as a user who may mount one")
    yield directory
    subprocess.run(["umount", "-l", directory], check=True)


def offers(log: LogBuilder) -> list[tuple[bytes, bytes | None]]:
    return [(entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]


def test_store_is_there_when_it_is_opened_again(bare: Place) -> None:
    log = LogBuilder().grow(3)
    with open_store(bare) as store:
        store.ingest(offers(log))
    with open_store(bare) as store:
        assert len(store.read(read_entries, log.secret.public, 1)) == 3


def test_new_store_and_its_views_are_opened_by_many_at_once(bare: Place) -> None:
    start = Barrier(4)

    def open_both(_number: int) -> None:
        start.wait()
        open_store(bare).close()
        start.wait()
        open_views(bare).close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_both, range(4)))
    with open_views(bare) as views:
        assert views.views() == {}


def test_directory_given_as_text(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "a" / "b")) as store:
        assert store.heights() == {}
    assert (tmp_path / "a" / "b" / "node.db").exists()


def test_sqlite_is_set_up_for_readers_beside_a_writer(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    database = Database(parse_store_url(tmp_path))
    with database.reading() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "secure_delete")
        }
    levels = []
    for durable in (True, False):
        with database.writing(durable=durable) as connection:
            levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())
    database.close()
    assert levels == [2, 1]  # FULL for what we publish, NORMAL for the rest
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
        "secure_delete": 1,
    }


def is_for(dialect: str) -> Callable[..., bool]:
    """Leaves out the one index that only PostgreSQL has."""
    return lambda _object, name, *_: dialect == "postgresql" or name != "ix_ingests_xid_position"


def test_migrations_make_the_tables_that_the_code_uses(bare: Place) -> None:
    open_store(bare).close()
    database = Database(parse_store_url(bare))
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": is_for(connection.dialect.name)})
        assert deliveries.metadata is identities.metadata  # both modules are loaded
        differences = compare_metadata(context, identities.metadata)
    database.close()
    assert differences == []


def test_newest_revision_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", MIGRATIONS)
    scripts = ScriptDirectory.from_config(config)
    assert (scripts.get_heads(), scripts.get_bases()) == ([NEWEST], [OLDEST])


NEXT = f"{int(NEWEST) + 1:04}"
NEXT_REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = {next!r}, {newest!r}


def upgrade() -> None:
    op.add_column("logs", sa.Column("colour", sa.Text))
    if {fails}:
        raise RuntimeError("in the middle")
"""


def revision_and_columns(place: Place) -> tuple[str | None, set[str]]:
    database = Database(parse_store_url(place))
    with database.reading() as connection:
        columns = {column["name"] for column in inspect(connection).get_columns("logs")}
    database.close()
    return read_revision(place), columns


def test_store_is_led_through_the_revisions_after_its_own(place: Place, tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    log = LogBuilder().grow(2)
    with open_store(place) as store:
        store.ingest(offers(log))
        next_one = folder / "versions" / f"r{NEXT}_colours.py"
        next_one.write_text(NEXT_REVISION.format(fails=True, next=NEXT, newest=NEWEST))
        with pytest.raises(RuntimeError, match="in the middle"), store.database.writing() as connection:
            bring_up_to_date(connection, str(folder))
        revision, columns = revision_and_columns(place)
        assert revision == NEWEST  # all of it, or nothing
        assert "colour" not in columns
        next_one.write_text(NEXT_REVISION.format(fails=False, next=NEXT, newest=NEWEST))
        for _ in range(2):
            with store.database.writing() as connection:
                bring_up_to_date(connection, str(folder))
        revision, columns = revision_and_columns(place)
        assert revision == NEXT
        assert "colour" in columns
        assert len(store.read(read_entries, log.secret.public, 1)) == 2
    with raises("store.too-new"):
        open_store(place)


OLDER = """
DROP TABLE moves_out;
ALTER TABLE identities DROP COLUMN first_key_lost;
DROP TABLE moves_in;
DROP TABLE relocations;
DROP TABLE document_notices;
DROP TABLE erasures;
DROP TABLE erasure_progress;
DROP TABLE erasure_journal;
DROP TABLE closings;
ALTER TABLE sessions DROP COLUMN created;
ALTER TABLE sessions DROP COLUMN last_used;
ALTER TABLE sessions DROP COLUMN label;
DROP TABLE branch_entries;
ALTER TABLE logs DROP COLUMN pin;
ALTER TABLE logs DROP COLUMN is_pinned;
ALTER TABLE logs DROP COLUMN aside;
DROP TABLE fork_proofs;
CREATE TABLE fork_proofs (
    log {number} NOT NULL,
    seq_num BIGINT NOT NULL,
    first {bytes} NOT NULL,
    second {bytes} NOT NULL,
    CONSTRAINT pk_fork_proofs PRIMARY KEY (log, seq_num),
    CONSTRAINT fk_fork_proofs_log FOREIGN KEY(log) REFERENCES logs (id),
    CONSTRAINT fk_fork_proofs_first FOREIGN KEY(first) REFERENCES entries (hash),
    CONSTRAINT fk_fork_proofs_second FOREIGN KEY(second) REFERENCES entries (hash)
);
UPDATE alembic_version SET version_num = '{oldest}'
"""
"""What the revisions since the first release have changed, taken back."""


def test_store_of_the_first_release_becomes_what_a_new_one_is(bare: Place) -> None:
    log = LogBuilder().grow(6)
    with open_store(bare) as store:
        store.ingest([*offers(log), *offers(log.fork_at(4))])
        is_postgresql = store.database.is_postgresql
        types = {"number": "BIGINT", "bytes": "BYTEA"} if is_postgresql else {"number": "INTEGER", "bytes": "BLOB"}
        proof = store.read(find_fork_proof, log.secret.public, 1)
        assert proof is not None
        with store.database.writing() as connection:
            for statement in OLDER.format(**types, oldest=OLDEST).split(";"):
                connection.exec_driver_sql(statement)
            row = {"seq_num": 4, "first": proof.first.hash, "second": proof.second.hash}
            values = select(logs.c.id, *map(literal, row.values()))
            connection.execute(fork_proofs.insert().from_select(["log", *row], values))
            identity = {"id": b"1" * 32, "fqdn": "jane.haiku.ink", "key": b"2" * 32, "created": 1}
            connection.execute(insert(identities), identity)
            session = {"token": b"3" * 32, "identity": b"1" * 32, "expires": 2**62}
            connection.execute(insert(table("sessions", *map(column, session))), session)
    with open_store(bare) as store:
        assert read_revision(bare) == NEWEST
        with store.database.reading() as connection:
            options = {"include_object": is_for(connection.dialect.name)}
            context = MigrationContext.configure(connection, opts=options)
            differences = compare_metadata(context, identities.metadata)
        assert differences == []
        assert store.read(find_fork_proof, log.secret.public, 1) == proof
        assert store.read(list_sessions, IdentityId(b"1" * 32), 0) == [StoredSession(b"3" * 32, "", 0, 0, 2**62)]
        assert len(store.read(read_entries, log.secret.public, 1)) == 7


def test_store_from_before_the_first_release_is_refused_and_left_alone(place: Place) -> None:
    open_store(place).close()
    versions = table("alembic_version", column("version_num"))
    database = Database(parse_store_url(place))
    with database.writing() as connection:
        connection.execute(update(versions).values(version_num="0006"))
    database.close()
    with pytest.raises(StoreUnavailable, match=r"revision 0006.*inkgrove export.*import"):
        open_store(place)
    assert read_revision(place) == "0006"


def test_store_from_a_newer_version_is_refused_and_left_alone(bare: Place) -> None:
    log = LogBuilder().grow(1)
    with open_store(bare) as store:
        store.ingest(offers(log))
    versions = table("alembic_version", column("version_num"))
    database = Database(parse_store_url(bare))
    with database.writing() as connection:
        connection.execute(update(versions).values(version_num="9999"))
    with raises("store.too-new", match=r"9999.*use the newer version") as caught:
        open_store(bare)
    assert caught.value.data["revision"] == "9999"
    with database.writing() as connection:
        connection.execute(update(versions).values(version_num=NEWEST))
    database.close()
    with open_store(bare) as store:
        assert len(store.read(read_entries, log.secret.public, 1)) == 1


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("postgresql://jane:secret@127.0.0.1:1/store", "check that the server runs"),
        ("postgresql://jane:secret@/store?host=/nowhere", "check that the server runs"),
        ("mysql://jane:secret@localhost/store", "begins with postgresql://"),
        ("nonsense://", "begins with postgresql://|cannot be read"),
    ],
)
def test_unreachable_server_is_named_without_its_password(url: str, advice: str) -> None:
    with pytest.raises(StoreUnavailable, match=advice) as caught:
        open_store(url)
    assert "secret" not in caught.value.message


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "node.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(StoreUnavailable, match=r"not a database.*put back a copy"):
        open_store(tmp_path)


def test_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be made"):
        open_store(tmp_path / "home")


def test_store_that_another_process_keeps_locked(tmp_path: Path) -> None:
    log = LogBuilder().grow(2)
    open_store(tmp_path).close()
    impatient = LogStore(Database(parse_store_url(tmp_path), busy_seconds=0.05))
    other = sqlite3.connect(tmp_path / "node.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another process"):
        impatient.ingest(offers(log))
    assert impatient.heights() == {}  # readers do not wait
    other.rollback()
    other.close()
    assert [receipt.error for receipt in impatient.ingest(offers(log))] == [None, None]
    impatient.close()


def _fill(store: LogStore, log: LogBuilder) -> int:
    """Append until there is no room; how many entries there was room for."""
    for taken in range(1000):
        log.append(os.urandom(20_000))
        try:
            store.ingest([(log.entries[-1], log.payloads[-1])])
        except StoreUnavailable as error:
            assert "free some space" in error.message  # noqa: PT017
            return taken
    raise AssertionError("the disk is not small")


def test_full_disk_loses_nothing(small_disk: Path) -> None:
    log = LogBuilder()
    with open_store(small_disk) as store:
        taken = _fill(store, log)
        assert taken > 3
        held = store.read(read_entries, log.secret.public, 1)
        assert [item.payload for item in held] == log.payloads[:taken]
        subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
        assert store.ingest([(log.entries[-1], log.payloads[-1])])[0].error is None
        assert len(store.read(read_entries, log.secret.public, 1)) == taken + 1


def test_server_that_goes_away_and_comes_back(postgres: PostgresServer) -> None:
    server = PostgresServer(postgres.programs)
    try:
        log = LogBuilder().grow(4)
        with open_store(server.create_database("goes")) as store:
            store.ingest(offers(log)[:2])
            server.stop()
            with pytest.raises(StoreUnavailable, match="check that the server runs"):
                store.ingest(offers(log)[2:])
            server.start()
            assert [receipt.error for receipt in store.ingest(offers(log)[2:])] == [None, None]
            assert len(store.read(read_entries, log.secret.public, 1)) == 4
    finally:
        server.remove()


def test_every_migration_is_part_of_the_package() -> None:
    folder = Path(migrations.__file__).parent
    for module in folder.rglob("*.py"):
        assert (module.parent / "__init__.py").exists(), module
        assert re.fullmatch(r"[a-z_]\w*", module.stem), module

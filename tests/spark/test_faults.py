"""What can go wrong around a pipeline: each fault is said in one line with its code, loses nothing, and passes."""

import json
import os
import random
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inkgrove.messages import SchemaId
from inkgrove.store.logs import newest_offset, open_store, register_schema
from inkgrove.store.views import open_views
from tests.spark.conftest import Ended
from tests.spark.test_archive import write_archive
from tests.store.postgres import PostgresServer
from tests.support.components import require_component
from tests.support.generated import Generator
from tests.support.logs import LogBuilder, key
from tests.support.processes import running, wait_until
from tests.support.views import Stores, expected, materialised
from tests.unit.schema.test_oracle import exact

SCHEMA = SchemaId(key(50).public, 10)


def run(*arguments: str, **environment: str) -> Ended:
    """A command in a process of its own."""
    with running(*arguments, **environment) as process:
        out, err = process.communicate(timeout=180)
    return process.returncode, out, err.splitlines()


def told(lines: list[str]) -> str:
    """The code of the one line of JSON that a command complains with."""
    assert len(lines) == 1, lines
    answer = json.loads(lines[0])
    assert answer["message"]
    assert answer["ok"] is False
    return str(answer["code"])


def take_in(place: Path | str, count: int, size: int = 20) -> Stores:
    """A store with notes, registered, and its views, not built yet."""
    stores = Stores(open_store(place), open_views(place))
    schema, notes = LogBuilder(key(50), log_id=10), LogBuilder(key(60))
    schema.append(Generator.payload({"kind": "schema-meta", "name": "notes", "spec": 1}))
    fields = [{"a": {"action": "create", "type": "text"}}]
    schema.append(Generator.payload({"kind": "schema-migration", "fields": fields}))
    for number in range(count):
        text = f"{number} ".ljust(size, "x")
        create = {"kind": "create", "schema": [bytes(key(50).public), 10, 2], "fields": [{"a": text}]}
        notes.append(Generator.payload(create))
    for log in (schema, notes):
        stores.store.ingest([(e.encoded, payload) for e, payload in zip(log.entries, log.payloads, strict=True)])
    stores.store.write(register_schema, SCHEMA)
    return stores


def close(stores: Stores) -> None:
    stores.store.close()
    stores.views.close()


def is_whole(stores: Stores) -> bool:
    return exact(materialised(stores)) == exact(expected(stores))


@pytest.mark.parametrize(
    ("java", "says"),
    [(None, "none was found"), ("exit 1", "this is 0"), ("echo 'openjdk version \"11.0.2\"' >&2", "this is 11")],
)
def test_missing_or_old_java_is_said_with_what_to_install(tmp_path: Path, java: str | None, says: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    if java is not None:
        (programs / "java").write_text(f"#!/bin/sh\n{java}\n")
        (programs / "java").chmod(0o755)
    home = str(tmp_path / "home")
    open_store(home).close()
    code, out, err = run("materialise", "--once", "--home", home, PATH=str(programs), JAVA_HOME="")
    assert (code, out, len(err)) == (1, "", 1)
    assert "install Java 17 or newer" in err[0]
    assert says in err[0]
    assert err[0].endswith("[pipeline.no-java]")


def test_store_of_a_newer_version_is_refused_before_spark_starts(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with sqlite3.connect(tmp_path / "node.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    code, _, err = run("materialise", "--once", "--home", str(tmp_path), "--json")
    assert (code, told(err)) == (1, "store.too-new")
    assert not (tmp_path / "spark-logs").exists()


def test_two_pipelines_on_one_store(place: Path | str, tmp_path: Path, run_here: Callable[..., Ended]) -> None:
    stores = take_in(place, 30)
    where = ["--home", str(tmp_path / "home"), "--json"] + (["--store", place] if isinstance(place, str) else [])
    with running("materialise", "--follow", *where) as first:
        wait_until(lambda: stores.views.progress()[1] == stores.store.read(newest_offset), first)
        # A second one is refused at once, a rebuild is welcome.
        code, _, err = run("materialise", "--once", *where)
        assert (code, told(err)) == (1, "pipeline.already-running")
        code, out, err = run_here("rebuild", "notes", *where)
        assert (code, err, json.loads(out)["rows_written"]) == (0, [], 30)
        assert first.poll() is None
        # Its JVM goes away under it.
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        (java,) = [child for child in children if "java" in Path(f"/proc/{child}/cmdline").read_text()]
        os.kill(int(java), signal.SIGKILL)
        _, err_text = first.communicate(timeout=60)
        assert (first.returncode, told(err_text.splitlines())) == (1, "pipeline.spark-failed")
    assert is_whole(stores)
    close(stores)


def test_server_that_goes_away_in_the_middle_of_a_stream(
    postgres: PostgresServer, tmp_path: Path, run_here: Callable[..., Ended]
) -> None:
    server = PostgresServer(postgres.programs)
    try:
        place = server.create_database("goes")
        stores = take_in(place, 0)
        where = ["--home", str(tmp_path / "home"), "--store", place, "--max-entries", "2", "--json"]
        assert run_here("materialise", "--once", *where)[0] == 0
        close(stores)
        stores = take_in(place, 400)
        begun, _ = stores.views.progress()
        with running("materialise", "--follow", *where) as stream:
            wait_until(lambda: stores.views.progress()[0] >= begun + 3, stream)
            server.stop()
            _, err = stream.communicate(timeout=120)
            assert (stream.returncode, told(err.splitlines())) == (1, "store.unavailable")
            assert "check that the server runs" in err
        # As long as it is away, a new start says so without waiting for Spark.
        code, _, lines = run("materialise", "--once", *where)
        assert (code, told(lines)) == (1, "store.unavailable")
        server.start()
        assert stores.views.progress()[1] < stores.store.read(newest_offset)
        assert run_here("materialise", "--once", *where, "--max-entries", "1000")[0] == 0
        assert stores.views.progress()[1] == stores.store.read(newest_offset)
        assert is_whole(stores)
        close(stores)
    finally:
        server.remove()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 32 MB, which can be made smaller."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk], capture_output=True, check=False)
    require_component("a small disk", done.returncode == 0, "run as root, with mounting allowed")
    yield disk
    # Lazily: Spark's Python processes, which outlive the command, still hold files there.
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_full_disk_stops_the_pipeline_and_loses_nothing(disk: Path, run_here: Callable[..., Ended]) -> None:
    stores = take_in(disk, 60, size=100_000)
    taken = sum(file.stat().st_blocks * 512 for file in disk.iterdir())
    # Room for the stage and no room for the view beside it.
    subprocess.run(["mount", "-o", f"remount,size={taken + 9_000_000}", disk], check=True)
    code, _, err = run_here("materialise", "--once", "--home", str(disk), "--json")
    assert (code, told(err)) == (1, "store.unavailable")
    assert "free some space" in err[0]
    assert stores.views.views()[SCHEMA].is_built is False
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    assert run_here("materialise", "--once", "--home", str(disk), "--json")[0] == 0
    assert is_whole(stores)
    assert not list(disk.glob("inkgrove_stage_*"))
    close(stores)


def test_full_disk_is_no_fault_of_the_archive(disk: Path, tmp_path: Path, run_here: Callable[..., Ended]) -> None:
    lines: list[tuple[bytes | None, bytes | None]] = []
    rng = random.Random(1)
    for number in range(1, 41):
        log = LogBuilder(key(number))
        log.append(rng.randbytes(100_000))
        lines.append((log.entry(1).encoded, log.payloads[0]))
    archive = write_archive(tmp_path / "archive.parquet", lines)
    home = tmp_path / "home"
    command = ("import", str(archive), "--rejects", str(tmp_path / "no.parquet"), "--home", str(home), "--json")
    # Spark has no room for the lines that it brings together by log.
    subprocess.run(["mount", "-o", "remount,size=1m", disk], check=True)
    code, out, err = run(*command, SPARK_LOCAL_DIRS=str(disk))
    assert (code, out, told(err)) == (1, "", "store.unavailable")
    assert "no space left for Spark's files" in err[0]
    with open_store(home) as store:
        assert store.heights() == {}
    code, out, err = run_here(*command)
    assert (code, err) == (0, [])
    assert json.loads(out) == {"read": 40, "appended": 40, "known": 0, "rejected": {}}

"""Exports over HTTP: a job that one can look at, and a file that its owner alone downloads, in parts, for a while."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.stores import make_person
from inkgrove.client import AsyncClient, Client
from inkgrove.client.exports import PART_BYTES, ExportDownload
from inkgrove.core import IdentityId
from inkgrove.core.errors import PersonFileError
from inkgrove.node.person_file import Exports, FileReader, verify_person
from inkgrove.node.runtime import DiskReserve
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import count_table_rows, open_store
from inkgrove.store.node import usage_of
from tests.support.command import inkgrove
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import create, make_schema
from tests.support.tiers import amount


def wait_for(client: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    """The finished job."""
    until = time.monotonic() + 60
    while job["state"] in ("waiting", "running"):
        assert time.monotonic() < until, job
        time.sleep(0.02)
        job = client.get(f"/me/export/{job['id']}").json()
    return job


def test_an_export_is_written_and_downloaded_in_parts(shared: RunningNode, jane: Person) -> None:
    create(jane, make_schema(jane), fields={"subject": "A sloth"})
    asked = jane.post("/me/export", json={})
    assert asked.status_code == 202
    job = wait_for(jane, asked.json())
    assert job["state"] == "finished"
    assert not job["has_secret"]
    whole = jane.get(job["address"])
    assert whole.status_code == 200
    assert len(whole.content) == job["size"]
    assert whole.headers["etag"] == f'"{job["digest"]}"'
    part = jane.get(job["address"], headers={"Range": "bytes=10-29"})
    assert part.status_code == 206
    assert part.content == whole.content[10:30]
    assert jane.get(job["address"], headers={"Range": f"bytes={job['size']}-"}).status_code == 416
    assert jane.get(job["address"], headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert jane.delete(f"/me/export/{job['id']}").status_code == 204
    assert jane.get(job["address"]).json()["code"] == "export.unknown"


def test_an_export_is_its_owners_alone(shared: RunningNode, jane: Person, john: Person) -> None:
    job = wait_for(jane, jane.post("/me/export", json={}).json())
    for path in (f"/me/export/{job['id']}", job["address"]):
        assert john.get(path).status_code == 404
        assert john.get(path).json()["code"] == "export.unknown"
        assert shared.anybody.get(path).status_code == 401
    assert john.delete(f"/me/export/{job['id']}").status_code == 404
    assert shared.anybody.post("/me/export", json={}).status_code == 401
    for strange in ("../../vault", "x" * 32, "0" * 32, "..%2f..%2fvault.key"):
        assert jane.get(f"/me/export/{strange}").status_code == 404


def test_there_is_one_export_at_a_time_and_one_file(shared: RunningNode, jane: Person) -> None:
    first = jane.post("/me/export", json={}).json()
    again = jane.post("/me/export", json={}).json()
    done = wait_for(jane, first)
    if again["id"] != first["id"]:  # it was finished by then
        done = wait_for(jane, again)
    folder = shared.node.home / "exports" / jane.id.hex()
    assert [path.name for path in folder.glob("*.person")] == [f"{done['id']}.person"]
    newer = wait_for(jane, jane.post("/me/export", json={}).json())
    assert newer["id"] != done["id"]
    assert [path.name for path in folder.glob("*.person")] == [f"{newer['id']}.person"]
    assert jane.get(f"/me/export/{done['id']}").status_code == 404


def test_a_passphrase_puts_the_key_into_the_file(shared: RunningNode, jane: Person, tmp_path: Path) -> None:
    assert jane.post("/me/export", json={"passphrase": "short"}).json()["code"] == "identity.weak-password"
    job = wait_for(jane, jane.post("/me/export", json={"passphrase": "a long enough passphrase"}).json())
    assert job["has_secret"]
    file = tmp_path / "jane.person"
    file.write_bytes(jane.get(job["address"]).content)
    with FileReader(file) as reader, open_store(tmp_path / "new") as store:
        assert verify_person(reader, store).secret is not None
    (state,) = (shared.node.home / "exports" / jane.id.hex()).glob("*.json")
    assert json.loads(state.read_bytes())["secret"] is None
    assert state.stat().st_mode & 0o077 == 0


def test_a_file_expires(tmp_path: Path) -> None:
    settings = NodeSettings(domains=("haiku.ink",), export_seconds=0)
    with RunningNode(tmp_path, tmp_path, settings) as running, Person(running, "jane.haiku.ink") as jane:
        job = jane.post("/me/export", json={}).json()
        folder = tmp_path / "exports" / jane.id.hex()
        until = time.monotonic() + 30
        while jane.get(f"/me/export/{job['id']}").status_code != 404:
            assert time.monotonic() < until
            time.sleep(0.02)
        exports = Exports(running.node)
        exports.tidy()
        assert not list(folder.glob("*.person"))
        assert not list(folder.glob("*.json"))


def test_a_full_disk_is_refused_and_noticed(shared: RunningNode, jane: Person) -> None:
    node, reserve = shared.node, shared.node.disk
    try:
        node.disk = DiskReserve([node.home], 1, free=lambda _: 0)
        assert jane.post("/me/export", json={}).json()["code"] == "storage.low-disk"
    finally:
        node.disk = reserve


def test_an_export_whose_process_died_is_begun_again(tmp_path: Path) -> None:
    settings = NodeSettings(domains=("haiku.ink",))
    with RunningNode(tmp_path, tmp_path, settings) as running, Person(running, "jane.haiku.ink") as jane:
        job = wait_for(jane, jane.post("/me/export", json={}).json())
        folder = tmp_path / "exports" / jane.id.hex()
        # As it lies there when the process was killed while it wrote.
        (folder / f"{job['id']}.person").unlink()
        (folder / f"{job['id']}.part").write_bytes(b"half of it")
        state = json.loads((folder / f"{job['id']}.json").read_bytes())
        state |= {"state": "running", "size": None, "digest": None, "expires": None}
        (folder / f"{job['id']}.json").write_text(json.dumps(state))
        again = wait_for(jane, jane.get(f"/me/export/{job['id']}").json())
        assert again["state"] == "finished"
        assert len(jane.get(again["address"]).content) == again["size"]
        assert not (folder / f"{job['id']}.part").exists()


def test_the_client_downloads_and_goes_on_where_it_stopped(shared: RunningNode, jane: Person, tmp_path: Path) -> None:
    jane.post("/blobs", content=b"x" * (2 * PART_BYTES + 5), headers={"Content-Type": "image/png"})
    with Client(shared.url, token=jane.token) as client:
        export = client.export_me(tmp_path / "jane.person")
        assert (tmp_path / "jane.person").stat().st_size == export.size
        with pytest.raises(FileExistsError):
            client.export_me(tmp_path / "jane.person")
        begun = client.start_export()
        until = time.monotonic() + 60
        while begun.state != "finished":
            assert time.monotonic() < until
            begun = client.export_state(begun.id)
        download = ExportDownload(tmp_path / "again.person")
        download.append(begun, jane.get(f"/me/export/{begun.id}/file").content[: PART_BYTES + 7])
        assert client.export_me(tmp_path / "again.person").id == begun.id
        assert (tmp_path / "again.person").stat().st_size == begun.size
        assert not list(tmp_path.glob("*.part"))

    async def work() -> None:
        async with AsyncClient(shared.url, token=jane.token) as awaited:
            await awaited.export_me(tmp_path / "awaited.person")

    asyncio.run(work())
    with FileReader(tmp_path / "awaited.person") as reader:
        assert reader.header.identity == jane.id


# Killed processes

_KILLED = """
import os, signal, sys
from pathlib import Path
from bench.stores import PERSON_SETTINGS
from inkgrove.core import IdentityId
from inkgrove.node.person_file import import_person, write_person_file
from inkgrove.node.runtime import Node

what, home, file, identity, left = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], int(sys.argv[5])

def on_progress(phase, _done, _total):
    global left
    left -= phase != "checking"
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

node = Node(home, PERSON_SETTINGS, home=home)
if what == "export":
    with file.open("wb") as opened:
        write_person_file(node, IdentityId.fromhex(identity), opened, on_progress=on_progress)
else:
    import_person(node, file, chunk=300, on_progress=on_progress)
node.close()
"""


def _run_killed(what: str, home: Path, file: Path, identity: IdentityId, point: int) -> int:
    """Run an export or import that kills itself at so many steps; its exit code."""
    arguments = (what, str(home), str(file), identity.hex(), str(point))
    done = subprocess.run([sys.executable, "-c", _KILLED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_what_is_killed_at_any_point_comes_to_the_same(tmp_path: Path) -> None:
    home, file, new, plain = (tmp_path / name for name in ("old", "jane.person", "new", "plain"))
    identity = make_person(home, 3_000, 3 << 23)
    chance = random.Random(amount(7, 8))
    # An export that was killed has left a file without its end.
    for _ in range(amount(1, 10)):
        assert _run_killed("export", home, file, identity, chance.randrange(1, 30)) == -signal.SIGKILL
        with pytest.raises(PersonFileError, match="does not come to its end"):
            FileReader(file)
    assert _run_killed("export", home, file, identity, -1) == 0
    steps = _count_records(file)
    points = sorted(chance.sample(range(1, steps), amount(3, 50)))
    for point in points:
        assert _run_killed("import", new, file, identity, point) == -signal.SIGKILL
    assert _run_killed("import", new, file, identity, -1) == 0
    assert _run_killed("import", plain, file, identity, -1) == 0
    with open_store(new) as ours, open_store(plain) as theirs:
        assert ours.read(count_table_rows) == theirs.read(count_table_rows)
        assert ours.heights() == theirs.heights()
        assert ours.read(usage_of, [identity]) == theirs.read(usage_of, [identity])
    names = [sorted(path.name for path in (folder / "blobs").glob("??/*")) for folder in (new, plain)]
    assert names[0] == names[1]
    assert len(names[0]) == 3


def _count_records(file: Path) -> int:
    with FileReader(file) as reader:
        return sum(1 for _ in reader.records())


def test_the_commands_write_and_take_in_a_file(tmp_path: Path) -> None:
    home, file, new = tmp_path / "old", tmp_path / "jane.person", tmp_path / "new"
    identity = make_person(home, 30)
    done = inkgrove("identity", "export", "jane.haiku.ink", str(file), "--home", str(home), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["id"] == identity.hex()
    assert told["size"] == file.stat().st_size
    assert told["counts"] == {"entries": 31, "logs": 11, "schemas": 1}
    assert inkgrove("identity", "export", "jane.haiku.ink", str(file), "--home", str(home)).returncode == 2
    no_key = inkgrove(
        "identity", "export", "jane.haiku.ink", str(tmp_path / "x"), "--with-secret", "--home", str(home),
        stdin="a long enough passphrase\n",
    )  # fmt: skip
    assert "identity.no-key-here" in no_key.stderr
    done = inkgrove("identity", "import", str(file), "--home", str(new), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["new"] == {"entries": 31, "schema_entries": 4}
    done = inkgrove("identity", "import", str(file), "--home", str(new))
    assert done.stdout.startswith("known: 31 entries")
    done = inkgrove("identity", "import", str(file), "--identity", "00" * 32, "--home", str(new), "--json")
    assert json.loads(done.stderr)["code"] == "file.not-yours"
    file.write_bytes(file.read_bytes()[:-1])
    done = inkgrove("identity", "import", str(file), "--home", str(tmp_path / "newer"), "--json")
    assert json.loads(done.stderr)["code"] == "file.cut-off"
    assert not (tmp_path / "newer").exists()

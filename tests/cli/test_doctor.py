"""`inkgrove doctor` and wrong moves: whatever is wrong, somebody is told what to do next."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inkgrove.cli.checks import nearest, parse_size
from inkgrove.messages import SchemaId, SchemaMeta, encode_message
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import open_store, register_schema
from tests.support.command import inkgrove
from tests.support.components import require_component
from tests.support.logs import LogBuilder
from tests.support.nodes import RunningNode


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False)
    require_component("a small disk", done.returncode == 0, "run as root, with mounting allowed")
    yield disk
    subprocess.run(["umount", disk], check=True)


def examine(*arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what each check found by name; of several, the first that is wrong."""
    done = inkgrove("doctor", *arguments, "--json")
    report = json.loads(done.stdout)
    assert report["ok"] is (done.returncode == 0), done.stderr
    found: dict[str, Any] = {}
    for item in report["checks"]:
        if item["check"] not in found or found[item["check"]]["ok"]:
            found[item["check"]] = item
        assert item["ok"] == (item["next"] is None), item
    return done.returncode, found


def with_schema(home: Path) -> None:
    """A store with a schema that is registered and that no pipeline has seen."""
    log = LogBuilder()
    log.append(encode_message(SchemaMeta("slothmail")))
    with open_store(home) as store:
        store.ingest(zip(log.entries, log.payloads, strict=True))
        store.write(register_schema, SchemaId(log.secret.public, 1))


def test_healthy_machine_without_a_store_is_well_and_stays_without(tmp_path: Path, taken: int) -> None:
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    done = inkgrove("--set", f"node.port={free}", "doctor", "--home", str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    for check in ("java", "memory", "disk", "clock", "port", "store", "spark"):
        assert f"✓ │ {check}" in done.stdout
    assert "✗" not in done.stdout
    assert "\x1b" not in done.stdout, "colours are for terminals"
    assert done.stderr == "All is well.\n"
    assert not home.exists()


def test_spark_is_started_if_asked_for(tmp_path: Path) -> None:
    code, found = examine("--spark", "--home", str(tmp_path / "home"))
    assert code == 0 or not found["port"]["ok"], found
    said = re.fullmatch(r"version 4\.3\S* on local\[\*\] counted to 1,000 after \d+ s", found["spark"]["found"])
    assert said, found["spark"]
    assert not (tmp_path / "home").exists()


def test_no_java_is_told_by_doctor_and_by_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    code, found = examine("--home", str(tmp_path))
    assert code == 1
    # Two whole sentences, and neither has a piece of the other.
    assert re.fullmatch(r"Spark needs Java and [^:()]+( \([^()]+\))? \[pipeline.no-java\]", found["java"]["found"])
    advice = "install Java 17 or newer (Debian: apt-get install default-jre-headless) or set JAVA_HOME"
    assert found["java"]["next"] == advice
    open_store(tmp_path).close()
    done = inkgrove("materialise", "--once", "--home", str(tmp_path))
    assert done.returncode == 1
    assert "install Java 17 or newer" in done.stderr
    assert "[pipeline.no-java]" in done.stderr


def test_java_is_known_by_its_version_whatever_else_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", '"-Dversion=1.8"')
    _, found = examine("--home", str(tmp_path))
    assert found["java"]["ok"], found["java"]


def test_taken_port_is_told_with_the_way_out(tmp_path: Path, taken: int) -> None:
    done = inkgrove("--set", f"node.port={taken}", "doctor", "--json", "--home", str(tmp_path))
    (port,) = (item for item in json.loads(done.stdout)["checks"] if item["check"] == "port")
    assert (done.returncode, port["ok"]) == (1, False)
    assert "--port" in port["next"]
    served = inkgrove("serve", "--port", str(taken), "--home", str(tmp_path))
    assert served.returncode == 1
    assert "choose another with --port" in served.stderr
    assert "[serve.port-taken]" in served.stderr


def test_port_of_a_running_node_is_right(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        port = running.url.rpartition(":")[2]
        done = inkgrove("--set", f"node.port={port}", "doctor", "--json", "--home", str(tmp_path / "other"))
    (found,) = (item for item in json.loads(done.stdout)["checks"] if item["check"] == "port")
    assert (found["ok"], found["found"]) == (True, f"a node answers on 127.0.0.1 port {port}")


def test_names_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    for name in ("jane.haiku.invalid", "john.sloth.invalid"):
        made = inkgrove("identity", "create", name, "--home", str(tmp_path), stdin="correct horse battery\n")
        assert made.returncode == 0, made.stderr
    resolve = 'node.resolve=["*.haiku.invalid=127.0.0.1:8750"]'
    done = inkgrove("--set", resolve, "doctor", "--json", "--home", str(tmp_path))
    names = [item for item in json.loads(done.stdout)["checks"] if item["check"] == "names"]
    assert [(item["ok"], item["found"]) for item in names] == [
        (True, "jane.haiku.invalid stands for 127.0.0.1:8750 (node.resolve)"),
        (False, "john.sloth.invalid: no address"),
    ]
    assert "node.resolve" in names[1]["next"]


def test_views_that_nobody_keeps_up_to_date_are_told(tmp_path: Path) -> None:
    with_schema(tmp_path)
    code, found = examine("--home", str(tmp_path))
    assert code == 1
    assert found["pipeline"]["found"] == "not running, views are 2 positions behind"
    assert "inkgrove materialise --follow" in found["pipeline"]["next"]


def test_reader_that_waits_in_vain_is_told_about_the_pipeline(tmp_path: Path) -> None:
    settings = NodeSettings(registration="open", domains=("haiku.ink",), at_least_seconds=0.1)
    with RunningNode(tmp_path, tmp_path, settings) as running:
        running.create("jane.haiku.ink")
        jane = running.sign_in("jane.haiku.ink")
        position = jane.post("/schemas", json={"name": "slothmail"}).json()["position"]
        problem = jane.get("/views/slothmail", params={"at_least": position}).json()
    assert problem["code"] == "view.behind"
    assert "inkgrove up" in problem["detail"]


def test_expired_token_and_unknown_schema_say_what_to_do(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running:
        expired = running.client("ink_s_" + "0" * 64).get("/me").json()
        unknown = running.anybody.get("/views/nothing").json()
    assert (expired["code"], "POST /sessions" in expired["detail"]) == ("auth.bad-token", True)
    assert (unknown["code"], "GET /views" in unknown["detail"]) == ("view.unknown", True)
    done = inkgrove("view", "show", "nothing", "--home", str(tmp_path))
    assert done.returncode == 2
    assert "inkgrove index AUTHOR LOG" in done.stderr


def test_unknown_schema_is_told_before_anybody_waits_for_spark(tmp_path: Path) -> None:
    with_schema(tmp_path)
    done = inkgrove("rebuild", "nothing", "--home", str(tmp_path))
    assert done.returncode == 2
    assert "no registered schema is called 'nothing'" in done.stderr
    assert not (tmp_path / "spark-logs").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["veiw"], "No such command 'veiw'. Did you mean 'view', 'views'? Try inkgrove --help."),
        (["view", "sho"], "No such command 'sho'. Did you mean 'show'? Try inkgrove view --help."),
        (["identity", "create"], "Missing argument 'FQDN'. Try inkgrove identity create --help."),
        (["materialise"], "Invalid value: say --once or --follow. Try inkgrove materialise --help."),
    ],
)
def test_misused_command_says_whose_help_to_read(arguments: list[str], says: str) -> None:
    done = inkgrove(*arguments)
    assert (done.returncode, done.stderr) == (2, f"error: {says} [input.usage]\n")


def test_damaged_store_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "node.db").write_bytes(b"something else entirely" * 100)
    code, found = examine("--home", str(tmp_path))
    assert code == 1
    assert found["store"]["found"].endswith("[store.unavailable]")
    assert "put back a copy" in found["store"]["next"]
    assert not {"pipeline", "names"} & found.keys()


def test_clock_that_went_back_is_told(tmp_path: Path) -> None:
    with_schema(tmp_path)
    tomorrow = time.time() + 86_400
    os.utime(tmp_path / "node.db", (tomorrow, tomorrow))
    code, found = examine("--home", str(tmp_path))
    assert code == 1
    assert "NTP" in found["clock"]["next"]


def test_full_disk_is_told_by_doctor_by_uploads_and_by_commands(small_disk: Path, tmp_path: Path) -> None:
    code, found = examine("--home", str(small_disk))
    assert code == 1
    assert "free some space" in found["disk"]["next"]
    with RunningNode(tmp_path, small_disk) as running:
        running.create("jane.haiku.ink")
        refused = running.sign_in("jane.haiku.ink").post("/blobs", content=bytes(3_000_000))
    assert (refused.status_code, refused.json()["code"]) == (507, "storage.low-disk")
    assert "until its administrator has made room" in refused.json()["detail"]
    with Path("/dev/full").open("w") as full:
        command = ["bash", "-c", 'exec "$0" -m inkgrove log pool 23', sys.executable]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "free some space" in done.stderr


@pytest.mark.parametrize(
    ("text", "size"), [("1g", 2**30), ("512m", 2**29), ("1.5G", 3 * 2**29), ("4096", 4096), ("2gb", 2**31)]
)
def test_sizes_are_read_as_java_writes_them(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_nearest_directory_that_exists(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == tmp_path.resolve()

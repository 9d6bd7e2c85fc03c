"""Running a node: start, health, metrics, logs without secrets, and an end that loses nothing."""

import json
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import text

from examples.demo.ports import free_port
from inkgrove.api.http.problems import problem_facts
from inkgrove.cli.supervisor import Child, supervise
from inkgrove.core.errors import CODES
from inkgrove.node.errors import VaultLocked
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.settings import load
from inkgrove.store.db import ExclusiveWork, is_work_running
from inkgrove.store.views import open_views
from tests.support.errors import raises
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD, RunningNode

OPEN = {"registration": "open", "domains": "haiku.ink"}


def create_and_sign_in(serving: Serving, fqdn: str = "jane.haiku.ink") -> str:
    facts = {"fqdn": fqdn, "password": PASSWORD}
    assert serving.client.post("/identities", json=facts).status_code == 201
    answer = serving.client.post("/sessions", json=facts)
    assert answer.status_code == 201
    token: str = answer.json()["token"]
    return token


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


# Pages of other hosts


def test_pages_of_any_host_may_ask_with_a_token(running: RunningNode) -> None:
    asked = running.anybody.get("/healthz", headers={"Origin": "https://app.example"})
    assert asked.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in asked.headers
    wanted = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization"}
    before = running.anybody.options("/instances/x", headers={"Origin": "https://app.example", **wanted})
    assert before.status_code == 200
    assert "PATCH" in before.headers["access-control-allow-methods"]


def test_answer_says_that_the_origin_matters_where_none_is_given(running: RunningNode) -> None:
    assert running.anybody.get("/healthz").headers["vary"] == "Origin"
    page = running.anybody.get("/")
    assert "access-control-allow-origin" not in page.headers
    assert page.headers.get_list("vary") == ["Cookie, Origin"]


# Start and end


def test_node_starts_without_a_jvm_and_without_what_only_the_pipeline_needs(tmp_path: Path) -> None:
    with Serving(tmp_path / "home", loads_by_itself=True) as serving:
        mapped = Path(f"/proc/{serving.pid}/maps").read_text()
        loaded = set(re.findall(r"/site-packages/(\w+)/", mapped))
        assert "sqlalchemy" in loaded
        assert not loaded & {"pyspark", "pyarrow", "pandas", "numpy"}
        children = subprocess.run(["pgrep", "-P", str(serving.pid)], capture_output=True, text=True, check=False)
        assert children.stdout == ""
        assert serving.stop() == 0


def test_request_under_way_is_answered_before_the_node_ends(tmp_path: Path) -> None:
    with Serving(tmp_path / "home", OPEN) as serving:
        token = create_and_sign_in(serving)
        size, begun = 3_000_000, threading.Event()

        def slowly() -> object:
            for _ in range(30):
                yield b"x" * (size // 30)
                begun.set()
                time.sleep(0.05)

        answers: list[httpx.Response] = []
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "text/plain"}
        thread = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{serving.url}/blobs", content=slowly(), headers=headers))  # type: ignore[arg-type]
        )
        thread.start()
        begun.wait(10)
        assert serving.stop() == 0
        thread.join()
        assert answers[0].status_code == 201
        blob = answers[0].json()
    with Serving(tmp_path / "home", OPEN) as again:
        answer = again.client.get(f"/blobs/{blob['hash']}", headers={"Authorization": f"Bearer {token}"})
        assert answer.content == b"x" * size


def test_taken_port_is_an_error_with_its_code(tmp_path: Path) -> None:
    with Serving(tmp_path / "home") as serving:
        command = [
            sys.executable,
            "-m",
            "inkgrove",
            "serve",
            "--port",
            str(serving.port),
            "--home",
            str(tmp_path / "b"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert "[serve.port-taken]" in done.stderr
        assert "Traceback" not in done.stderr


def test_several_processes_share_the_port_and_count_together(tmp_path: Path) -> None:
    with Serving(tmp_path / "home", {**OPEN, "metrics": "local"}, arguments=("--workers", "2")) as serving:
        token = create_and_sign_in(serving)
        for _ in range(40):
            # Each on a connection of its own, so that both processes get some.
            answer = httpx.get(f"{serving.url}/blobs/nothing", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 404
        wanted = 'inkgrove_http_requests_total{method="GET",route="/blobs/{hash}",status="404"} 40.0'
        assert wanted in httpx.get(f"{serving.url}/metrics").text.splitlines()
        assert serving.stop() == 0


# Up


def java_that_waits(folder: Path) -> tuple[Path, Path]:
    """A JAVA_HOME whose Java starts nothing before a file is there; that file, and one that shows that it waits."""
    go, waits, real = folder / "go", folder / "waits", shutil.which("java")
    (folder / "jdk" / "bin").mkdir(parents=True)
    program = folder / "jdk" / "bin" / "java"
    wait = f'touch "{waits}"; while [ ! -e "{go}" ]; do sleep 0.1; done'
    program.write_text(f'#!/bin/sh\n[ "$1" = -version ] || {{ {wait}; }}\nexec "{real}" "$@"\n')
    program.chmod(0o755)
    return go, waits


def test_up_runs_node_and_pipeline_and_starts_again_what_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, waits = java_that_waits(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    # An option before the command holds for what it starts as well.
    with Serving(
        tmp_path / "home", command="up", options=("--set", "node.registration=open", "--set", "node.domains=haiku.ink")
    ) as serving:
        create_and_sign_in(serving)
        wait_until(waits.exists, 120)
        assert "pipeline: starting" in serving.log()
        assert "pipeline: running" not in serving.log(), "Spark has not started"
        go.touch()
        wait_until(lambda: "pipeline: running" in serving.log(), 300)
        with open_views(tmp_path / "home") as views:
            assert is_work_running(views.database, ExclusiveWork.STREAM)
        # The identity's document passes through the pipeline.
        wait_until(lambda: serving.client.get("/readyz").json()["view_lag"] == 0, 300)
        children = subprocess.run(["pgrep", "-P", str(serving.pid)], capture_output=True, text=True, check=True)
        pids = [int(pid) for pid in children.stdout.split()]
        assert len(pids) == 2
        running = re.search(r"node: running \(process (\d+)\)", serving.log())
        assert running is not None
        assert int(running.group(1)) in pids
        subprocess.run(["kill", "-9", running.group(1)], check=True)
        wait_until(lambda: "node: ended (exit code -9), starts again in 1 s" in serving.log())
        wait_until(serving.answers)
        assert serving.stop(signal.SIGINT) == 0
        for name in ("node", "pipeline"):
            assert f"{name}: ended\n" in serving.log()
        assert not serving.answers()


def test_up_is_not_deceived_by_another_node_at_its_port(tmp_path: Path) -> None:
    with Serving(tmp_path / "first") as first:
        place = ["--port", str(first.port), "--home", str(tmp_path / "second")]
        command = [sys.executable, "-m", "inkgrove", "up", *place]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "[serve.port-taken]" in done.stderr
    assert "node: could not start (exit code 1)" in done.stderr
    assert "running" not in done.stderr


def test_up_gives_up_if_something_cannot_start_at_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    command = [
        sys.executable,
        "-m",
        "inkgrove",
        "up",
        "--port",
        str(free_port()),
        "--home",
        str(tmp_path / "file" / "x"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "could not start" in done.stderr


def test_child_runs_when_it_says_so(tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = (
        "import pathlib, time; from inkgrove.cli.supervisor import tell_ready\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
        "tell_ready(); tell_ready(); time.sleep(60)"
    )
    told: list[str] = []
    stop = threading.Event()
    child = Child("it", [sys.executable, "-c", program], Child.says_ready)

    def tell(text: str) -> None:
        told.append(text)
        if "running" in text:
            stop.set()

    threading.Timer(1, go.touch).start()
    assert supervise([child], stop, tell, 5) == 0
    assert child.process is not None
    assert told == ["it: starting", f"it: running (process {child.process.pid})", "it: ended"]
    assert time.monotonic() - child.started >= 0.9


def test_child_that_ends_without_a_word_could_not_start(tmp_path: Path) -> None:
    told: list[str] = []
    child = Child("it", [sys.executable, "-c", "raise SystemExit(4)"], Child.says_ready)
    assert supervise([child], threading.Event(), told.append, 5) == 4
    assert told[:2] == ["it: starting", "it: could not start (exit code 4)"]


def test_child_that_dies_again_and_again_waits_longer_each_time(tmp_path: Path) -> None:
    told: list[str] = []
    stop = threading.Event()
    child = Child("it", [sys.executable, "-c", "import time; time.sleep(0.3); raise SystemExit(3)"], lambda _: True)

    def tell(text: str) -> None:
        told.append(text)
        if sum("ended (exit code 3)" in line for line in told) == 3:
            stop.set()

    assert supervise([child], stop, tell, 5) == 0
    waits = [line.partition(", ")[2] for line in told if "exit code" in line]
    assert waits == ["starts again in 1 s", "starts again in 2 s", "starts again in 4 s"]


def test_child_that_does_not_end_is_killed(tmp_path: Path) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(60)"
    )
    told: list[str] = []
    stop = threading.Event()
    child = Child("it", [sys.executable, "-c", program], lambda child: time.monotonic() - child.started > 0.5)

    def tell(text: str) -> None:
        told.append(text)
        if "running" in text:
            stop.set()

    start = time.monotonic()
    assert supervise([child], stop, tell, 1) == 0
    assert told[-1] == "it: did not end in time and was killed"
    assert time.monotonic() - start < 20


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_children_of_a_supervisor_that_was_killed_end(tmp_path: Path) -> None:
    file = tmp_path / "child"
    child = f"import os, pathlib, time; pathlib.Path({str(file)!r}).write_text(str(os.getpid())); time.sleep(120)"
    program = (
        "import sys, threading; from inkgrove.cli.supervisor import Child, supervise;"
        f"supervise([Child('it', [sys.executable, '-c', {child!r}], lambda _: True)], threading.Event(), print, 5)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < deadline, "the child did not start"
        time.sleep(0.05)
    number = int(file.read_text())
    os.kill(number, 0)  # it runs
    supervisor.kill()
    supervisor.wait()
    while _runs(number):
        assert time.monotonic() < deadline, "the child outlived its supervisor"
        time.sleep(0.05)


def _runs(number: int) -> bool:
    """Whether a process does anything; nobody may have asked yet how a dead one ended."""
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# Health and metrics


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningNode, Path]]:
    """A node whose database is no database any more, and the file that it logs to."""
    folder = tmp_path_factory.mktemp("broken")
    with RunningNode(folder / "home", folder) as running:
        handler = logging.FileHandler(folder / "log")
        logging.getLogger().addHandler(handler)
        running.node.store.close()
        for path in (folder / "home").glob("*.db*"):
            path.unlink()
        for name in ("node.db", "views.db"):
            (folder / "home" / name).write_bytes(b"no database at all, only some text" * 100)
        yield running, folder / "log"
        logging.getLogger().removeHandler(handler)
        handler.close()


def test_readiness_tells_the_lag_of_the_views(running: RunningNode) -> None:
    assert running.anybody.get("/healthz").json() == {"status": "ok"}
    assert running.anybody.get("/readyz").json() == {"status": "ready", "view_lag": 0}
    running.create("jane.haiku.ink")
    answer = running.anybody.get("/readyz")
    assert (answer.status_code, answer.json()["view_lag"]) == (200, 1)


def test_node_whose_store_is_gone_is_alive_and_not_ready(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "home", tmp_path) as running:
        running.node.store.close()
        for path in (tmp_path / "home").glob("node.db*"):
            path.unlink()
        (tmp_path / "home" / "node.db").write_bytes(b"no database at all, only some text" * 100)
        assert running.anybody.get("/healthz").status_code == 200
        answer = running.anybody.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "store.unavailable")


_OWN_TO_THE_MACHINE = re.compile(r"node\.db|views\.db|vault\.key|sqlite|postgresql|SELECT|/tmp|/home", re.IGNORECASE)


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("GET", "/readyz", {}),
        ("GET", "/", {}),
        ("GET", "/views", {}),
        ("GET", "/pages/me", {"headers": {"Cookie": f"__Host-inkgrove=ink_s_{'0' * 64}"}}),
        ("GET", "/me", {"headers": {"Authorization": "Bearer ink_s_" + "0" * 64}}),
        ("POST", "/sessions", {"json": {"fqdn": "jane.haiku.ink", "password": PASSWORD}}),
        ("POST", "/identities", {"json": {"fqdn": "jane.haiku.ink", "password": PASSWORD}}),
        ("GET", "/oauth/authorize?client_id=a&response_type=code", {}),
        ("POST", "/oauth/token", {"data": {"grant_type": "refresh_token", "refresh_token": "a", "client_id": "a"}}),
        ("GET", "/.well-known/inkgrove", {}),
        ("GET", f"/blobs/0040{'00' * 64}", {}),
    ],
)
def test_answer_of_a_broken_store_shows_no_place_of_this_machine(
    broken: tuple[RunningNode, Path], method: str, path: str, sent: dict[str, Any]
) -> None:
    running, log = broken
    before = log.stat().st_size
    answer = running.anybody.request(method, path, **sent)
    assert answer.status_code == 503, answer.text
    assert "store.unavailable" in answer.text or "cannot be reached" in answer.text
    assert _OWN_TO_THE_MACHINE.findall(answer.text) == []
    assert "node.db" in log.read_text()[before:], "the log has the reason"


def test_answer_without_the_key_of_the_vault_shows_no_place_of_this_machine() -> None:
    facts = problem_facts(VaultLocked("the passphrase file /var/lib/inkgrove/vault.key cannot be read", file="/var"))
    assert facts["detail"] == CODES["identity.vault-locked"].sentence
    assert set(facts) == {"type", "title", "status", "code", "detail"}


def test_metrics_tell_of_requests_store_and_blobs(running: RunningNode) -> None:
    running.create("jane.haiku.ink")
    jane = running.sign_in("jane.haiku.ink")
    jane.post("/blobs", content=b"12345", headers={"Content-Type": "text/plain"})
    for path in ("/nothing/1", "/nothing/2"):
        jane.get(path)
    lines = running.anybody.get("/metrics").text.splitlines()
    for wanted in (
        'inkgrove_http_requests_total{method="POST",route="/identities",status="201"} 1.0',
        'inkgrove_http_requests_total{method="GET",route="none",status="404"} 2.0',
        'inkgrove_http_request_seconds_count{method="POST",route="/blobs"} 1.0',
        "inkgrove_entries 1.0",
        "inkgrove_view_lag 1.0",
        "inkgrove_blobs 1.0",
        "inkgrove_blob_bytes 5.0",
    ):
        assert wanted in lines


@pytest.mark.parametrize(("setting", "status"), [("local", 200), ("open", 200), ("off", 403)])
def test_metrics_are_for_whom_the_setting_says(tmp_path: Path, setting: str, status: int) -> None:
    with RunningNode(tmp_path / "home", tmp_path, NodeSettings(metrics=setting)) as node:  # type: ignore[arg-type]
        assert node.anybody.get("/metrics").status_code == status
        # Behind a proxy on this machine everybody seems to be local; that it speaks for others is enough.
        for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"):
            far = node.anybody.get("/metrics", headers={header: "127.0.0.1"})
            assert far.status_code == (200 if setting == "open" else 403)


def test_metrics_are_for_nobody_unless_they_are_opened(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "home", tmp_path, NodeSettings()) as node:
        answer = node.anybody.get("/metrics")
        assert (answer.status_code, answer.json()["code"]) == (403, "auth.not-allowed")


def test_new_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    before = os.umask(0o022)
    try:
        Node(home, NodeSettings(), home=home).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.iterdir() if path.is_file()} == {0o600}


# Logs


def test_request_id_is_taken_returned_and_logged(tmp_path: Path) -> None:
    with Serving(tmp_path / "home") as serving:
        answer = serving.client.get("/identities/a.ink", headers={"X-Request-Id": "trace-1.a_B"})
        assert answer.headers["x-request-id"] == "trace-1.a_B"
        made = serving.client.get("/identities/b.ink", headers={"X-Request-Id": "no good\tid"}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{10}-[0-9a-f]{6}", made)
        assert serving.client.get("/identities/b.ink").headers["x-request-id"] != made
        serving.stop()
        lines = [json.loads(line) for line in serving.log().splitlines()]
        requests = {line["request_id"]: line for line in lines if line["event"] == "request"}
        logged = requests["trace-1.a_B"]
        assert (logged["method"], logged["path"], logged["status"]) == ("GET", "/identities/a.ink", 404)
        assert made in requests


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_logs_show_what_cannot_be_printed(tmp_path: Path, log_format: str) -> None:
    with Serving(tmp_path, {**OPEN, "log_format": log_format}) as serving:
        for path in ("/a\x1b[2J\x9b1A\u202e\u6728", "/a\nforged"):
            assert serving.client.get(quote(path)).status_code == 404
        serving.stop()
        first, second = (line for line in serving.log().split("\n") if "path" in line and "/a" in line)
        assert [sign for sign in first + second if not sign.isprintable()] == []
        assert "/a\\u001b[2J\\u009b1A\\u202e" in first
        assert "forged" in second


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_logs_hold_no_secret(tmp_path: Path, log_format: str) -> None:
    settings = {**OPEN, "log_format": log_format, "log_level": "debug"}
    with Serving(tmp_path / "home", settings) as serving:
        token = create_and_sign_in(serving)
        bearer = {"Authorization": f"Bearer {token}"}
        serving.client.get("/blobs/x", headers={**bearer, "Cookie": "session=c00kie-secret"})
        serving.client.get("/healthz?token=query-secret&code=query-code")
        serving.client.post("/sessions", json={"fqdn": "jane.haiku.ink", "password": "wrong-secret"})
        serving.client.post("/sessions", json={"fqdn": "jane.haiku.ink", "password": ["listed-secret"]})
        serving.client.post(
            "/sessions", content=b'{"password": "broken-secret"', headers={"Content-Type": "application/json"}
        )
        serving.client.get("/blobs/x", headers={"Authorization": "Basic basic-secret"})
        serving.client.delete("/sessions/current", headers=bearer)
        serving.stop()
        log = serving.log()
        assert log.count("/sessions") >= 4, "requests are logged"
        vault_key = (tmp_path / "home" / "vault.key").read_text().strip()
        hidden = [token, PASSWORD, vault_key, "Bearer"]
        hidden += [
            "c00kie-secret",
            "query-secret",
            "query-code",
            "wrong-secret",
            "listed-secret",
            "broken-secret",
            "basic-secret",
        ]
        assert [secret for secret in hidden if secret in log] == []


def test_errors_of_the_database_show_no_values(running: RunningNode) -> None:
    with pytest.raises(Exception, match="nowhere") as caught, running.node.database.reading() as connection:
        connection.execute(text("SELECT * FROM nowhere WHERE token = :token"), {"token": "a-secret"})
    assert "a-secret" not in str(caught.value)


def test_mistake_of_the_node_is_a_500_with_the_request_id_and_without_a_traceback(running: RunningNode) -> None:
    views, running.node.views = running.node.views, None  # type: ignore[assignment]  # as a bug would
    answer = running.anybody.get("/readyz", headers={"X-Request-Id": "find-me"})
    assert answer.status_code == 500
    assert answer.json() == {
        "type": "urn:inkgrove:error:request.internal",
        "title": "The node made a mistake; its log tells more under the id of the request.",
        "status": 500,
        "code": "request.internal",
        "detail": "something went wrong inside of the node",
        "request_id": "find-me",
    }
    running.node.views = views


# Settings


def test_settings_of_the_node_come_from_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "inkgrove.toml"
    file.write_text('[node]\nport = 1\nhost = "0.0.0.0"\nadministrators = ["a.ink"]\npeer_timeout_seconds = 3\n')
    environment = {"INKGROVE_NODE_PORT": "2", "INKGROVE_NODE_CORS_ORIGINS": "https://a.ink, https://b.ink"}
    settings = load({"node.port": 3, "node.host": None}, environment, file).settings.node
    assert (settings.host, settings.port, settings.administrators) == ("0.0.0.0", 3, ("a.ink",))
    assert settings.cors_origins == ("https://a.ink", "https://b.ink")
    assert settings.peer_timeout_seconds == 3.0
    assert load({}, environment, file).settings.node.port == 2


@pytest.mark.parametrize(
    ("environment", "error"),
    [
        ({"INKGROVE_NODE_PROT": "1"}, "settings.unknown"),
        ({"INKGROVE_NODE_PORT": "many"}, "settings.invalid"),
        ({"INKGROVE_NODE_REGISTRATION": "ajar"}, "settings.invalid"),
    ],
)
def test_unknown_or_wrong_setting_is_an_error(environment: dict[str, str], error: str) -> None:
    with raises(error):
        load({}, environment)

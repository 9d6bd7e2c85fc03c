"""Counts the modules in which a function runs on the way of a real request: a write until its row is shown; a share.

Starts two nodes and a pipeline as processes of their own, with a `sitecustomize` that notes each module of inkgrove
whose functions are called, in Spark's Python workers too. A module counts if it ran in every one of some requests, so
that what nodes do by themselves now and then does not; the first requests, which fill caches, are left out. Nothing of
inkgrove is imported here, and no module is named: `--python` takes the interpreter of another version to compare.
"""

import argparse
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from mmap import mmap
from pathlib import Path
from typing import Any

PASSWORD = "correct horse battery"
WARM_UP, ROUNDS = 3, 5
SECONDS = 600
TRACER = """
import mmap, os, sys, threading

def trace(folder):
    with open(os.path.join(folder, "phase"), "r+b") as file:
        phase = mmap.mmap(file.fileno(), 1)
    seen = set()

    def note(frame, event, _):
        if event == "call" and phase[0]:
            name = frame.f_code.co_filename
            if (phase[0], name) not in seen and frame.f_code.co_name != "<module>":
                seen.add((phase[0], name))
                if "/inkgrove/" in name:
                    with open(os.path.join(folder, f"{os.environ['COUNT_MODULES_ROLE']}.txt"), "a") as out:
                        out.write(f"{phase[0]} {name}\\\\n")

    threading.setprofile(note)
    sys.setprofile(note)

trace(os.environ["COUNT_MODULES_IN"])
""".replace("\\\\n", "\\n")


class Run:
    """Two nodes and a pipeline whose calls are noted, from `with` to its end."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder
        (folder / "sitecustomize.py").write_text(TRACER)
        (folder / "phase").write_bytes(b"\0")
        with (folder / "phase").open("r+b") as file:
            self._phase = mmap(file.fileno(), 1)
        self._stack = ExitStack()
        self._phases = 0
        self.ports = {"left.example": _free_port(), "right.example": _free_port()}

    def __enter__(self) -> "Run":
        for domain in self.ports:
            self._start(domain, "serve", "--port", str(self.ports[domain]), "--home", str(self.folder / domain))
        for domain in self.ports:
            _wait(lambda domain=domain: self.ask(domain, "GET", "/healthz"), f"{domain} to answer")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _environment(self, role: str) -> dict[str, str]:
        resolve = (f"{prefix}{name}=127.0.0.1:{port}" for name, port in self.ports.items() for prefix in ("", "*."))
        return {
            **os.environ,
            "PYTHONPATH": str(self.folder),
            "COUNT_MODULES_IN": str(self.folder),
            "COUNT_MODULES_ROLE": role,
            "INKGROVE_NODE_REGISTRATION": "open",
            "INKGROVE_NODE_DOMAINS": role,
            "INKGROVE_NODE_ADMINISTRATORS": f"admin.{role}",
            "INKGROVE_NODE_RESOLVE": ",".join(resolve),
            "INKGROVE_NODE_ENDPOINT": f"https://{role}",
        }

    def _start(self, role: str, *arguments: str) -> None:
        with (self.folder / f"{role}.log").open("wb") as log:
            command = [self.python, "-m", "inkgrove", *arguments]
            process = subprocess.Popen(command, env=self._environment(role), stdout=log, stderr=log)
        self._stack.callback(_stop, process)

    def start_pipeline(self, domain: str) -> None:
        """Begin to keep the views of a node."""
        self._start("pipeline", "materialise", "--follow", "--home", str(self.folder / domain))

    def ask(self, domain: str, method: str, path: str, body: object = None, token: str | None = None) -> Any:
        """The answer of a node as JSON; raises `OSError` if it refuses."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.ports[domain]}{path}"
        request = urllib.request.Request(url, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else None

    def join(self, domain: str, name: str) -> str:
        """Make an identity and sign it in; returns its token. An administrator is made by the command."""
        fqdn = f"{name}.{domain}"
        if name == "admin":
            command = [self.python, "-m", "inkgrove", "identity", "create", fqdn, "--home", str(self.folder / domain)]
            environment = self._environment(domain)
            subprocess.run(command, check=True, env=environment, input=f"{PASSWORD}\n".encode(), capture_output=True)
        else:
            self.ask(domain, "POST", "/identities", {"fqdn": fqdn, "password": PASSWORD})
        return str(self.ask(domain, "POST", "/sessions", {"fqdn": fqdn, "password": PASSWORD})["token"])

    @contextmanager
    def counted(self) -> Iterator[int]:
        """Note calls meanwhile, under a number of their own."""
        self._phases += 1
        self._phase[0] = self._phases
        try:
            yield self._phases
        finally:
            self._phase[0] = 0

    def next_phase(self) -> None:
        """What is noted from now on belongs to another number."""
        self._phases += 1
        self._phase[0] = self._phases

    def modules(self, role: str, rounds: list[set[int]]) -> set[str]:
        """The modules of which a function ran in each of the rounds; a round is one or more phases."""
        found: dict[int, set[str]] = defaultdict(set)
        for line in (self.folder / f"{role}.txt").read_text().splitlines():
            phase, name = line.split(" ", 1)
            found[int(phase)].add(name.rpartition("/inkgrove/")[2])
        return set.intersection(*(set().union(*(found[phase] for phase in phases)) for phases in rounds))

    def count_entries(self, domain: str) -> int:
        """How many entries a node holds, by its database, so that the node does nothing for the question."""
        with sqlite3.connect(f"file:{self.folder / domain / 'node.db'}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])


def main() -> int:
    """Play a write and a share, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter with the version to count")
    parser.add_argument("--list", action="store_true", help="name the modules")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Run(options.python, Path(folder)) as run:
        for title, modules in _count(run).items():
            print(f"{title}: {len(modules)} modules")
            if options.list:
                print("".join(f"    {name}\n" for name in sorted(modules)), end="")
    return 0


def _count(run: Run) -> dict[str, set[str]]:
    left, right = run.ports
    admin, jane, john = run.join(left, "admin"), run.join(left, "jane"), run.join(right, "john")
    schema = run.ask(left, "POST", "/schemas", {"name": "notes"}, jane)["schema"]
    fields = [{"text": {"action": "create", "type": "text"}}]
    run.ask(left, "POST", f"/schemas/{schema}/versions", {"fields": fields}, jane)
    run.ask(left, "PUT", f"/views/{schema}", token=admin)
    run.ask(right, "PUT", f"/me/senders/jane.{left}", token=john)
    run.start_pipeline(left)

    def write(number: int) -> str:
        body = {"schema": schema, "fields": {"text": f"note {number}"}}
        return str(run.ask(left, "POST", "/instances", body, jane)["instance"])

    def is_shown(instance: str) -> bool:
        rows = run.ask(left, "GET", f"/views/{schema}?sort=-_seq_num", token=jane)["rows"]
        return instance in json.dumps(rows)

    writes: list[set[int]] = []
    for number in range(WARM_UP + ROUNDS):
        with run.counted() as phase:
            instance = write(number)
            run.next_phase()  # what the node does from here on is for our own questions
            _wait(lambda instance=instance: is_shown(instance), "the row")
            time.sleep(1)  # the batch ends after its rows are shown
        writes.append({phase, phase + 1})
    writes = writes[WARM_UP:]
    node = run.modules(left, [{min(phases)} for phases in writes])
    pipeline = run.modules("pipeline", writes)

    shares: list[set[int]] = []
    for number in range(WARM_UP + ROUNDS):
        instance = write(number)
        before = run.count_entries(right)
        time.sleep(0.5)
        with run.counted() as phase:
            run.ask(left, "POST", f"/instances/{instance}/share", {"recipients": [f"john.{right}"]}, jane)
            _wait(lambda before=before: run.count_entries(right) > before, "the copy")
            time.sleep(0.2)  # the receipt goes back
        shares.append({phase})
    sender, receiver = run.modules(left, shares[WARM_UP:]), run.modules(right, shares[WARM_UP:])
    return {
        "write, node": node,
        "write, pipeline": pipeline,
        "write, together": node | pipeline,
        "share, sending node": sender,
        "share, receiving node": receiver,
        "share, together": sender | receiver,
    }


def _wait(is_so: Callable[[], Any], what: str) -> None:
    """Until it is so; a node that does not answer yet is asked again."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        try:
            if is_so() is not False:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise TimeoutError(f"waited in vain for {what}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())

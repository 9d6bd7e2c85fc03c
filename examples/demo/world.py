"""Where the story happens: nodes of different owners as processes of their own, and one pipeline for all."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from pyspark.sql import SparkSession

from examples.demo.ports import free_port
from inkgrove.client import Client, new_words
from inkgrove.pipeline.rot.policy import Limits, Policy
from inkgrove.pipeline.rot.run import Rot, RotReport
from inkgrove.pipeline.runtime.failures import explain
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.pipeline.views import Materialiser

PASSWORD = "correct horse battery"  # noqa: S105 - a demo has no secrets
READY_WITHIN = 60


class Refused(Exception):
    """A node's answer that is not what was asked for, with its stable code."""

    def __init__(self, answer: httpx.Response) -> None:
        problem = answer.json() if "json" in answer.headers.get("content-type", "") else {}
        self.code = str(problem.get("code", answer.status_code))
        super().__init__(f"{answer.status_code} {self.code}: {problem.get('detail') or problem.get('title', '')}")


@dataclass
class DemoNode:
    """`inkgrove serve` for the names below one domain."""

    domain: str
    home: Path
    port: int
    resolve: str
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin to serve."""
        self.home.mkdir(parents=True, exist_ok=True)
        settings = {
            "REGISTRATION": "open",
            "DOMAINS": self.domain,
            "ADMINISTRATORS": f"admin.{self.domain}",
            "RESOLVE": self.resolve,
            "ENDPOINT": f"https://{self.domain}",
            "REPLICATION_SECONDS": "2",
        }
        environment = {**os.environ, **{f"INKGROVE_NODE_{name}": value for name, value in settings.items()}}
        command = [sys.executable, "-m", "inkgrove", "serve", "--port", str(self.port), "--home", str(self.home)]
        with (self.home / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it answers."""
        until = time.monotonic() + READY_WITHIN
        while time.monotonic() < until and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/healthz", timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the node of {self.domain} does not start; see {self.home / 'serve.log'}")

    def stop(self) -> None:
        """Let it end as on any other day."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def die(self) -> None:
        """Let it end at once, as a machine does that breaks."""
        self.process.kill()
        self.process.wait()

    def add_peer(self, fqdn: str) -> None:
        """What the operator types: `inkgrove peer add`."""
        command = [sys.executable, "-m", "inkgrove", "peer", "add", fqdn, "--home", str(self.home)]
        subprocess.run(command, check=True, capture_output=True)

    def appoint(self, name: str) -> "Person":
        """What the operator types: `inkgrove identity create`, for a name that the settings list as administrator."""
        fqdn = f"{name}.{self.domain}"
        command = [sys.executable, "-m", "inkgrove", "identity", "create", fqdn, "--home", str(self.home), "--json"]
        settings = {**os.environ, "INKGROVE_NODE_ENDPOINT": f"https://{self.domain}"}
        made = subprocess.run(command, check=True, capture_output=True, env=settings, input=f"{PASSWORD}\n".encode())
        return self._sign_in(fqdn, json.loads(made.stdout)["id"])

    def join(self, name: str) -> "Person":
        """A new identity on this node, signed in."""
        fqdn = f"{name}.{self.domain}"
        anybody = Person(self, fqdn, "", "")
        made = anybody.ask("POST", "/identities", json={"fqdn": fqdn, "password": PASSWORD, "name": name.title()})
        return self._sign_in(fqdn, made["id"])

    def join_with_words(self, name: str) -> tuple["Person", str]:
        """A new identity on this node, signed in, and the words that are its first key, which the node never sees."""
        fqdn, words = f"{name}.{self.domain}", new_words()
        with Client(self.url) as client:
            made = client.sign_up(fqdn, PASSWORD, words, name=name.title(), endpoint=f"https://{self.domain}")
        return self._sign_in(fqdn, made.id), words

    def take_in(self, who: "Person", words: str, name: str, friend: "Person") -> "Person":
        """What somebody types on their own machine: `inkgrove identity recover --to`."""
        fqdn = f"{name}.{self.domain}"
        command = [sys.executable, "-m", "inkgrove", "identity", "recover", who.fqdn, "--to", self.url, "--as", fqdn]
        told = f"{PASSWORD}\n{words}\n".encode()
        done = subprocess.run([*command, "--friend", friend.fqdn], check=False, capture_output=True, input=told)
        if done.returncode != 0:
            raise RuntimeError(f"{who.fqdn} cannot come to {self.domain}: {done.stderr.decode()[-500:]}")
        return self._sign_in(fqdn, who.id)

    def _sign_in(self, fqdn: str, identity: str) -> "Person":
        anybody = Person(self, fqdn, "", "")
        token = anybody.ask("POST", "/sessions", json={"fqdn": fqdn, "password": PASSWORD})["token"]
        return Person(self, fqdn, identity, token)


class Person:
    """An identity that speaks HTTP to its own node."""

    def __init__(self, node: DemoNode, fqdn: str, identity: str, token: str) -> None:
        self.node, self.fqdn, self.id = node, fqdn, identity
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=node.url, headers=headers, timeout=60)

    def ask(self, method: str, path: str, **request: Any) -> Any:
        """The node's answer, or why it refused."""
        answer = self._http.request(method, path, **request)
        if answer.is_error:
            raise Refused(answer)
        return answer.json() if answer.content else None

    def rows(self, schema: str, at_least: str | None = None) -> list[dict[str, Any]]:
        """What this person sees of a view, once it has taken in a write."""
        params = {"sort": "_seq_num", **({"at_least": at_least} if at_least else {})}
        found: list[dict[str, Any]] = self.ask("GET", f"/views/{schema}", params=params)["rows"]
        return found


class Pipeline:
    """One Spark session that keeps the views of several nodes up to date."""

    def __init__(self, folder: Path, homes: list[Path]) -> None:
        self.folder, self.homes = folder, homes
        self.materialisers: list[Materialiser] = []
        self.queries: list[Any] = []
        self.spark: SparkSession | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._start, daemon=True)

    def start(self) -> Self:
        """Begin; Spark takes a few seconds, during which the story may go on."""
        self._thread.start()
        return self

    def _start(self) -> None:
        try:
            self.spark = start_session(self.folder / "spark-logs")
            for home in self.homes:
                self.add(home)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._failure = error

    def add(self, home: Path) -> None:
        """Keep the views of one more node up to date."""
        assert self.spark is not None
        materialiser = Materialiser(self.spark, str(home))
        self.materialisers.append(materialiser)
        self.queries.append(materialiser.follow(self.folder / "checkpoints" / home.name))

    def wait(self) -> None:
        """Until it runs."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def check(self) -> None:
        """Raise what ended a stream, if anything did: nobody has to wait for what cannot come."""
        for query in self.queries:
            if not query.isActive:
                raise explain(query.exception(), self.folder / "spark-logs")

    def let_rot(self, home: Path, keep_rows: int) -> RotReport:
        """What `inkgrove rot run` does, with a budget of rows."""
        assert self.spark is not None
        rot = Rot(self.spark, str(home), home, lambda: time.time_ns() // 1000)
        try:
            return rot.run(Policy(fungus="fifo", node=Limits(rows=keep_rows)))
        finally:
            rot.close()

    def stop(self) -> None:
        """End both streams and Spark."""
        self._thread.join()
        for query in self.queries:
            query.stop()
        for materialiser in self.materialisers:
            materialiser.close()
        if self.spark is not None:
            self.spark.stop()


@dataclass(frozen=True, slots=True)
class World:
    """Everything that runs."""

    haiku: DemoNode
    sloth: DemoNode
    poem: DemoNode
    pipeline: Pipeline


@contextmanager
def running(folder: Path) -> Iterator[World]:
    """Three nodes, and the pipeline of the first two, from `with` to its end."""
    ports = {"haiku.ink": free_port(), "sloth.example": free_port(), "poem.example": free_port()}
    resolve = ",".join(f"{prefix}{name}=127.0.0.1:{port}" for name, port in ports.items() for prefix in ("", "*."))
    nodes = [DemoNode(name, folder / name, port, resolve) for name, port in ports.items()]
    with ExitStack() as stack:
        for node in nodes:
            node.start()
            stack.callback(node.stop)
        for node in nodes:
            node.wait()
        pipeline = Pipeline(folder, [node.home for node in nodes[:2]]).start()
        stack.callback(pipeline.stop)
        haiku, sloth, poem = nodes
        yield World(haiku, sloth, poem, pipeline)

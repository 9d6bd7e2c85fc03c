"""What every route of a node costs at the worst that a stranger may send: processor, memory, and who waits meanwhile.

A real node process on loopback with a filled store. Each route gets its worst inputs (`costs_inputs`), alone and a
hundred at once, while `GET /me` is asked all the time. Routes come from the application itself: one without an input
fails the run. `python -m bench costs [WORDS]` prints the table, or what of it has one of the words; the whole table is
written to `bench/costs.md`.
"""

import asyncio
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi.routing import APIRoute
from rich.console import Console

from bench.costs_inputs import CBOR, Attack, Sent, Worst, junk_batch
from bench.costs_store import HOST, Filled, Stranger, fill, known
from examples.demo.ports import free_port
from inkgrove.api.app import ROUTERS as API
from inkgrove.core.limits import MAX_FIELDS
from inkgrove.pages.site import ROUTERS as PAGES
from inkgrove.signature_process import FEW

MANY, SECONDS = 100, 4.0
"""How many are sent at once, and how long they are waited for."""
MOST_SECONDS, MOST_MB, MOST_MB_OF_MANY, MOST_WAIT = 0.2, 64, 300, 1.0
GROWN_MB = 40
"""A node that holds so much more than at its start is started anew: what it has got hides what it gets next."""
TABLE = Path(__file__).parent / "costs.md"
_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attack took."""

    attack: Attack
    bytes_in: int
    status: str
    seconds: float
    """Of processor, for one request: the most of three."""
    mb: float
    """Above what the node had before, for one request."""
    mb_of_many: float
    answered: int
    wait: float
    """The longest that `GET /me` took while the hundred ran."""

    @property
    def missed(self) -> list[str]:
        """Which targets it misses."""
        return [
            word
            for word, is_missed in (
                ("processor", self.seconds > MOST_SECONDS),
                ("memory", self.mb > MOST_MB),
                ("memory of 100", self.mb_of_many > MOST_MB_OF_MANY),
                ("GET /me", self.wait > MOST_WAIT),
            )
            if is_missed
        ]


def routes() -> list[str]:
    """Every route of a node, pages included."""
    found = ["GET /openapi.json"]
    for router in (*API, *PAGES):
        for route in router.routes:
            if isinstance(route, APIRoute):
                found += [f"{method} {route.path_format}" for method in sorted(route.methods or ())]
    return found


class Victim:
    """The node's process, started anew whenever it has grown."""

    def __init__(self, filled: Filled, stranger_port: int) -> None:
        self._filled = filled
        self._environment = {**os.environ, "INKGROVE_NODE_LOG_LEVEL": "error"}
        settings = known(resolve=f"*.evil.ink=127.0.0.1:{stranger_port}", domains="haiku.ink", replication_seconds="0")
        self._environment |= {f"INKGROVE_NODE_{name.upper()}": value for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self._at_start = 0.0
        self.port = 0

    def start(self) -> None:
        """Start it, unless it runs and has hardly grown."""
        if self._process is not None and self.memory() - self._at_start < GROWN_MB and self._process.poll() is None:
            return
        self.stop()
        self.port = free_port()
        command = [
            sys.executable,
            "-m",
            "inkgrove",
            "serve",
            "--home",
            str(self._filled.home),
            "--port",
            str(self.port),
        ]
        self._process = subprocess.Popen(command, env=self._environment)
        until = time.monotonic() + 60
        while True:
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{self.port}/healthz", timeout=10).status_code == 200:
                    break
            if time.monotonic() > until:
                raise TimeoutError("the node does not start")
            time.sleep(0.05)
        self._warm()
        self._at_start = self.memory()

    def _warm(self) -> None:
        """Let every route load what it needs, with requests that ask nothing, and the signature process start."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30) as client:
            for route in routes():
                method, _, path = route.partition(" ")
                if not path.endswith("/changes"):
                    target = "/".join("x" if "{" in part else part for part in path.split("/"))
                    client.request(method, target, json={} if method in ("POST", "PUT", "PATCH") else None)
        token = {"authorization": f"Bearer {self._filled.token}"}
        # A node starts it once, with the first large batch: no request pays for it again.
        junk = Sent("/entries", {**token, "content-type": CBOR}, junk_batch(FEW))
        asyncio.run(send_many(self.port, Attack("POST /entries", "", lambda _: junk), [junk]))
        # All threads that ever answer, each with its connections.
        me = Attack("GET /me", "", lambda _: Sent("/me", token))
        asyncio.run(send_many(self.port, me, [me.make(number) for number in range(2 * MANY)]))

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _tree(self) -> list[int]:
        assert self._process is not None
        found = [self._process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += map(int, task.read_text().split())
        return found

    def processor(self) -> float:
        """Seconds of processor that it and its processes have taken."""
        ticks = 0
        for pid in self._tree():
            with suppress(OSError):
                parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(parts[11]) + int(parts[12])
        return ticks / _TICKS

    def memory(self, *, peak: bool = False) -> float:
        """MB that it and its processes hold, or held at most since `forget_peak`."""
        return sum(_status(pid, "VmHWM" if peak else "VmRSS") for pid in self._tree()) / 1024

    def forget_peak(self) -> None:
        """Begin to look for the most anew."""
        for pid in self._tree():
            with suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status(pid: int, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
    return 0


@contextmanager
def asking(port: int, token: str) -> Iterator[list[float]]:
    """Ask `GET /me` all the time; how long each answer took."""
    seconds: list[float] = []
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=8)
                connection.request("GET", "/me", headers={"Authorization": f"Bearer {token}"})
                connection.getresponse().read()
                connection.close()
            seconds.append(time.perf_counter() - began)
            is_over.wait(0.02)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield seconds
    finally:
        is_over.set()
        thread.join()


async def send(port: int, method: str, sent: Sent, *, is_stream: bool) -> str:
    """Send a request over a connection of its own and read what comes; the status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    try:
        headers = {"host": HOST, "content-length": str(len(sent.body)), "connection": "close", **sent.headers}
        lines = [f"{method} {sent.target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + sent.body)
        with suppress(ConnectionError):
            await writer.drain()
        status = (await reader.readline()).split(b" ")
        if is_stream:
            await asyncio.sleep(1)
        else:
            while await reader.read(2**18):
                pass
        return status[1].decode() if len(status) > 1 else "-"
    except ConnectionError:
        return "-"
    finally:
        writer.close()


async def send_many(port: int, attack: Attack, many: Sequence[Sent]) -> list[str]:
    """Send them all at once; the statuses of those that were answered in time."""
    method = attack.route.partition(" ")[0]
    tasks = [asyncio.create_task(send(port, method, sent, is_stream=attack.is_stream)) for sent in many]
    done, late = await asyncio.wait(tasks, timeout=SECONDS)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    return [task.result() for task in done if task.exception() is None]


def measure(victim: Victim, filled: Filled, attack: Attack) -> Cost:
    """One request three times, then a hundred at once."""
    victim.start()
    before = victim.memory()
    victim.forget_peak()
    method = attack.route.partition(" ")[0]
    seconds, status, sent, first_mb = [], "", attack.make(0), 0.0
    for number in range(3):
        sent = attack.make(number)
        began = victim.processor()
        status = asyncio.run(send(victim.port, method, sent, is_stream=attack.is_stream))
        time.sleep(0.05)
        seconds.append(victim.processor() - began)
        first_mb = first_mb or max(0.0, victim.memory(peak=True) - before)
    many = [attack.make(number) for number in range(3, 3 + MANY)]
    with asking(victim.port, filled.token) as waits:
        statuses = asyncio.run(send_many(victim.port, attack, many))
    size = len(sent.body) + len(sent.target) + sum(len(name) + len(value) + 4 for name, value in sent.headers.items())
    told = "/".join(sorted({status, *statuses}))
    most = max(0.0, victim.memory(peak=True) - before)
    cost = Cost(attack, size, told, max(seconds), first_mb, most, len(statuses), max(waits, default=0.0))
    if len(statuses) < MANY:
        victim.stop()  # what is under way would be counted for the next
    return cost


def costs(words: Sequence[str] = ()) -> Iterator[Cost]:
    """Measure every route, or those that have one of the words."""
    with tempfile.TemporaryDirectory() as folder:
        kept = os.environ.get("INKGROVE_BENCH_COSTS")
        filled = _filled(Path(kept or folder) / "home")
        (Path(folder) / "stranger").mkdir()
        stranger = Stranger(Path(folder) / "stranger")
        with stranger.answering() as port:
            victim = Victim(filled, port)
            try:
                victim.start()
                worst = Worst(filled, stranger, _own_schema(victim.port, filled))
                attacks = list(worst.attacks())
                missing = set(routes()) - {attack.route for attack in attacks}
                unknown = {attack.route for attack in attacks} - set(routes())
                if missing or unknown:
                    raise SystemExit(f"no input for {sorted(missing)}; no such route: {sorted(unknown)}")
                for attack in attacks:
                    if not words or any(word in f"{attack.route} {attack.what}" for word in words):
                        yield measure(victim, filled, attack)
            finally:
                victim.stop()
                stranger.node.close()


def _filled(home: Path) -> Filled:
    """A filled store; with INKGROVE_BENCH_COSTS a folder to keep it in, for the next time."""
    import pickle  # noqa: PLC0415

    facts = home.with_suffix(".facts")
    if not facts.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        facts.write_bytes(pickle.dumps(fill(home)))
    found: Filled = pickle.loads(facts.read_bytes())
    return found


def _own_schema(port: int, filled: Filled) -> str:
    """A schema of the one who has just been registered, of 256 fields."""
    headers = {"Authorization": f"Bearer {filled.token}"}
    answer = httpx.post(f"http://127.0.0.1:{port}/schemas", json={"name": "own"}, headers=headers, timeout=60)
    answer.raise_for_status()
    schema: str = answer.json()["schema"]
    fields = [{f"f{number}": {"action": "create", "type": "varchar"}} for number in range(MAX_FIELDS)]
    address = f"http://127.0.0.1:{port}/schemas/{schema}/versions"
    httpx.post(address, json={"fields": fields}, headers=headers, timeout=60).raise_for_status()
    return schema


def main(words: Sequence[str]) -> None:
    """Print the table; write it if it is whole."""
    console = Console(width=180)
    found = []
    began = time.monotonic()
    console.print(
        f"{'route':52} {'input':32} {'bytes':>11} {'cpu':>6} {'MB':>6} {'100 MB':>7} {'of 100':>6} {'GET /me':>7}"
    )
    for cost in costs(words):
        found.append(cost)
        numbers = f"{cost.bytes_in:>11,} {cost.seconds:>6.2f} {cost.mb:>6.0f} {cost.mb_of_many:>7.0f}"
        line = f"{cost.attack.route:52} {cost.attack.what:32} {numbers} {cost.answered:>6} {cost.wait:>6.2f}s"
        console.print(f"{line} {cost.status} {', '.join(cost.missed)}", highlight=False, markup=False)
    minutes = (time.monotonic() - began) / 60
    missed = sum(bool(cost.missed) for cost in found)
    console.print(f"{len(found)} inputs in {minutes:.1f} minutes; {missed} miss a target")
    if not words:
        TABLE.write_text(render(found))
        console.print(f"written to {TABLE.relative_to(Path.cwd())}")


def render(found: Sequence[Cost]) -> str:
    """The table as a page."""
    lines = [
        "# What every route costs a stranger",
        "",
        "Made by `python -m bench costs`: a node process with a filled store, and to each route its worst input.",
        f"Targets: {MOST_SECONDS} s of processor and {MOST_MB} MB for one request, {MOST_MB_OF_MANY} MB for {MANY} at",
        f"once, and `GET /me` within {MOST_WAIT:.0f} s meanwhile. A figure in bold misses its target.",
        f"`of 100`: how many were answered within {SECONDS:.0f} s.",
        "",
        "| route | input | bytes in | processor, s | MB | MB of 100 | of 100 | `GET /me`, s | status |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for cost in found:
        marks = [
            _cell(f"{cost.seconds:.2f}", "processor" in cost.missed),
            _cell(f"{cost.mb:.0f}", "memory" in cost.missed),
            _cell(f"{cost.mb_of_many:.0f}", "memory of 100" in cost.missed),
            str(cost.answered),
            _cell(f"{cost.wait:.2f}", "GET /me" in cost.missed),
        ]
        named = f"`{cost.attack.route}` | {cost.attack.what} | {cost.bytes_in:,}"
        lines.append(f"| {named} | {' | '.join(marks)} | {cost.status.replace('/', ', ')} |")
    return "\n".join(lines) + "\n"


def _cell(text: str, is_missed: bool) -> str:
    return f"**{text}**" if is_missed else text


if __name__ == "__main__":
    main(sys.argv[1:])

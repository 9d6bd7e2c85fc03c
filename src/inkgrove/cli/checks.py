"""The checks of `inkgrove doctor`: each says what it found, whether that is right, and what to do if not."""

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx

from inkgrove.core.errors import AlreadyRunning, InkgroveError
from inkgrove.federation.peers import find_target, parse_resolve
from inkgrove.node.runtime import find_reason, open_vault
from inkgrove.node.settings import NodeSettings
from inkgrove.settings import Settings
from inkgrove.store.db import ExclusiveWork, start_pipeline_run
from inkgrove.store.logs import (
    NEWEST,
    OLDEST,
    LogStore,
    newest_offset,
    open_store,
    read_logs,
    read_registered,
    read_revision,
)
from inkgrove.store.node import list_identities, some_sealed_keys
from inkgrove.store.views import open_views

_GIB: Final = 1024**3
_LEAST_DISK: Final = _GIB
_BESIDE_SPARK: Final = _GIB // 2
"""What Python, the node and the system need beside the heap of the JVM."""
_LOOKUP_SECONDS: Final = 5.0
_BUILT: Final = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
"""No clock that is right shows an earlier time."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check; `advice` says what to do next if it is wrong."""

    check: str
    is_right: bool
    found: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Installation:
    """What is examined: the settings in effect, the home directory, and the directory or URL of the store."""

    settings: Settings
    home: Path
    store_location: str

    @property
    def has_store(self) -> bool:
        """Whether there is a store to open; examining makes none."""
        return self.settings.store is not None or (self.home / "node.db").exists()


def examine(installation: Installation, *, with_spark: bool) -> Iterator[CheckResult]:
    """Run every check in turn and yield the results; those of the store only if it can be opened."""
    checks: list[Callable[[Installation], Iterator[CheckResult]]] = [_java, _memory, _disk, _clock, _port, _store]
    checks.append(_start_spark if with_spark else _spark)
    for check in checks:
        yield from _perform(check, installation)
    if _is_open(installation):
        for check in (_vault, _restored, _pipeline, _names):
            yield from _perform(check, installation)


def _perform(
    check: Callable[[Installation], Iterator[CheckResult]], installation: Installation
) -> Iterator[CheckResult]:
    try:
        yield from check(installation)
    except InkgroveError as error:
        yield _refusal(check.__name__.split("_")[-1], error)


def _refusal(check: str, error: InkgroveError) -> CheckResult:
    """Turn an error into a result, with its advice apart from its message if the error has both."""
    advice = str(error.data.get("advice", f"see {error.code} in docs/errors.md"))
    found = error.message.removesuffix(f": {advice}")
    return CheckResult(check, False, f"{found} [{error.code}]", advice)


def _is_open(installation: Installation) -> bool:
    """Whether the store is there and of the newest revision; `_store` says what is wrong if not."""
    try:
        return installation.has_store and read_revision(installation.store_location) == NEWEST
    except InkgroveError:
        return False


def _java(_: Installation) -> Iterator[CheckResult]:
    from inkgrove.pipeline.runtime.java import find_java

    path, version = find_java()
    yield CheckResult("java", True, f"version {version}, {path}")


def _memory(installation: Installation) -> Iterator[CheckResult]:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = parse_size(installation.settings.spark.memory) + _BESIDE_SPARK
    found = f"{free / _GIB:.1f} GiB available, {wanted / _GIB:.1f} GiB wanted"
    is_enough = free >= wanted
    yield CheckResult("memory", is_enough, found, None if is_enough else "free some, or lower the setting spark.memory")


def _disk(installation: Installation) -> Iterator[CheckResult]:
    disks = {"home": nearest(installation.home), "Spark's files": Path(tempfile.gettempdir())}
    for what, path in disks.items():
        free = shutil.disk_usage(path).free
        is_enough = free >= _LEAST_DISK
        advice = None if is_enough else "free some space: at least 1 GiB, more for large views"
        yield CheckResult("disk", is_enough, f"{free / _GIB:.1f} GiB free for {what} ({path})", advice)


def _store(installation: Installation) -> Iterator[CheckResult]:
    if not installation.has_store:
        yield CheckResult("store", True, f"none in {installation.home} yet; `inkgrove up` makes one")
        return
    revision = read_revision(installation.store_location)
    if revision is None or OLDEST <= revision < NEWEST:
        found = f"revision {revision or 'none'}; the next command that opens it brings it to {NEWEST}"
        yield CheckResult("store", True, found)
        return
    with open_store(installation.store_location) as store:
        kind = "PostgreSQL" if store.database.is_postgresql else "SQLite"
        count = sum(state.held for state in store.read(read_logs).values())
        yield CheckResult("store", True, f"{kind}, revision {NEWEST}, {count:,} entries")


def _vault(installation: Installation) -> Iterator[CheckResult]:
    file = Path(installation.settings.node.vault_key_file or installation.home / "vault.key")
    with open_store(installation.store_location) as store:
        sealed = store.database.read(some_sealed_keys)
    if not sealed:
        yield CheckResult("vault", True, "the node keeps no keys yet")
        return
    open_vault(file, sealed)
    yield CheckResult("vault", True, f"{file} opens the keys that the node keeps")


def _restored(installation: Installation) -> Iterator[CheckResult]:
    with open_store(installation.store_location) as store:
        reason = find_reason(store.database, installation.home)
    if reason is None:
        yield CheckResult("signing", True, "the database is as new as it was")
    else:
        advice = "let the node run: it asks others for what it lacks; inkgrove resume says whom it waits for"
        yield CheckResult("signing", False, f"nothing is signed: {reason}", advice)


def _pipeline(installation: Installation) -> Iterator[CheckResult]:
    with open_store(installation.store_location) as store:
        newest, is_needed = store.read(newest_offset).position, bool(store.read(read_registered))
    views = open_views(installation.store_location)
    try:
        behind = max(0, newest - views.progress()[1].position)
        run = start_pipeline_run(views.database)
        try:
            run.begin(ExclusiveWork.STREAM)
            is_running = False
        except AlreadyRunning:
            is_running = True
        finally:
            run.close()
    finally:
        views.close()
    how_far = f"views are {behind:,} positions behind" if behind else "views are up to date"
    if not is_needed:
        how_far = "no schema is registered"
    is_right = is_running or not behind or not is_needed
    advice = None if is_right else "start it: inkgrove up, inkgrove materialise --follow, or --once to catch up"
    yield CheckResult("pipeline", is_right, f"{'running' if is_running else 'not running'}, {how_far}", advice)


def _clock(installation: Installation) -> Iterator[CheckResult]:
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    advice = "set the clock, and let NTP keep it: other nodes refuse requests that are a minute off"
    file = installation.home / "node.db"
    written = file.stat().st_mtime if file.exists() else _BUILT
    if now < max(written - 60, _BUILT):
        last = datetime.fromtimestamp(max(written, _BUILT), UTC).strftime("%Y-%m-%d %H:%M")
        yield CheckResult("clock", False, f"{shown}, and the store was written to at {last}", advice)
    else:
        yield CheckResult("clock", True, shown)


def _names(installation: Installation) -> Iterator[CheckResult]:
    with open_store(installation.store_location) as store:
        hosted = _hosted(store)
    targets = parse_resolve(installation.settings.node.resolve)
    with ThreadPoolExecutor(16) as pool:
        looked_up = {name: pool.submit(_addresses, name) for name in hosted if find_target(targets, name) is None}
        for name in hosted:
            target = find_target(targets, name)
            if target is not None:
                yield CheckResult("names", True, f"{name} stands for {target.address}:{target.port} (node.resolve)")
                continue
            try:
                found = looked_up[name].result(_LOOKUP_SECONDS)
            except TimeoutError:
                found = []
            advice = "let DNS lead it to this node; for development, set node.resolve"
            text = ", ".join(found) or "no address"
            yield CheckResult("names", bool(found), f"{name}: {text}", None if found else advice)


def _hosted(store: LogStore) -> list[str]:
    return sorted(item.fqdn for item in store.database.read(list_identities))


def _addresses(name: str) -> list[str]:
    try:
        return sorted({str(item[4][0]) for item in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def _port(installation: Installation) -> Iterator[CheckResult]:
    settings = installation.settings.node
    where = f"{settings.host} port {settings.port}"
    try:
        with socket.create_server((settings.host, settings.port)):
            yield CheckResult("port", True, f"{where} is free")
    except OSError as error:
        if _is_node(settings):
            yield CheckResult("port", True, f"a node answers on {where}")
        else:
            advice = "end what listens there, or choose another with --port or the setting node.port"
            yield CheckResult("port", False, f"{where}: {os.strerror(error.errno or 0)}", advice)


def _is_node(settings: NodeSettings) -> bool:
    try:
        answer = httpx.get(f"http://{settings.host}:{settings.port}/healthz", timeout=5)
        return answer.status_code == 200 and answer.json() == {"status": "ok"}
    except (httpx.HTTPError, ValueError):
        return False


def _spark(_: Installation) -> Iterator[CheckResult]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("pyspark")
    except PackageNotFoundError:
        yield CheckResult(
            "spark", False, "the package pyspark is missing", "install Inkgrove with its packages: make setup"
        )
        return
    is_right = found.startswith("4.3")
    advice = None if is_right else "install the pinned packages: make setup"
    yield CheckResult("spark", is_right, f"version {found}; --spark tries to start it", advice)


def _start_spark(installation: Installation) -> Iterator[CheckResult]:
    from inkgrove.pipeline.runtime.session import session_for

    spark, begun = installation.settings.spark, time.monotonic()
    with tempfile.TemporaryDirectory() as logs, session_for(Path(logs), spark.properties(), spark.python) as session:
        count = session.range(1000).count()
        seconds = time.monotonic() - begun
        found = f"version {session.version} on {spark.master} counted to {count:,} after {seconds:.0f} s"
    yield CheckResult("spark", count == 1000, found)


def nearest(path: Path) -> Path:
    """Return the path itself, or the closest directory above it that exists."""
    path = path.resolve()
    return path if path.exists() else nearest(path.parent)


def parse_size(text: str) -> int:
    """Parse the size of a heap as Java writes it, such as `1g`, and return bytes."""
    units = {"k": 1024, "m": 1024**2, "g": _GIB, "t": 1024 * _GIB}
    number, unit = text.strip().lower().removesuffix("b"), 1
    if number[-1:] in units:
        number, unit = number[:-1], units[number[-1]]
    return int(float(number) * unit)

"""The file of a person: export and import against `inkgrove import` of the same entries, and the memory of both.

The person has INKGROVE_BENCH_ENTRIES entries in ten logs and INKGROVE_BENCH_BLOB_BYTES of blobs (64 MiB unless set; the
run of record has 1 GiB). Rates count entries; those with blobs are not compared, they depend on the disk.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.archive import write_archive
from bench.harness import Row
from bench.pipeline import ENTRIES
from bench.stores import PERSON_LOGS, PERSON_SETTINGS, make_person
from inkgrove.core import IdentityId
from inkgrove.node.person_file import import_person, write_person_file
from inkgrove.node.runtime import Node
from inkgrove.pipeline.archive import import_archive
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.store.logs import open_store

ROUNDS = int(os.environ.get("INKGROVE_BENCH_ROUNDS", "3"))
BLOB_BYTES = int(os.environ.get("INKGROVE_BENCH_BLOB_BYTES", str(64 << 20)))


def _export(home: Path, identity: IdentityId, target: Path) -> float:
    node = Node(home, PERSON_SETTINGS, home=home)
    start = perf_counter()
    with target.open("wb") as file:
        write_person_file(node, identity, file)
    seconds = perf_counter() - start
    node.close()
    return seconds


def _import(home: Path, file: Path) -> float:
    node = Node(home, PERSON_SETTINGS, home=home)
    start = perf_counter()
    report = import_person(node, file)
    seconds = perf_counter() - start
    assert not report.refused, report
    node.close()
    shutil.rmtree(home)
    return seconds


_PROGRAM = """
import sys
from pathlib import Path
from inkgrove.cli.main import main
sys.argv = ["inkgrove", *sys.argv[2:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    status = Path("/proc/self/status").read_text()
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), file=sys.stderr)
"""


def _peak(*arguments: str) -> int:
    """The most memory of a command, in bytes, without the processes that it starts."""
    command = [sys.executable, "-c", _PROGRAM, "-", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stderr.splitlines()[-1]) * 1024


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=".cache") as name:
        folder = Path(name)
        identity = make_person(folder / "person", ENTRIES)
        archive, file = folder / "archive.parquet", folder / "jane.person"
        write_archive(folder / "person", archive)
        spark = start_session(folder / "logs", {"spark.master": f"local[{os.cpu_count()}]"})

        def take(number: int) -> float:
            with open_store(folder / f"full{number}") as store:
                start = perf_counter()
                import_archive(spark, store, archive, folder / "rejected.parquet", lambda _: None)
                seconds = perf_counter() - start
            shutil.rmtree(folder / f"full{number}")
            return seconds

        take(0)
        exported, imported, taken = [], [], []
        for number in range(1, ROUNDS + 1):
            exported.append(ENTRIES / _export(folder / "person", identity, file))
            taken.append(ENTRIES / take(number))
            imported.append(ENTRIES / _import(folder / f"new{number}", file))
        spark.stop()
        note = f"{ENTRIES:,} entries of one person in {PERSON_LOGS} logs"
        for what, rates, target in (("person: import", imported, 0.8), ("person: export", exported, 0.8)):
            ratio = median(ours / base for ours, base in zip(rates, taken, strict=True))
            is_met = ratio >= target
            yield Row(what, median(rates), "inkgrove import", median(taken), ratio, f">= {target:.2f}", is_met, note)
        yield from _memory(folder)


def _memory(folder: Path) -> Iterator[Row]:
    """How much more memory a large person takes than a small one."""
    peaks = {}
    for size, entries, blobs in (("small", ENTRIES // 20, 0), ("large", ENTRIES, BLOB_BYTES)):
        home, file = folder / size, folder / f"{size}.person"
        make_person(home, entries, blobs)
        # The most that a transaction gathers is in both.
        out = _peak("identity", "export", "jane.haiku.ink", str(file), "--home", str(home))
        into = _peak("identity", "import", str(file), "--home", str(folder / f"{size}-new"))
        peaks[size] = out, into
    for what, number in (("export", 0), ("import", 1)):
        large, small = peaks["large"][number], peaks["small"][number]
        ratio = large / small
        note = f"{large >> 20} MiB for {ENTRIES:,} entries and {BLOB_BYTES >> 20} MiB of blobs"
        yield Row(f"person: memory of {what}", large, "a twentieth of it", small, ratio, "<= 1.50", ratio <= 1.5, note)

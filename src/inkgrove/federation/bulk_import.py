"""Catching up with very much: it is put into an archive, which Spark imports in a process of its own.

docs/protocol.md section 8. The process that serves requests only fetches and writes a file. What has been imported
counts, so whoever is interrupted goes on with the rest.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from inkgrove.federation.errors import ImportFailed
from inkgrove.federation.replicating import Taken
from inkgrove.messages.replication import Entries
from inkgrove.node.node import Node
from inkgrove.store.prepare import LogKey

MOST_IN_ARCHIVE: Final = 500_000
"""How many entries are imported at a time."""
_TAIL: Final = 2_000


class BulkIntake:
    """Gathers what is fetched in archives and imports each."""

    def __init__(self, node: Node, taken: Taken, folder: Path, most: int = MOST_IN_ARCHIVE) -> None:
        self._node = node
        self._taken = taken
        self._folder = folder
        self._most = most
        self._archive = folder / "archive.parquet"
        self._writer: Any = None
        self._count = 0

    async def use(self, answer: Entries, _asked: set[LogKey]) -> None:
        """Put a batch into the archive; whatever it is, the import verifies it."""
        await asyncio.to_thread(self._write, answer)
        if self._count >= self._most:
            await self.finish()

    def _write(self, answer: Entries) -> None:
        # Imported here: a node that never needs it starts faster.
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        schema = pa.schema([("entry", pa.binary()), ("payload", pa.binary())])
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._archive, schema)
        if answer.entries:
            encoded, payloads = zip(*answer.entries, strict=True)
            self._writer.write_table(pa.table({"entry": list(encoded), "payload": list(payloads)}, schema))
        self._count += len(answer.entries)

    async def finish(self) -> None:
        """Import what has gathered."""
        if self._writer is None:
            return
        await asyncio.to_thread(self._writer.close)
        self._writer = None
        count, self._count = self._count, 0
        report = await import_archive(self._node, self._archive)
        self._archive.unlink()
        self._taken.received += count
        self._taken.stored += report["appended"]
        self._taken.refused.update(report["rejected"])

    async def close(self) -> None:
        """Throw away what was not imported."""
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
            self._writer = None


async def import_archive(node: Node, archive: Path) -> dict[str, Any]:
    """Run `inkgrove import` on an archive and wait for its report."""
    rejects = archive.with_name("rejected.parquet")
    command = ["import", str(archive), "--rejects", str(rejects), "--home", str(node.home.resolve()), "--json"]
    # The address of a database can hold a password: others see arguments, not the environment.
    place = node.store.place
    environment = {**os.environ, **({"INKGROVE_STORE": place} if "://" in place else {})}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "inkgrove", *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    try:
        report: dict[str, Any] = json.loads(out.decode().strip().splitlines()[-1])
        return {"appended": int(report["appended"]), "rejected": dict(report["rejected"])}
    except (ValueError, IndexError, KeyError, TypeError) as error:
        said = err.decode(errors="replace")[-_TAIL:].strip()
        text = f"the import ended with code {process.returncode}: {said}"
        raise ImportFailed(text, exit_code=process.returncode) from error

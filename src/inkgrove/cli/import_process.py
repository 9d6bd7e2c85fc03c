"""Imports of archives with Spark: in this process, or in one of their own for a node that replicates very much.

`SparkImporter` starts `python -m inkgrove.cli.import_process`, writes an `ImportRequest` as JSON to its standard input,
waits for its end, and reads the `ImportReport` as JSON from the file that the request names. Standard output and error
are for people; nothing is read from them but the reason of a failure.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inkgrove.core.errors import InkgroveError
from inkgrove.federation.errors import FederationError
from inkgrove.federation.replication import ImportedArchive
from inkgrove.node.identity import apply_identity_logs_since
from inkgrove.node.runtime import Node
from inkgrove.settings import SparkSettings
from inkgrove.store.logs import newest_offset, open_store

if TYPE_CHECKING:
    from inkgrove.pipeline.archive import ImportReport
    from inkgrove.pipeline.runtime.progress import OnProgress

_MOST_REASON: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What the process is to import, where to, and with which Spark."""

    archive: str
    rejects: str
    """Where refused entries are written, as Parquet."""
    report: str
    """Where the report is written, as JSON."""
    store: str
    """A directory or the URL of a database, which can hold a password: others see arguments, not standard input."""
    spark_logs: str
    spark_properties: Mapping[str, str]
    spark_python: str | None


@dataclass(frozen=True, slots=True)
class SparkImporter:
    """Imports archives in a process of its own, with Spark as the settings say (an `ArchiveImporter`)."""

    spark: SparkSettings

    async def __call__(self, node: Node, archive: Path) -> ImportedArchive:
        """Import `archive` into the node's store; raises `federation.import-failed` if no report comes."""
        report = archive.with_name("report.json")
        report.unlink(missing_ok=True)
        request = ImportRequest(
            archive=str(archive),
            rejects=str(archive.with_name("rejected.parquet")),
            report=str(report),
            store=str(node.store.place),
            spark_logs=str(node.home.resolve() / "spark-logs"),
            spark_properties=self.spark.properties(),
            spark_python=self.spark.python,
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "inkgrove.cli.import_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            _, told = await process.communicate(json.dumps(asdict(request)).encode())
        except asyncio.CancelledError:
            process.terminate()
            await process.wait()
            raise
        try:
            facts = json.loads(report.read_bytes())
        except FileNotFoundError as error:
            reason = told.decode(errors="replace")[-_MOST_REASON:].strip()
            text = f"the import ended with code {process.returncode}: {reason}"
            raise FederationError("federation.import-failed", text, exit_code=process.returncode) from error
        return ImportedArchive(facts["appended"], facts["rejected"])


def find_importer(spark: SparkSettings) -> SparkImporter | None:
    """Return an importer if Spark is installed: a node without the extra `pipeline` replicates in batches only."""
    return SparkImporter(spark) if find_spec("pyspark") is not None else None


def import_into_store(
    spark: Any, store: str, archive: Path, rejects: Path, on_progress: "OnProgress"
) -> "ImportReport":
    """Import an archive into the store at a directory or URL, and let what it says of keys count; return the report."""
    from inkgrove.pipeline.archive import import_archive

    with open_store(store) as logs:
        before = logs.read(newest_offset)
        try:
            return import_archive(spark, logs, archive, rejects, on_progress)
        finally:
            # An interrupted import has taken entries in as well.
            logs.database.write(lambda connection: apply_identity_logs_since(connection, before))


def main() -> None:
    """Do what the request on standard input says; an error goes to standard error, with exit code 1 and no report."""
    from inkgrove.pipeline.runtime.progress import tell_nobody
    from inkgrove.pipeline.runtime.session import session_for

    request = ImportRequest(**json.load(sys.stdin))
    try:
        with session_for(Path(request.spark_logs), request.spark_properties, request.spark_python) as spark:
            archive, rejects = Path(request.archive), Path(request.rejects)
            report = import_into_store(spark, request.store, archive, rejects, tell_nobody)
    except InkgroveError as error:
        sys.exit(f"error: {error.message} [{error.code}]")
    finished = Path(f"{request.report}.part")
    finished.write_text(json.dumps(asdict(report)))
    finished.replace(request.report)


if __name__ == "__main__":
    main()

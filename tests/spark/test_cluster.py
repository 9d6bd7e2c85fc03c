"""Stream, rebuild and import on a real cluster of separate processes, with PostgreSQL as the store."""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from inkgrove.messages import SchemaId
from inkgrove.store.logs import open_store
from inkgrove.store.views import open_views
from tests.spark.cluster import Cluster
from tests.store.postgres import PostgresServer
from tests.support.command import inkgrove
from tests.support.generated import Generator
from tests.support.logs import LogBuilder, key
from tests.support.views import Stores, expected, materialised
from tests.unit.schema.test_oracle import exact

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A master and two workers."""
    started = Cluster(tmp_path)
    yield started
    started.stop()


def write_settings(file: Path, cluster: Cluster, store: str) -> None:
    file.write_text(f"""
        store = "{store}"

        [spark]
        master = "{cluster.master}"
        memory = "512m"
        python = "{sys.executable}"

        [spark.conf]
        "spark.driver.host" = "127.0.0.1"
        "spark.driver.bindAddress" = "127.0.0.1"
        "spark.executor.cores" = "1"
        "spark.cores.max" = "2"
        "spark.scheduler.minRegisteredResourcesRatio" = "1.0"
        "spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        "spark.executorEnv.PYTHONPATH" = "{SOURCE}"
    """)


@pytest.mark.thorough
def test_stream_rebuild_and_import_run_on_a_cluster(cluster: Cluster, postgres: PostgresServer, tmp_path: Path) -> None:
    store = postgres.create_database("cluster")
    write_settings(tmp_path / "inkgrove.toml", cluster, store)
    schema = LogBuilder(key(50), log_id=10)
    logs = [schema, *(LogBuilder(key(60 + number)) for number in range(6))]
    schema.append(Generator.payload({"kind": "schema-meta", "name": "notes", "spec": 1}))
    fields = [{"a": {"action": "create", "type": "text"}}]
    schema.append(Generator.payload({"kind": "schema-migration", "fields": fields}))
    named = [bytes(schema.secret.public), 10, 2]
    for log in logs[1:]:
        for number in range(20):
            log.append(Generator.payload({"kind": "create", "schema": named, "fields": [{"a": f"note {number}"}]}))
    lines = [(e.encoded, payload) for log in logs for e, payload in zip(log.entries, log.payloads, strict=True)]
    random.Random(7).shuffle(lines)
    entries, payloads = zip(*lines, strict=True)
    pq.write_table(pa.table({"entry": list(entries), "payload": list(payloads)}), tmp_path / "archive.parquet")

    def run(*arguments: str) -> dict[str, object]:
        done = inkgrove("--config", str(tmp_path / "inkgrove.toml"), *arguments, "--home", str(tmp_path), "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    taken = run("import", str(tmp_path / "archive.parquet"))
    assert (taken["read"], taken["appended"]) == (122, 122)
    run("index", schema.secret.public.hex(), "10")
    views = Stores(open_store(store), open_views(store))
    # The whole view is built at the first start; what comes then goes through batches.
    assert run("materialise", "--once")["rebuilt"] == [[schema.secret.public.hex(), 10]]
    assert exact(materialised(views)) == exact(expected(views))
    logs[1].append(Generator.payload({"kind": "delete", "instance": 3}))
    views.store.ingest([(logs[1].entry(21).encoded, logs[1].payloads[20])])
    assert run("materialise", "--once", "--max-entries", "50")["applied"] == 2
    assert exact(materialised(views)) == exact(expected(views))
    before = views.views.views()[SchemaId(schema.secret.public, 10)].generation
    assert run("rebuild", "notes")["rows_written"] == 119
    assert views.views.views()[SchemaId(schema.secret.public, 10)].generation == before + 1
    assert exact(materialised(views)) == exact(expected(views))
    assert cluster.executors() == {"worker0", "worker1"}
    views.store.close()
    views.views.close()

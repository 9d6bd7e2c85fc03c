"""A rebuild beside a running stream: caught up before the swap, nothing lost, and readers always see a whole view."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import inspect

from inkgrove.messages import SchemaId
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import newest_offset
from inkgrove.store.views import begin_build, count_rows, open_views, read_views
from tests.spark.test_views import Shop
from tests.support.views import expected, materialised
from tests.unit.schema.test_oracle import exact


def stream(place: str) -> subprocess.Popen[bytes]:
    """The pipeline as a process of its own."""
    where = ["--store", place] if "://" in place else ["--home", place]
    program = "from inkgrove.cli.main import main; main()"
    command = [sys.executable, "-c", program, "materialise", "--follow", *where]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


class Repeated(threading.Thread):
    """Does something again and again until it is stopped; what fails is told at the end."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self.work = work
        self.stopped = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopped.wait(0.01):
                self.work()
        except Exception as error:  # noqa: BLE001
            self.failure = error

    def finish(self) -> None:
        self.stopped.set()
        self.join()
        assert self.failure is None


def test_rebuild_beside_a_stream_and_a_writer_loses_nothing(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    for number in range(50):
        shop.create(f"note {number}")
    schema_id = SchemaId(shop.schema.secret.public, 10)
    views = open_views(materialiser.store_url)
    seen: list[int] = []

    def write() -> None:
        count = shop.create("more")
        shop.update(1 + count % 50, f"changed {count}")

    def read() -> None:
        with views.database.reading() as connection:
            view = read_views(connection)[schema_id]
            time.sleep(0.01)  # a swap may come here
            seen.append(count_rows(connection, view))

    process = stream(materialiser.store_url)
    try:
        newest = materialiser.store.read(newest_offset)
        wait_for(lambda: materialiser.views.progress()[1] >= newest)
        threads = [Repeated(write), Repeated(read)]
        for thread in threads:
            thread.start()
        generations = set()
        for _ in range(4):
            materialiser.rebuild(schema_id)
            generations.add(materialiser.views.views()[schema_id].generation)
        for thread in threads:
            thread.finish()
        newest = materialiser.store.read(newest_offset)
        wait_for(lambda: materialiser.views.progress()[1] >= newest)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
    views.close()
    assert len(generations) == 4
    assert min(seen) >= 50
    assert exact(materialised(materialiser)) == exact(expected(materialiser))


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(900):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it does not come")


class Overtaken(Materialiser):
    """One that is overtaken by a stream each time it has filled a build."""

    stream: Materialiser
    shop: Shop

    def _fill(self, *arguments: Any) -> list[dict[str, Any]]:
        folded = super()._fill(*arguments)
        self.shop.update(1, "changed meanwhile")
        self.shop.create("new meanwhile")
        self.stream.catch_up()
        return folded


def test_what_became_dirty_during_a_build_is_in_it(spark: SparkSession, place: Path | str) -> None:
    first = Materialiser(spark, str(place))
    shop = Shop(first)
    shop.create("one")
    shop.create("two")
    first.catch_up()
    late = Overtaken(spark, str(place))
    late.stream, late.shop = first, shop
    late.rebuild(SchemaId(shop.schema.secret.public, 10))
    assert exact(materialised(first)) == exact(expected(first))
    assert sorted(row["fields"]["a"] for row in rows_of(first)) == ["changed meanwhile", "new meanwhile", "two"]
    late.close()
    first.close()


class Outdated(Materialiser):
    """One whose schema has another version, which a stream shows, by the time it has filled its first build."""

    stream: Materialiser
    shop: Shop
    builds = 0

    def _fill(self, *arguments: Any) -> list[dict[str, Any]]:
        folded = super()._fill(*arguments)
        self.builds += 1
        if self.builds == 1:
            self.shop.migrate({"b": {"action": "create", "type": "text", "default": "new"}})
            self.stream.catch_up()
        return folded


def test_build_of_an_old_version_does_not_replace_a_newer_one(spark: SparkSession, place: Path | str) -> None:
    first = Materialiser(spark, str(place))
    shop = Shop(first)
    shop.create("one")
    first.catch_up()
    late = Outdated(spark, str(place))
    late.stream, late.shop = first, shop
    schema_id = SchemaId(shop.schema.secret.public, 10)
    late.rebuild(schema_id)
    assert first.views.views()[schema_id].version == 3
    assert rows_of(first)[0]["fields"] == {"a": "one", "b": "new"}
    assert exact(materialised(first)) == exact(expected(first))
    # It was built again, and nothing is left of the build that came too late.
    assert (late.builds, late.report.rebuilt) == (2, [schema_id])
    assert late.report.counts["applied"] == 1  # what was dropped is not counted
    left = {int(name.split("_")[3]) for name in tables_of_views(first)}
    assert left == {1, 3, 4}  # shown before, by the stream, by the second build
    late.close()
    first.close()


def rows_of(materialiser: Materialiser) -> list[dict[str, dict[str, str]]]:
    return [row for view in materialised(materialiser).values() for row in view["rows"].values()]


def test_second_pipeline_leaves_the_stages_of_a_living_one_alone(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = Materialiser(spark, str(home))
    stage = home / f"inkgrove_stage_{first.staging[1]}_0123.db"
    stage.write_bytes(b"")
    Materialiser(spark, str(home)).close()
    assert stage.exists()
    first.close()
    Materialiser(spark, str(home)).close()
    assert not stage.exists()
    assert not list(home.glob("inkgrove_run_*"))


class Unlucky(Materialiser):
    """One that fails when it has filled a build."""

    def _fill(self, *arguments: Any) -> list[dict[str, Any]]:
        super()._fill(*arguments)
        raise KeyboardInterrupt


def tables_of_views(materialiser: Materialiser) -> set[str]:
    with materialiser.views.database.reading() as connection:
        return {name for name in inspect(connection).get_table_names() if re.match(r"view_\d", name)}


def test_failed_build_leaves_the_old_view_and_nothing_else(spark: SparkSession, place: Path | str) -> None:
    first = Materialiser(spark, str(place))
    shop = Shop(first)
    shop.create("one")
    first.catch_up()
    unlucky = Unlucky(spark, str(place))
    with pytest.raises(KeyboardInterrupt):
        unlucky.rebuild(SchemaId(shop.schema.secret.public, 10))
    assert tables_of_views(first) == {"view_1_outcomes_1", "view_1_rows_1", "view_1_rows_1_changes"}
    assert exact(materialised(first)) == exact(expected(first))
    unlucky.close()
    first.close()


def test_build_of_a_dead_pipeline_is_swept_away(materialiser: Materialiser) -> None:
    shop = Shop(materialiser)
    shop.create("one")
    materialiser.catch_up()
    (view,) = materialiser.views.views().values()
    materialiser.views.database.write(lambda connection: begin_build(connection, view, "99", view.fields, {}))
    assert "view_1_rows_2" in tables_of_views(materialiser)
    Materialiser(materialiser.spark, materialiser.store_url).close()
    assert tables_of_views(materialiser) == {"view_1_outcomes_1", "view_1_rows_1", "view_1_rows_1_changes"}

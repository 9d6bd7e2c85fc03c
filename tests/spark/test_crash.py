"""The pipeline as a process of its own, killed at random moments: nothing is lost, nothing is doubled.

INKGROVE_TEST_KILLS raises the number of kills, INKGROVE_TEST_SEED moves them.
"""

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import text

from inkgrove.core import Hash
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.db import ExclusiveWork
from inkgrove.store.logs import newest_offset, read_ingests
from tests.spark.test_views import Shop
from tests.support.generated import Generator
from tests.support.processes import kill, running, wait_until
from tests.support.tiers import amount
from tests.support.views import expected, materialised
from tests.unit.schema.test_oracle import exact

KILLS = amount(1, 4, "INKGROVE_TEST_KILLS")
SEED = int(os.environ.get("INKGROVE_TEST_SEED", "7"))
BATCHES, BATCH = amount(20, 50), 3


def publish_notes(shop: Shop, rng: random.Random) -> dict[Hash, Hash]:
    """Enough for all batches, notes and changes of earlier ones; the instance of each entry."""
    named = [bytes(shop.schema.secret.public), 10, 2]
    instances: dict[Hash, Hash] = {}
    notes = shop.notes
    for number in range(BATCHES * BATCH):
        message: dict[str, Any] = {"kind": "create", "schema": named, "fields": [{"a": f"note {number}"}]}
        changed = rng.choice(list(instances.values())) if instances and rng.random() < 0.3 else None
        if changed is not None:
            message |= {"kind": "update", "instance": bytes(changed)}
        notes.append(Generator.payload(message))
        entry_hash = notes.hash(len(notes.entries))
        instances[entry_hash] = changed or entry_hash
    pairs = zip(notes.entries, notes.payloads, strict=True)
    shop.materialiser.store.ingest([(entry.encoded, payload) for entry, payload in pairs])
    return instances


def as_far_as_position(materialiser: Materialiser, whole: Any, instances: dict[Hash, Hash]) -> Any:
    """What the views hold if they are where they say they are.

    All entries were in the store before the pipeline started, so an instance is whole or not there at all.
    """
    _, position = materialiser.views.progress()
    ingests, _ = materialiser.store.read(read_ingests, limit=1_000_000)
    taken = {instances[i.hash] for i in ingests if i.hash in instances and i.offset <= position}
    return {
        schema: {
            **view,
            "rows": {instance: row for instance, row in view["rows"].items() if instance in taken},
            "outcomes": {name: said for name, said in view["outcomes"].items() if instances[name] in taken},
        }
        for schema, view in whole.items()
    }


def stages(materialiser: Materialiser, home: Path) -> list[str]:
    """The stages that are left."""
    if not materialiser.views.database.is_postgresql:
        return [file.name for file in home.glob("inkgrove_stage_*")]
    query = text("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'inkgrove_stage%'")
    return materialiser.views.database.read(lambda connection: list(connection.scalars(query)))


def wait_for_last_commit(materialiser: Materialiser) -> None:
    """PostgreSQL notices the death of a client a little later: until then its last transaction may still end."""
    if materialiser.views.database.is_postgresql:
        wait_until(lambda: is_free(materialiser), seconds=20)


def is_free(materialiser: Materialiser) -> bool:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'")
    # The one that asks is active itself.
    return materialiser.views.database.read(lambda connection: connection.scalar(query)) == 1


def command_for(place: Path | str, home: Path) -> list[str]:
    arguments = ["materialise", "--follow", "--max-entries", str(BATCH), "--home", str(home)]
    return [*arguments, "--store", place] if isinstance(place, str) else arguments


def test_killed_pipeline_goes_on_where_it_was(spark: SparkSession, place: Path | str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    materialiser = Materialiser(spark, str(place))
    shop = Shop(materialiser)
    # The view is there before the entries are, so every row has to come from a batch.
    materialiser.catch_up()
    materialiser.run.end(ExclusiveWork.STREAM)
    rng = random.Random(SEED)
    instances = publish_notes(shop, rng)
    whole, newest = expected(materialiser), materialiser.store.read(newest_offset)
    first, _ = materialiser.views.progress()

    def batches() -> int:
        return materialiser.views.progress()[0] - first

    for number in range(KILLS):
        share = BATCHES // (KILLS + 1)
        strike = max(batches() + 1, rng.randint(share * number + 1, share * (number + 1)))
        with running(*command_for(place, home)) as process:
            wait_until(lambda strike=strike: batches() >= strike, process)  # type: ignore[misc]
            time.sleep(rng.random() * 0.3)
            kill(process)
        wait_for_last_commit(materialiser)
        found = exact(materialised(materialiser))
        assert found == exact(as_far_as_position(materialiser, whole, instances)), f"kill {number + 1}"
    assert 0 < batches() < BATCHES, "every kill must strike while there is work left"
    with running(*command_for(place, home)) as process:
        wait_until(lambda: materialiser.views.progress()[1] >= newest, process)
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert materialiser.views.progress() == (first + BATCHES, newest)
    assert exact(materialised(materialiser)) == exact(whole)
    assert stages(materialiser, home) == []
    materialiser.close()


@pytest.mark.parametrize("seed", range(max(1, KILLS // 4)))
def test_killed_rebuild_leaves_the_old_view_or_the_new_one(
    spark: SparkSession, place: Path | str, tmp_path: Path, seed: int
) -> None:
    home = tmp_path / "home"
    materialiser = Materialiser(spark, str(place))
    shop = Shop(materialiser)
    publish_notes(shop, random.Random(SEED))
    materialiser.catch_up()
    materialiser.run.end(ExclusiveWork.STREAM)
    old = exact(materialised(materialiser))
    # A new version: the view is built anew, beside the old one, as soon as the pipeline starts.
    shop.migrate({"b": {"action": "create", "type": "text", "default": "none"}})
    new = exact(expected(materialiser))
    assert new != old

    def is_at_work() -> bool:
        return bool(stages(materialiser, home)) or exact(materialised(materialiser)) == new

    with running(*command_for(place, home)) as process:
        wait_until(is_at_work, process)
        time.sleep(random.Random(seed).random() * 0.2)
        kill(process)
    wait_for_last_commit(materialiser)
    assert exact(materialised(materialiser)) in (old, new)
    materialiser.catch_up()
    assert exact(materialised(materialiser)) == new
    materialiser.close()

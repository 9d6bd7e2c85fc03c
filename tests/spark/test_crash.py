"""The pipeline as a process of its own, killed at random moments: nothing is lost, nothing is doubled."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from inkgrove.pipeline.materialiser import Materialiser
from tests.spark.test_views import Shop
from tests.support.views import expected, materialised
from tests.unit.schema.test_oracle import exact

KILLS = 3


def start(home: Path) -> subprocess.Popen[bytes]:
    program = "from inkgrove.cli.main import main; main()"
    command = [sys.executable, "-c", program, "materialise", "--follow", "--max-entries", "3", "--home", str(home)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def test_killed_pipeline_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "home"
    materialiser = Materialiser(spark, str(home))
    shop = Shop(materialiser)
    rng = random.Random(7)
    for number in range(40):
        shop.create(f"note {number}")
    process = start(home)
    try:
        for _ in range(KILLS):
            _, before = materialiser.views.progress()
            # Wait until it works, then strike at a random moment.
            for _ in range(600):
                if materialiser.views.progress()[1] > before:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError("the pipeline does not move")
            time.sleep(rng.random() * 0.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            for number in range(20):
                shop.create(f"more {number}")
                shop.update(rng.randint(1, len(shop.notes.entries)), f"changed {number}")
            process = start(home)
        newest = materialiser.store.newest_offset()
        for _ in range(900):
            if materialiser.views.progress()[1] >= newest:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
    assert materialiser.views.progress()[1] == newest
    assert exact(materialised(materialiser)) == exact(expected(materialiser))
    assert not list(home.glob("inkgrove_stage_*"))
    materialiser.close()

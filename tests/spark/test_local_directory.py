"""Spark's local directories lie in the home, and nothing is left of them (docs/protocol.md section 9.5)."""

import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from inkgrove.pipeline.runtime.local_directory import LocalDirectory

DIE = """
import os, sys
from pathlib import Path
from inkgrove.pipeline.runtime.local_directory import LocalDirectory
local = LocalDirectory(Path(sys.argv[1]))
(local.path / "spilled").write_text("a row")
os._exit(9)
"""


def test_directory_goes_with_its_session_and_left_ones_with_the_next(tmp_path: Path) -> None:
    with LocalDirectory(tmp_path) as first:
        (first.path / "spilled").write_text("a row")
        subprocess.run([sys.executable, "-c", DIE, str(tmp_path)], check=False, timeout=60)
        assert len(list(tmp_path.iterdir())) == 2
        with LocalDirectory(tmp_path) as second:
            # The living one stays, the dead one goes.
            assert {path.name for path in tmp_path.iterdir()} == {first.path.name, second.path.name}
            assert (first.path / "spilled").exists()
    assert list(tmp_path.iterdir()) == []


def test_session_spills_into_its_directory(spark: SparkSession) -> None:
    where = Path(spark.conf.get("spark.local.dir") or "")
    assert where.parent.name == "local"
    assert any(where.iterdir())

"""The peak memory of a driver that rebuilds a view of so many entries: `python -m bench.driver_memory 100000`.

A process of its own for each size: what is resident only ever grows within one.
"""

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from bench.pipeline import peak_of_jvm, views_of
from bench.stores import SCHEMA, many_authors
from inkgrove.pipeline.runtime.session import start_session


def main(entries: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = {"spark.master": f"local[{os.cpu_count()}]", "spark.driver.memory": "1g"}
        spark = start_session(Path(folder) / "logs", settings)
        with views_of(spark, many_authors(entries), Path(folder)) as (materialiser, _):
            materialiser.rebuild(SCHEMA)
            python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            sys.stdout.write(json.dumps({"jvm": peak_of_jvm(spark), "python": python}) + "\n")
        spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))

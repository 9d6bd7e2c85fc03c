"""Keeps Spark's classes in an archive for the tests, which start Spark often; see tests/support/java.py."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pyspark import SparkContext

from bench.stores import Writer, add_schema
from bench.verification import slothmails
from inkgrove.pipeline.archive import export_archive, import_archive
from inkgrove.pipeline.runtime.progress import tell_nobody
from inkgrove.pipeline.runtime.session import start_session
from inkgrove.pipeline.views import Materialiser
from inkgrove.store.logs import open_store
from tests.support.java import VARIABLE, archive, spark_home


def make(target: Path, folder: Path) -> None:
    """Use Spark a little in each of our ways; Java writes down at its end which classes that took."""
    home, file, made = folder / "home", folder / "archive.parquet", target.with_suffix(f".{os.getpid()}")
    target.parent.mkdir(exist_ok=True)
    with open_store(home) as store:
        add_schema(store)
        writer = Writer(1)
        store.ingest([writer.sign(payload) for payload in slothmails(10)])
    os.environ.setdefault("SPARK_HOME", str(spark_home()))  # the archive speaks of the files of this very folder
    os.environ[VARIABLE] = "-XX:TieredStopAtLevel=1 -Xlog:disable"
    spark = start_session(folder, {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={made}"'})
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    materialiser = Materialiser(spark, str(home))
    materialiser.build_changed()
    materialiser.follow(folder / "checkpoint", once=True).awaitTermination()
    materialiser.close()
    export_archive(spark, str(home), file)
    with open_store(folder / "other") as store:
        import_archive(spark, store, file, folder / "rejects.parquet", tell_nobody)
    spark.stop()
    java.stdin.close()
    java.wait(300)
    if made.exists():
        made.replace(target)
    else:
        print("this Java keeps no archive: the tests start Spark without one", file=sys.stderr)


if __name__ == "__main__" and not archive().exists():
    print("preparing Spark's classes for the tests, once: a minute", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        make(archive(), Path(name))

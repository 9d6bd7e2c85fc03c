"""The Spark session: `local[*]` by default, any master by setting; nothing else in the code knows which.

Spark's own noise goes to a log file, never to the terminal; what fails in it comes back as an error of ours.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from inkgrove.core.errors import InkgroveError, InputError, PipelineError
from inkgrove.pipeline.runtime.batches import BATCH_BYTES
from inkgrove.pipeline.runtime.failures import explain, first_reason
from inkgrove.pipeline.runtime.java import find_java
from inkgrove.pipeline.runtime.local_directory import LocalDirectory
from inkgrove.pipeline.views.plan import InkgroveSource
from inkgrove.pipeline.views.relation_source import RelationSource

_LOG4J = """status = off
appenders = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = ${sys:inkgrove.sparklog}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


def start_session(logs: Path, properties: Mapping[str, str] | None = None, python: str | None = None) -> SparkSession:
    """Start a session that writes its logs into a directory; `properties` are Spark's own and win over ours.

    `python` is the interpreter of executors on other machines. Raises PipelineError if Java or Spark do not start.
    """
    find_java()
    log4j = logs / "log4j2.properties"
    try:
        logs.mkdir(parents=True, exist_ok=True)
        log4j.write_text(_LOG4J)
        local = LocalDirectory(logs / "local")
    except OSError as err:
        raise InputError(
            "input.unreadable-file", f"cannot write Spark's logs to {logs}: {err.strerror or err}"
        ) from err
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    java = (
        f"-Dlog4j2.configurationFile=file:{log4j} -Dinkgrove.sparklog={logs / 'spark.log'}"
        " -Duser.timezone=UTC -XX:+UseSerialGC"
    )
    configuration = {
        "spark.master": "local[*]",
        "spark.app.name": "inkgrove",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
        # Measured: a job with one Python task takes 58 ms instead of 96.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.daemon.module": "inkgrove.pipeline.runtime.daemon",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.warehouse.dir": str(logs / "warehouse"),
        "spark.local.dir": str(local.path),
        **(properties or {}),
    }
    own = configuration.get("spark.driver.extraJavaOptions")
    configuration["spark.driver.extraJavaOptions"] = f"{java} {own}" if own else java
    if configuration["spark.master"].startswith("local"):
        # Nobody else has to reach this driver; on a cluster the executors have to.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for name in ("spark.driver.bindAddress", "spark.driver.host"):
            configuration.setdefault(name, "127.0.0.1")
    conf = SparkConf(loadDefaults=False).setAll(list(configuration.items()))
    try:
        if SparkContext._gateway is None:
            # The JVM prints warnings of its own before any logging is set up.
            with (logs / "jvm.log").open("ab") as noise:
                gateway = launch_gateway(conf, {"stdout": noise, "stderr": noise})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except (PySparkException, Py4JError) as err:
        master = configuration["spark.master"]
        where = "" if master.startswith("local") else f" on {master}, which must be there and reach this machine"
        raise PipelineError(
            "pipeline.spark-failed", f"Spark does not start{where}: {first_reason(err)}; its logs are in {logs}"
        ) from err
    _local[id(session.sparkContext)] = local
    session.dataSource.register(InkgroveSource)
    session.dataSource.register(RelationSource)
    return session


@contextmanager
def session_for(
    logs: Path, properties: Mapping[str, str] | None = None, python: str | None = None
) -> Iterator[SparkSession]:
    """A session for one piece of work; failures of Spark are raised as InkgroveError with one line of reason."""
    # A JVM that went away is told by the errors below; py4j would print a traceback beside them.
    logging.getLogger("py4j").addHandler(logging.NullHandler())
    spark = start_session(logs, properties, python)
    # So would the thread that takes counters from the JVM.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    try:
        yield spark
    except InkgroveError:
        raise
    except (PySparkException, Py4JError, ConnectionError) as err:
        raise explain(err, logs) from err
    finally:
        stop_session(spark)


_local: dict[int, LocalDirectory] = {}


def stop_session(spark: SparkSession) -> None:
    """Stop a session, and leave nothing of what it had on the disk."""
    number = id(spark.sparkContext)
    with suppress(Py4JError, ConnectionError):  # it may have gone away
        spark.stop()
    local = _local.pop(number, None)
    if local is not None:
        local.remove()


def count_tasks(spark: SparkSession) -> tuple[int, int]:
    """How many tasks of the jobs that run now are done, and how many they have."""
    done = total = 0
    try:
        tracker = spark.sparkContext.statusTracker()
        for number in tracker.getActiveStageIds():
            if stage := tracker.getStageInfo(number):
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
    except (Py4JError, ConnectionError, AttributeError):
        return 0, 0  # it is just being stopped
    return done, total

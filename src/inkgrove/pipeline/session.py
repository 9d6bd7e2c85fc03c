"""The Spark session: `local[*]` by default, any master by setting; nothing else in the code knows which.

Spark's own noise goes to a log file, never to the terminal.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from inkgrove.core.errors import NoJava, SparkFailed
from inkgrove.pipeline.source import InkgroveSource
from inkgrove.pipeline.view_source import RelationSource

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
OLDEST_JAVA = 17


def start_session(logs: Path, settings: dict[str, str] | None = None) -> SparkSession:
    """A session that writes its logs into a directory; `settings` are Spark's own and win over ours."""
    _check_java()
    logs.mkdir(parents=True, exist_ok=True)
    log4j = logs / "log4j2.properties"
    log4j.write_text(_LOG4J)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java = (
        f"-Dlog4j2.configurationFile=file:{log4j} -Dinkgrove.sparklog={logs / 'spark.log'}"
        " -Duser.timezone=UTC -XX:+UseSerialGC"
    )
    configuration = {
        "spark.master": "local[*]",
        "spark.app.name": "inkgrove",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Measured: a job with one Python task takes 58 ms instead of 96.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.pollingDelay": "10ms",
        "spark.sql.streaming.minBatchesToRetain": "10",
        "spark.sql.warehouse.dir": str(logs / "warehouse"),
        "spark.driver.extraJavaOptions": java,
        **(settings or {}),
    }
    conf = SparkConf(loadDefaults=False).setAll(list(configuration.items()))
    if SparkContext._gateway is None:
        # The JVM prints warnings of its own before any logging is set up.
        with (logs / "jvm.log").open("ab") as noise:
            gateway = launch_gateway(conf, {"stdout": noise, "stderr": noise})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    session.dataSource.register(InkgroveSource)
    session.dataSource.register(RelationSource)
    return session


@contextmanager
def session_for(logs: Path) -> Iterator[SparkSession]:
    """A session for one piece of work; what fails in Spark is said in one line."""
    spark = start_session(logs)
    try:
        yield spark
    except (PySparkException, Py4JError) as err:
        raise SparkFailed(f"Spark failed: {first_reason(err)}; its logs are in {logs}") from err
    finally:
        spark.stop()


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {OLDEST_JAVA} or newer (Debian: apt-get install default-jre-headless) or set JAVA_HOME"
    if java is None or not Path(java).exists():
        raise NoJava(f"Spark needs Java and none was found: {advice}")
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    words = (done.stderr + done.stdout).split('"')
    version = words[1].split(".")[0] if len(words) > 1 else "0"
    if not version.isdigit() or int(version) < OLDEST_JAVA:
        raise NoJava(f"Spark needs Java {OLDEST_JAVA} or newer, this is {version}: {advice}")


def first_reason(error: Exception) -> str:
    """What Spark says in its first line that is more than the name of an exception."""
    for line in str(error).splitlines():
        text = line.strip().removeprefix(": ")
        if text and not text.startswith(("An error occurred while calling", "An exception was thrown", "Traceback")):
            return text[:300]
    return type(error).__name__

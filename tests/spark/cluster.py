"""A standalone Spark cluster on loopback, from the scripts of the pip package: a master and workers, each a process."""

import os
import signal
import subprocess
import time
from pathlib import Path

from examples.demo.ports import free_port
from tests.support.java import spark_home

_SPARK = spark_home()
# Programs that live for seconds have no use for the second compiler.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """Running; each worker has one core and 1 GB."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        try:
            self._start("master.Master", "master", "--port", str(port))
            self._wait_for("I have been elected leader", 1)
            for number in range(workers):
                work = folder / f"worker{number}"
                options = ("--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master)
                self._start("worker.Worker", work.name, *options)
            self._wait_for("Registering worker", workers)
        except BaseException:
            self.stop()
            raise

    def _start(self, program: str, name: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "SPARK_HOME": str(_SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK} -Dspark.master.rest.enabled=false",
        }
        command = [str(_SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{program}", "--host", "127.0.0.1"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments],
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            )

    def _wait_for(self, text: str, times: int) -> None:
        deadline = time.monotonic() + 60
        while (self.folder / "master.log").read_text().count(text) < times:
            for process in self._processes:
                assert process.poll() is None, (self.folder / "master.log").read_text()
            assert time.monotonic() < deadline, (self.folder / "master.log").read_text()
            time.sleep(0.05)

    def executors(self) -> set[str]:
        """The workers that ran an executor so far."""
        return {path.parents[1].name for path in self.folder.glob("worker*/app-*/*")}

    def stop(self) -> None:
        """End the workers with their executors, then the master."""
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(timeout=15)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

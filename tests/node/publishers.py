"""What other processes do to a node in tests; here, because a spawned process imports it by name."""

import os
import signal
import socket
import time
from pathlib import Path

import uvicorn

from examples.demo.ports import free_port
from inkgrove.api.app import make_app
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from tests.support.forking import ForkedProcess


class NodeProcess:
    """A node in a process of its own."""

    def __init__(self, place: Path | str, home: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        arguments = (str(place), str(home), self.port)
        self.process = ForkedProcess(f"{__name__}:serve", arguments, environment=os.environ)
        deadline = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, "the node did not start"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "the node did not start in time"
                time.sleep(0.02)

    def kill(self) -> None:
        """End it without a word, as the kernel does when memory runs out."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Ask it to end, as an operator does, and wait until it has."""
        self.process.terminate()
        self.process.wait(60)


def serve(place: str, home: str, port: int) -> None:
    node = Node(place, NodeSettings(), home=Path(home))
    uvicorn.run(make_app(node), host="127.0.0.1", port=port, log_level="warning", access_log=False)

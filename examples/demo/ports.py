"""Ports for servers that must know theirs, and each other's, before they listen."""

import secrets
import socket
from typing import Final

_RANGE: Final = range(10_000, 32_000)
"""Below the ports that the kernel gives to connections by itself, of which any could be taken until we listen."""
_given: set[int] = set()


def free_port() -> int:
    """A port on loopback that nobody listens on, another one each time."""
    while True:
        port = secrets.choice(_RANGE)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port

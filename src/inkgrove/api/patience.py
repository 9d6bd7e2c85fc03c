"""How long the node waits for the other side of a connection, which sends a body or reads an answer (docs/node.md)."""

from typing import Final

LEAST_RATE: Final = 16 * 1024
"""Bytes a second that whoever takes longer than `node.body_seconds` must send or read."""


class Patience:
    """The seconds that the other side has left: what it moves adds to them, never beyond those of the beginning.

    So a body that came fast until its last byte is not waited for any longer than one that has just begun.
    """

    def __init__(self, seconds: float) -> None:
        self._most = self.left = float(seconds)

    def settle(self, waited: float, moved: int) -> None:
        """So many seconds were waited, in which so many bytes were moved."""
        self.left = min(self._most, self.left - waited + moved / LEAST_RATE)

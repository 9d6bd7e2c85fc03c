"""The nodes that have had entries of ours, by a name there, in a file beside the database.

A database that was put back from a copy does not know whom it has met since; whoever holds our logs must be asked
(docs/protocol.md section 8.12). A line is written when a name is new, which is seldom.
"""

import os
import threading
from pathlib import Path
from typing import Final

import structlog

RECEIVERS: Final = "receivers.txt"
"""To whom this node has sent something."""
READERS: Final = "readers.txt"
"""Who has fetched something that is public."""
_MOST: Final = 10_000
_MOST_OF_DOMAIN: Final = 100
"""Of readers alone: they come by themselves, and names cost nothing to whoever has a domain."""

log = structlog.get_logger("inkgrove.receivers")


class NameFile:
    """Names, one in a line; safe for threads and for several processes of one home.

    A file holds 10,000 names, that of readers 100 of a domain. Whoever is to be asked for what a restored database
    lacks must not be left out: for receivers no domain is full, and a name for which the file has no room is warned of.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._noted: set[str] = set()
        self._lock = threading.Lock()
        self._has_warned = False

    def names(self) -> set[str]:
        """Every name, as other processes have left the file too."""
        try:
            return {line for line in self.path.read_text(errors="replace").split("\n") if line.strip()}
        except FileNotFoundError:
            return set()

    def note(self, fqdn: str) -> None:
        """Remember a name, if there is room; returns when it is on the disk.

        The first name that finds the file full is logged as a warning.
        """
        if fqdn in self._noted:
            return
        with self._lock:
            known = self.names()
            if fqdn not in known and self._has_room(fqdn, known):
                file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(file, f"{fqdn}\n".encode())
                    os.fsync(file)
                finally:
                    os.close(file)
            if len(self._noted) >= _MOST:
                self._noted.clear()
            self._noted.add(fqdn)

    def _has_room(self, fqdn: str, known: set[str]) -> bool:
        if len(known) >= _MOST:
            if not self._has_warned:
                self._has_warned = True
                advice = "after a restore, only a database that knows this name has it asked for what is lacking"
                log.warning("a list of names is full", file=self.path.name, most=_MOST, name=fqdn, advice=advice)
            return False
        if self.path.name != READERS:
            return True
        return sum(_domain_of(name) == _domain_of(fqdn) for name in known) < _MOST_OF_DOMAIN


def _domain_of(fqdn: str) -> str:
    return ".".join(fqdn.split(".")[-2:])

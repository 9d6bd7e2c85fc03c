"""Who works on a home: many nodes and commands at once, or one that puts a backup in its place, and nobody else."""

import fcntl
import os
from pathlib import Path

from inkgrove.node.errors import HomeInUse
from inkgrove.store.durable_file import make_directory

_NAME = "home.lock"


class HomeLock:
    """Held until it is closed, or its process ends."""

    def __init__(self, home: Path, *, alone: bool = False) -> None:
        """Raises `HomeInUse` if somebody else works on the home, or, unless `alone`, has it for itself."""
        make_directory(home)
        self._file: int | None = os.open(home / _NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError as err:
            self.close()
            text = (
                f"a process works on {home}: end it first" if alone else f"{home} is being restored: wait for its end"
            )
            raise HomeInUse(text) from err

    def close(self) -> None:
        """Let others work on the home."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

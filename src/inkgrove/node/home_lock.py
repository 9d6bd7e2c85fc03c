"""Who works on a home: many nodes and commands at once, or one that puts a backup in its place, and nobody else."""

from pathlib import Path

from inkgrove.node.errors import BackupError
from inkgrove.store.db import make_directory
from inkgrove.store.locks import FileLock

_NAME = "home.lock"


class HomeLock:
    """Held until it is closed, or its process ends."""

    def __init__(self, home: Path, *, alone: bool = False) -> None:
        """Raises `backup.in-use` if somebody else works on the home, or, unless `alone`, has it for itself."""
        make_directory(home)
        try:
            self._lock = FileLock(home / _NAME, shared=not alone, wait=False)
        except BlockingIOError as err:
            text = (
                f"a process works on {home}: end it first" if alone else f"{home} is being restored: wait for its end"
            )
            raise BackupError("backup.in-use", text) from err

    def close(self) -> None:
        """Let others work on the home."""
        self._lock.close()

"""Where Spark puts what it spills and shuffles: a directory in the home for each session, removed when that stops.

Values of rows lie in it. What a process left behind that was killed is removed by the next one that starts.
"""

import shutil
from pathlib import Path
from secrets import token_hex
from typing import Self

from inkgrove.store.locks import FileLock, try_file_lock


class LocalDirectory:
    """A directory for one session; held until it is removed or its process ends."""

    def __init__(self, parent: Path) -> None:
        """Make one below a directory, and remove those whose processes are gone."""
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(parent):  # nobody takes one that is just being made for a left one
            for left in parent.iterdir():
                lock = try_file_lock(left) if left.is_dir() else None
                if lock is not None:
                    with lock:
                        shutil.rmtree(left, ignore_errors=True)
            self.path = parent / token_hex(8)
            self.path.mkdir(mode=0o700)
            self._lock = FileLock(self.path)

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

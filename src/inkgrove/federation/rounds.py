"""Work between nodes in rounds: whatever is due begins at once, side by side, and nothing waits for the slowest."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from inkgrove.core.errors import InkgroveError


async def run_rounds(
    find_work: Callable[[], Awaitable[Iterable[Coroutine[Any, Any, None]]]],
    wake: asyncio.Event,
    idle_seconds: float,
    on_error: Callable[[InkgroveError], None],
    breath_seconds: float = 0.0,
) -> None:
    """Begin what is found, then look again when woken or after a while; until the task is cancelled."""
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            wake.clear()
            try:
                for work in await find_work():
                    task = asyncio.create_task(work)
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            except InkgroveError as error:  # the store is away for a moment
                on_error(error)
            if breath_seconds:
                await asyncio.sleep(breath_seconds)
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that comes together with the wake-up.
                async with asyncio.timeout(idle_seconds):
                    await wake.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

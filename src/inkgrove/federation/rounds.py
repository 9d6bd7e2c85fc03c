"""Work between nodes in rounds: whatever is due begins at once, side by side, and nothing waits for the slowest."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

import structlog

from inkgrove.core.errors import InkgroveError

_LONGEST_WAIT: Final = 60.0

log = structlog.get_logger("inkgrove.rounds")


async def run_rounds(
    find_work: Callable[[], Awaitable[Iterable[Coroutine[Any, Any, None]]]],
    wake: asyncio.Event,
    idle_seconds: float,
    on_error: Callable[[InkgroveError], None],
    breath_seconds: float = 0.0,
) -> None:
    """Begin what is found, then look again when woken or after a while; until the task is cancelled.

    Nothing else ends it: a round that fails is begun again, after twice as long each time up to a minute.
    """
    tasks: set[asyncio.Task[None]] = set()

    def finish(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("work between nodes failed", exc_info=error)

    wait = idle_seconds
    try:
        while True:
            wake.clear()
            try:
                for work in await find_work():
                    task = asyncio.create_task(work)
                    tasks.add(task)
                    task.add_done_callback(finish)
            except Exception as error:  # whatever it is: nobody else would begin again
                if isinstance(error, InkgroveError):  # the store is away for a moment
                    on_error(error)
                else:
                    log.exception("work between nodes could not be looked up")
                await asyncio.sleep(wait)
                wait = min(_LONGEST_WAIT, 2 * wait)
                continue
            wait = idle_seconds
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

"""Threads for reading: what may take long must not hold up the loop, and to get there must cost little."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeVar

_Result = TypeVar("_Result")
_READERS: Final = ThreadPoolExecutor(max_workers=15, thread_name_prefix="reading")
"""As many as there are connections in the pool of a database."""


async def read_in_thread(work: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run a read in a thread; what it logs carries the id of the request."""
    call = partial(copy_context().run, work, *arguments)
    return await asyncio.get_running_loop().run_in_executor(_READERS, call)

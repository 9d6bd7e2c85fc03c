"""What code that runs in Spark's Python workers has in common: the store it reads, opened there, and its data sources.

Sources are planned in workers too, which Spark starts in its own way and hands the source as a pickle.
"""

import gc
from collections.abc import Mapping, MutableMapping
from functools import cache, lru_cache
from typing import Any

from pyspark.sql.datasource import DataSource

from inkgrove.core.errors import NoStore
from inkgrove.store.logs.log_store import LogStore, open_store


@lru_cache(maxsize=4)
def open_once(place: str) -> LogStore:
    """The store at a place, opened once in each worker process; raises `NoStore` if there is none."""
    return open_store(place, create=False)


@cache
def keep_modules() -> None:
    """Take what is loaded out of the garbage collection after each call: to look at all of it takes about 50 ms.

    Tasks have `inkgrove.pipeline.runtime.daemon` for that; the workers that plan are started by Spark in its own way.
    """
    gc.freeze()


class PlannedSource(DataSource):
    """Made in one worker, and handed to others as a pickle."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        keep_modules()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        keep_modules()


def place_of(options: Mapping[str, str]) -> str:
    """The option `store`; raises `NoStore` without it."""
    if "store" not in options:
        raise NoStore("say where the store is: .option('store', its directory or PostgreSQL URL)")
    return options["store"]


def open_existing(place: str) -> LogStore:
    """The store at a place; to read from one that is not there makes none and raises `NoStore`."""
    try:
        return open_store(place, create=False)
    except NoStore as error:
        raise NoStore(error.message) from None

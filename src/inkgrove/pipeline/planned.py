"""What our Python data sources have in common: how Spark's workers that plan them hold them."""

import gc
from collections.abc import MutableMapping
from functools import cache
from typing import Any

from pyspark.sql.datasource import DataSource


@cache
def keep_modules() -> None:
    """Take what is loaded out of the garbage collection after each call: to look at all of it takes about 50 ms.

    Tasks have `inkgrove.pipeline.daemon` for that; the workers that plan are started by Spark in its own way.
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

"""Shared by the code that runs in Spark's Python workers: opening the store there, and the base of data sources.

Sources are planned in workers too, which Spark starts in its own way and hands the source as a pickle.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache, lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from inkgrove.core.errors import NoStore
from inkgrove.pipeline.tables import STAGED, spark_schema
from inkgrove.store.logs import LogStore, open_store
from inkgrove.store.views import open_stage


@lru_cache(maxsize=4)
def open_once(store_url: str) -> LogStore:
    """The store at a URL, opened once in each worker process; raises `NoStore` if there is none."""
    return open_store(store_url, create=False)


@cache
def keep_modules() -> None:
    """Take loaded modules out of the garbage collection after each call: looking at all of them takes about 50 ms.

    Workers that run tasks do it in `inkgrove.pipeline.runtime.daemon`; Spark starts those that plan without it.
    """
    gc.freeze()


class PlannedSource(DataSource):
    """A data source that is made in one worker and handed to others as a pickle."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        keep_modules()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        keep_modules()


def store_url_of(options: Mapping[str, str]) -> str:
    """The option `store`; raises `NoStore` without it."""
    if "store" not in options:
        raise NoStore("say where the store is: .option('store', its directory or PostgreSQL URL)")
    return options["store"]


def open_existing(store_url: str) -> LogStore:
    """Open the store at a URL for the caller to close; raises `NoStore`, with a short traceback, if there is none."""
    try:
        return open_store(store_url, create=False)
    except NoStore as error:
        raise NoStore(error.message) from None


StageRows = Iterable[tuple[str, Sequence[Sequence[Any]]]]
"""Tables of a stage with rows for each."""


def stage_rows(rows: DataFrame, staging: tuple[str, str], split: Callable[[pa.RecordBatch], StageRows]) -> list[str]:
    """Let each task write its rows to a stage, `split` by table; returns the names of the stages.

    `staging` is where to stage and for which pipeline run (`open_stage`).
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage = open_stage(*staging, {})
        try:
            for batch in batches:
                for table, found in split(batch):
                    if found:
                        stage.write(table, found)
            stage.finish()
        except BaseException:
            stage.discard()
            raise
        yield pa.RecordBatch.from_pydict({"stage": [stage.name]}, schema=STAGED)

    results = rows.mapInArrow(run, spark_schema(STAGED)).toArrow().to_pylist()
    return [item["stage"] for item in results]

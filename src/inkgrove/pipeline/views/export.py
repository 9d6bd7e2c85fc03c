"""A view as files: Parquet, CSV or JSON written by Spark, or a Delta table made of the Parquet files."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import SparkSession

from inkgrove.core.errors import InputError
from inkgrove.messages import Timestamp
from inkgrove.pipeline.runtime.batches import cut
from inkgrove.pipeline.runtime.progress import OnProgress, tell_nobody, watched
from inkgrove.pipeline.tables import spark_schema
from inkgrove.schema import element_of, is_array
from inkgrove.store.views import View, ViewRow, count_rows, open_views, read_all_rows

Format = Literal["parquet", "csv", "json", "delta"]
_TYPES: dict[str, pa.DataType] = {
    "varchar": pa.string(),
    "text": pa.string(),
    "integer": pa.int64(),
    "float": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "relation": pa.string(),
    "blob": pa.string(),
}
_OWN = (("_instance", "text"), ("_author", "text"), ("_log_id", "integer"), ("_seq_num", "integer"))
_OWN_LAST = (("_last_seq_num", "integer"), ("_last_hash", "text"), ("_expires", "timestamp"))
_PAGE = 500


def export_view(
    spark: SparkSession, store_url: str, view: View, path: Path, form: Format, on_progress: OnProgress = tell_nobody
) -> int:
    """Write a view's rows to a new directory and return how many; raises InputError if the directory exists."""
    if path.exists():
        raise InputError("input.unreadable-file", f"{path} exists already; choose another name")
    # A CSV cell holds no list: there lists are JSON text.
    columns = [*_OWN, *_OWN_LAST, *view.fields]
    kinds = [("text" if form == "csv" and is_array(kind) else kind) for _, kind in columns]
    names = [name for name, _ in columns]
    arrow = pa.schema([(name, _arrow_type(kind)) for name, kind in zip(names, kinds, strict=True)])
    schema = spark_schema(arrow)
    with open_views(store_url) as views, views.database.reading() as connection:
        total = count_rows(connection, view)
    done = spark.sparkContext.accumulator(0)
    # One task, for it reads the view in one transaction: the files hold one state of it.
    rows = spark.range(0, 1, 1, 1).mapInArrow(_read_rows(store_url, view, arrow, done), schema)
    writer = rows.write.mode("errorifexists").option("header", "true")
    with watched(done, "writing rows", total, on_progress):
        writer.format("parquet" if form == "delta" else form).save(str(path))
    if form == "delta":
        from deltalake import convert_to_deltalake  # noqa: PLC0415  only this format needs it

        convert_to_deltalake(str(path))
    count = spark.read.schema(schema).option("header", "true")
    return count.format("parquet" if form == "delta" else form).load(str(path)).count()


def _arrow_type(kind: str) -> pa.DataType:
    element = _TYPES[element_of(kind)]
    return pa.list_(element) if is_array(kind) else element


def _read_rows(
    store_url: str, view: View, schema: pa.Schema, done: "Accumulator[int]"
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        views = open_views(store_url)
        with views.database.reading() as connection:
            found = read_all_rows(connection, view, _PAGE)
            while rows := list(islice(found, _PAGE)):
                yield from cut(pa.RecordBatch.from_pylist([_record(row, schema) for row in rows], schema))
                done.add(len(rows))
        views.close()

    return run


def _record(row: ViewRow, schema: pa.Schema) -> dict[str, Any]:
    own = {
        "_instance": row.instance.hex(),
        "_author": row.author.hex(),
        "_log_id": row.log_id,
        "_seq_num": row.seq_num,
        "_last_seq_num": row.last_seq_num,
        "_last_hash": row.last_hash.hex(),
        "_expires": None if row.expires is None else row.expires.microseconds,
    }
    fields = {name: _cell(value) for name, value in row.fields.items()}
    for name, value in fields.items():
        if isinstance(value, list) and schema.field(name).type == pa.string():
            fields[name] = json.dumps(value)
    return {**own, **fields}


def _cell(value: Any) -> Any:
    if isinstance(value, Timestamp):
        return value.microseconds
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return json.dumps({key: _cell(part) for key, part in value.items()})
    return [_cell(item) for item in value] if isinstance(value, list) else value

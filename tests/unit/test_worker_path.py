"""Where Spark's Python workers find their modules."""

from inkgrove.pipeline.runtime.daemon import without_archives

SITE = "/venv/lib/python3.11/site-packages"
ARCHIVES = [
    f"{SITE}/pyspark/python/lib/pyspark.zip",
    f"{SITE}/pyspark/python/lib/py4j-0.10.9.9-src.zip",
    f"{SITE}/pyspark/jars/spark-core_2.13-4.3.0.jar",
]


def test_archives_are_left_out_where_the_same_modules_lie_beside_them() -> None:
    others = ["/app/src", "/usr/lib/python311.zip", SITE]
    assert without_archives([*ARCHIVES, *others]) == others


def test_archives_stay_where_there_is_nothing_else() -> None:
    path = ["/opt/spark/python/lib/pyspark.zip", "/app/src", "/usr/lib/python3.11"]
    assert without_archives(path) == path
    assert without_archives([*ARCHIVES, "/app/src"]) == [*ARCHIVES, "/app/src"]

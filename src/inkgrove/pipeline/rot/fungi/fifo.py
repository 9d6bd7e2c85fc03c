"""`fifo`: first in, first out. What is oldest on this node goes, whatever it is."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import with_freshness, with_recency


def fifo(copies: DataFrame, _seed: int, _tick: int) -> DataFrame:
    """A copy is as fresh as it is recent."""
    return with_freshness(with_recency(copies), f.col("_recency"))

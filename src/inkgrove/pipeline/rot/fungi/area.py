"""`area`: mould. Spots appear anywhere in the history and grow; between them everything stays whole."""

from pyspark.sql import DataFrame

from inkgrove.pipeline.rot.copies import chance
from inkgrove.pipeline.rot.fungi.spreading import SEEDS_PER_COPY, spread


def area(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """Every copy has the same chance to be the middle of a new spot."""
    return spread(copies, chance(seed, tick) < SEEDS_PER_COPY)

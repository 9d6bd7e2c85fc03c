"""`egi`: evict grouped individuals. The older a copy, the sooner it seeds a spot that spreads to its neighbours."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from inkgrove.pipeline.rot.copies import chance, with_recency
from inkgrove.pipeline.rot.fungi.spreading import SEEDS_PER_COPY, spread


def egi(copies: DataFrame, seed: int, tick: int) -> DataFrame:
    """The chance to be a seed grows with the square of the age."""
    is_seed = chance(seed, tick) < 3 * SEEDS_PER_COPY * f.pow(1 - f.col("_recency"), 2)
    return spread(with_recency(copies), is_seed)

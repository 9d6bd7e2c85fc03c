"""Spark itself: Java, the session, its Python workers, progress and failures.

Nothing is imported here: Spark starts its workers from `daemon`, which has to clean the path of modules before anything
of Spark is loaded, and `java` is asked by commands that load no Spark.
"""

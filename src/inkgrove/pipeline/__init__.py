"""From logs to views on Apache Spark: the only package that imports it (docs/protocol.md section 6).

`runtime` starts Spark and its workers, `views` folds logs into views, `archive` exports and imports whole stores,
`rot` forgets copies of other people's data; `tables` describes every table that passes through Spark.
"""

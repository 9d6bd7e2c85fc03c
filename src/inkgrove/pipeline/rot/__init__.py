"""Data rot: copies of other people's data are forgotten on purpose, within a budget (docs/protocol.md section 9).

A `policy` names budgets and a fungus of `fungi`; `plan` decides, `cooking` summarises, `run` applies, `picture` draws.
Nothing is imported here: pictures are drawn by a command that loads no Spark.
"""

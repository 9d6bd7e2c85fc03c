"""From logs to views on Apache Spark: the only folder that imports it (docs/protocol.md section 6)."""

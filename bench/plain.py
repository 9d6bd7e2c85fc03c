"""The baseline of the pipeline: a straightforward materialiser in one process, with the same strict decoding.

It reads the entries log by log, decodes and migrates each create, and writes rows into one table: what one would write
without thinking of late payloads, forks, reverts or crashes.
"""

import sqlite3
from pathlib import Path

from inkgrove.messages.instance import Create
from inkgrove.messages.message import decode_message
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.migrate import Migration
from inkgrove.store.cells import cell_encoder


def materialise(source: Path, target: Path, definition: ViewDefinition) -> int:
    """Fill `target` with the rows of `source`, a store's node.db; returns their number."""
    target.unlink(missing_ok=True)
    entries = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
    view = sqlite3.connect(target, isolation_level=None)
    view.execute("PRAGMA journal_mode=WAL")
    view.execute("PRAGMA synchronous=NORMAL")
    columns = [field.name for field in definition.fields]
    encoders = [cell_encoder(field.type) for field in definition.fields]
    names = ", ".join(f'"{name}"' for name in columns)
    view.execute(f"CREATE TABLE rows (instance BLOB PRIMARY KEY, log INTEGER, seq_num INTEGER, {names})")
    view.execute("BEGIN")
    insert = f"INSERT INTO rows VALUES (?, ?, ?, {', '.join('?' * len(columns))})"
    cursor = entries.execute("SELECT log, seq_num, hash, payload FROM entries ORDER BY log, seq_num")
    written = 0
    while chunk := cursor.fetchmany(2_000):
        rows = []
        for log, seq_num, entry_hash, payload in chunk:
            message = decode_message(payload)
            if not isinstance(message, Create):
                continue
            migration = definition.migration(message.schema.version)
            assert isinstance(migration, Migration)
            values = migration.read_create(message.fields)
            cells = [v if v is None or e is None else e(v) for v, e in zip(values, encoders, strict=True)]
            rows.append((entry_hash, log, seq_num, *cells))
        view.executemany(insert, rows)
        written += len(rows)
    view.execute("COMMIT")
    view.close()
    entries.close()
    return written

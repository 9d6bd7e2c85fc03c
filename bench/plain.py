"""The baseline of the pipeline: a straightforward materialiser in one process, with the same strict decoding.

It reads the entries log by log, decodes and migrates each create, and writes rows with where they came from into one
table: what one would write without thinking of late payloads, forks, reverts or crashes. A row stands for its create's
outcome, as in the pipeline's own tables.
"""

import sqlite3
from pathlib import Path

from inkgrove.messages import Create, decode_message
from inkgrove.schema import Migration, ViewDefinition
from inkgrove.store.views import cell_encoder

PROVENANCE = (
    "instance BLOB PRIMARY KEY, author BLOB, log_id INTEGER, seq_num INTEGER, last_seq_num INTEGER, log INTEGER"
)


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
    view.execute(f"CREATE TABLE rows ({PROVENANCE}, {names})")
    view.execute("BEGIN")
    insert = f"INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?, {', '.join('?' * len(columns))})"
    logs = {
        number: (author, log_id) for number, author, log_id in entries.execute("SELECT id, author, log_id FROM logs")
    }
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
            rows.append((entry_hash, *logs[log], seq_num, seq_num, log, *cells))
        view.executemany(insert, rows)
        written += len(rows)
    view.execute("COMMIT")
    view.close()
    entries.close()
    return written

"""The tables of erasing: instances whose content is to go or is gone, and how far the logs were looked through.

docs/protocol.md section 9.5. Times are microseconds since 1970.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, Table

from inkgrove.store.db.log_tables import Bytes, metadata

erasures = Table(
    "erasures",
    metadata,
    Column("instance", Bytes, primary_key=True),
    Column("log", BigInteger),  # none while nothing of it is held, as after a restore
    Column("create_seq", BigInteger),
    Column("since", BigInteger, nullable=False),  # the grace begins: a delete came, or it expired; 0: asked for at once
    Column("erased", BigInteger),  # none while the content is there
)
Index(None, erasures.c.log, erasures.c.create_seq)
Index(
    None,
    erasures.c.since,
    sqlite_where=erasures.c.erased.is_(None),
    postgresql_where=erasures.c.erased.is_(None),
)

erasure_progress = Table(
    "erasure_progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: up to where the logs were looked through
    Column("xid", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)

erasure_journal = Table(
    "erasure_journal",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row
    Column("applied", BigInteger, nullable=False),  # bytes of the journal in the home whose instances are erased here
    Column("compacted", BigInteger, nullable=False),  # up to when what was erased is gone from the files too
)

"""The tables of data rot: what is known of every foreign copy, what readers did, and what the runs did to it.

docs/protocol.md section 9. A tick is the number of a run. Times are microseconds since 1970.
"""

from typing import Final, Literal

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, String, Table, Text

from inkgrove.store.db.log_tables import KEY, Bytes, logs, metadata, schemas

Step = Literal["full", "no-blobs", "cooked", "stub", "gone"]
LADDER: Final[tuple[Step, ...]] = ("full", "no-blobs", "cooked", "stub", "gone")
SHOWN: Final[tuple[Step, ...]] = ("full", "no-blobs")
"""Those whose payloads are held, so that views show them."""
ROTTED: Final[tuple[Step, ...]] = ("cooked", "stub")
"""Those that refuse to come back unasked."""

copies = Table(
    "copies",
    metadata,
    Column("instance", Bytes, primary_key=True),
    Column("log", ForeignKey(logs.c.id), nullable=False),
    Column("create_seq", BigInteger, nullable=False),
    Column("schema", ForeignKey(schemas.c.id), nullable=False),
    Column("arrival", BigInteger, nullable=False),  # the position at which it came
    Column("noted", BigInteger, nullable=False),  # the time at which it was found to be here
    Column("born", BigInteger, nullable=False),  # the tick
    Column("bytes", BigInteger, nullable=False),  # of the payloads; those of blobs are looked up
    Column("expires", BigInteger),  # as its owner says
    Column("ended", BigInteger),  # when its delete was found to be here
    Column("freshness", Double, nullable=False),
    Column("reads", Double, nullable=False),  # decayed, as of the last one
    Column("last_read", BigInteger),  # the tick
    Column("step", String(8), nullable=False),
    Column("changed", BigInteger, nullable=False),  # when it came to this step
    Column("run", BigInteger),  # the run that took it there
    Column("why", Text),
    Column("cooked", BigInteger),  # the run whose summaries it is part of; it stays there when it is fetched again
    Column("fetched", Integer, nullable=False),  # how often somebody wanted it back
)
Index(None, copies.c.log, copies.c.create_seq, unique=True)

copy_reads = Table(
    "copy_reads",  # not yet taken into account by a run
    metadata,
    Column("instance", Bytes, primary_key=True),
    Column("count", BigInteger, nullable=False),
)

pins = Table(
    "pins",
    metadata,
    Column("instance", Bytes, primary_key=True),
    Column("identity", Bytes, primary_key=True),
    Column("pinned", BigInteger, nullable=False),
)

answered = Table("answered", metadata, Column("instance", Bytes, primary_key=True))  # named by instances of our own

rot_progress = Table(
    "rot_progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: up to where the logs were looked through
    Column("xid", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)

rot_runs = Table(
    "rot_runs",
    metadata,
    Column("tick", BigInteger, primary_key=True, autoincrement=False),
    Column("seed", BigInteger, nullable=False),
    Column("now", BigInteger, nullable=False),  # the clock of the whole run, also when it is taken up again
    Column("policy", Text, nullable=False),  # JSON
    Column("state", String(8), nullable=False),  # begun, planned, done
    Column("finished", BigInteger),
    Column("report", Text),  # JSON: by step, before and after; freshness in twenty bins
)

rot_victims = Table(
    "rot_victims",  # what a planned run has still to do
    metadata,
    Column("instance", Bytes, primary_key=True),
    Column("log", BigInteger, nullable=False),
    Column("create_seq", BigInteger, nullable=False),
    Column("step", String(8), nullable=False),
    Column("why", Text, nullable=False),
)

summaries = Table(
    "summaries",
    metadata,
    Column("run", BigInteger, primary_key=True, autoincrement=False),
    Column("reader", Bytes, primary_key=True),  # who could see it: an identity, nobody in particular, or everything
    Column("owner", Bytes, primary_key=True),  # the identity, or the key of one that is not known
    Column("schema", KEY, primary_key=True, autoincrement=False),
    Column("month", String(7), primary_key=True),
    Column("field", String(63), primary_key=True),  # empty: the copies themselves
    Column("count", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sum", Double),
    Column("min", Double),
    Column("max", Double),
    Column("quantiles", Bytes),  # KLL sketch of doubles
    Column("distinct", Bytes),  # HLL sketch of texts
    Column("first", Bytes, nullable=False),
    Column("last", Bytes, nullable=False),
)
Index(None, summaries.c.schema, summaries.c.reader)

PUBLIC: Final = b""
"""The reader of what everybody could see."""
EVERYTHING: Final = b"*"
"""The reader of all that was cooked, for the administrator."""

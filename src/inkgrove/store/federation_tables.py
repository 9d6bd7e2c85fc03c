"""The tables of sharing and replication: what is due to whom, what waits for somebody's word, what is public.

docs/protocol.md section 8. There is one row for each instance and recipient, not one for each message: what was said
since the last receipt is looked up when it is sent, so sending twice or late loses and doubles nothing.
"""

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, String, Table, Text

from inkgrove.store.tables import KEY, Bytes, logs, metadata, schemas

deliveries = Table(
    "deliveries",
    metadata,
    Column("place", KEY, primary_key=True),  # the order within a queue
    Column("instance", Bytes, nullable=False),
    Column("recipient", Bytes, nullable=False),
    Column("via", Bytes, nullable=False),  # the identity of this node that sends: the owner, or who passes it on
    Column("wanted", BigInteger, nullable=False),  # the newest message that they are to have; 2^63-1: hosted here
    Column("delivered", BigInteger, nullable=False),  # the newest that they have, as their node said
    Column("state", String(12), nullable=False),  # waiting, delivered, held, refused, given-up
    Column("code", String(64)),  # of the last failure
    Column("queued", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, deliveries.c.instance, deliveries.c.recipient, deliveries.c.via, unique=True)
Index(None, deliveries.c.state, deliveries.c.recipient)

pending_recipients = Table(
    "pending_recipients",  # names that an instance was sent to and that could not be found yet
    metadata,
    Column("id", KEY, primary_key=True),
    Column("name", String(253), nullable=False),
    Column("instance", Bytes, nullable=False),
    Column("via", Bytes, nullable=False),  # the identity of this node that sends
    Column("state", String(12), nullable=False),  # waiting, refused, given-up; who is found gets a delivery instead
    Column("code", String(64)),
    Column("queued", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, pending_recipients.c.instance, pending_recipients.c.via, pending_recipients.c.name, unique=True)
Index(None, pending_recipients.c.state, pending_recipients.c.name)
Index(None, pending_recipients.c.via, pending_recipients.c.changed)

targets = Table(
    "targets",
    metadata,
    Column("target", String(300), primary_key=True),  # a node by its key, or a recipient whose node is not known yet
    Column("failures", Integer, nullable=False),
    Column("next_try", BigInteger, nullable=False),
    Column("failing_since", BigInteger, nullable=False),
    Column("error", Text, nullable=False),
)

request_box = Table(
    "request_box",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("recipient", Bytes, nullable=False),
    Column("via", Bytes, nullable=False),
    Column("instance", Bytes, nullable=False),
    Column(
        "parcel", Bytes, nullable=False
    ),  # verified, and taken in only when accepted; empty: it is held here already
    Column("arrived", BigInteger, nullable=False),
    Column("schema", Text),  # author/log, as the create names it
)
Index(None, request_box.c.recipient, request_box.c.via, request_box.c.instance, unique=True)
Index(None, request_box.c.instance)

accepted_senders = Table(
    "accepted_senders",  # whose deliveries an identity of this node takes in without being asked; follows nobody
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("sender", Bytes, primary_key=True),
    Column("since", BigInteger, nullable=False),
)
Index(None, accepted_senders.c.sender)

peers = Table(
    "peers",
    metadata,
    Column("fqdn", String(253), primary_key=True),
    Column("added", BigInteger, nullable=False),
    Column("synced", BigInteger),
    Column("error", Text),
    Column("node_key", Bytes),  # whose positions the next column means
    Column("position", Text),  # up to where its offers were taken, in its own words
)

notices = Table(
    "notices",
    metadata,
    Column("id", KEY, primary_key=True),  # a later move of the same kind replaces the row
    Column("me", Bytes, nullable=False),
    Column("other", Bytes, nullable=False),
    Column("as_follower", Boolean, nullable=False),  # on which side of the relation `me` stands
    Column("move", String(12), nullable=False),
    Column("queued", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, notices.c.me, notices.c.other, notices.c.as_follower, unique=True)
Index(None, notices.c.other)

backlogs = Table(
    "backlogs",  # new followers elsewhere who are still to get what the one they follow published before
    metadata,
    Column("followee", Bytes, primary_key=True),
    Column("follower", Bytes, primary_key=True),
    Column("queued", BigInteger, nullable=False),
)

early_ends = Table(
    "early_ends",  # told before the create came, which may still be on its way in a request that was given up
    metadata,
    Column("author", Bytes, primary_key=True),
    Column("log_id", BigInteger, primary_key=True, autoincrement=False),
    Column("instance", String(200), primary_key=True),  # as the message names it: a hash in hex, or a sequence number
    Column("expires", BigInteger, nullable=False),
)
Index(None, early_ends.c.expires)

public_instances = Table(
    "public_instances",  # follows from the logs; remembered so that nobody has to read them all
    metadata,
    Column("log", ForeignKey(logs.c.id), primary_key=True, autoincrement=False),
    Column("create_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("is_deleted", Boolean, nullable=False),
    Column("expires", BigInteger),  # the newest word; what has expired is offered to nobody
)

wanted_schemas = Table(
    "wanted_schemas",
    metadata,
    Column("schema", ForeignKey(schemas.c.id), primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),  # the newest that something held here names
    Column("failures", Integer, nullable=False),
    Column("next_try", BigInteger, nullable=False),
    Column("via", Bytes),  # who brought what names it, if somebody did
)

index_progress = Table(
    "index_progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: up to where the logs were followed
    Column("xid", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)

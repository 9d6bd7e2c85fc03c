"""The tables of sharing: what is to be delivered to whom, what waits for a recipient's word, and who is a peer.

docs/protocol.md section 8. There is one row for each instance and recipient, not one for each message: what was said
since the last receipt is looked up when it is sent, so sending twice or late loses and doubles nothing.
"""

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, Text

from inkgrove.store.tables import KEY, Bytes, metadata

deliveries = Table(
    "deliveries",
    metadata,
    Column("place", KEY, primary_key=True),  # the order within a queue
    Column("instance", Bytes, nullable=False),
    Column("recipient", Bytes, nullable=False),
    Column("via", Bytes, nullable=False),  # the identity of this node that sends: the owner, or who passes it on
    Column("wanted", BigInteger, nullable=False),  # the newest message that the recipient is to have
    Column("delivered", BigInteger, nullable=False),  # the newest that they have, as their node said
    Column("state", String(12), nullable=False),  # waiting, delivered, held, refused, given-up
    Column("code", String(64)),  # of the last failure
    Column("queued", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, deliveries.c.instance, deliveries.c.recipient, deliveries.c.via, unique=True)
Index(None, deliveries.c.state, deliveries.c.recipient)

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
    Column("parcel", Bytes, nullable=False),  # verified, and taken in only when the recipient accepts the sender
    Column("arrived", BigInteger, nullable=False),
)
Index(None, request_box.c.recipient, request_box.c.via, request_box.c.instance, unique=True)

peers = Table(
    "peers",
    metadata,
    Column("fqdn", String(253), primary_key=True),
    Column("added", BigInteger, nullable=False),
    Column("synced", BigInteger),
    Column("error", Text),
)

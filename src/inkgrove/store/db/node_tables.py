"""The tables of a node beside its logs: identities and their keys, services, relations, shares, blobs, other nodes.

docs/protocol.md sections 7 and 8. Deliveries have one row for each instance and recipient, not one for each message:
what is newer than the last receipt is read when it is sent, so sending twice or late loses and doubles nothing.
Secrets are never stored as they are: passwords as argon2 hashes, tokens as SHA-256, keys encrypted. Times are
microseconds since 1970, as everywhere.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    false,
    text,
    true,
)

from inkgrove.store.db.log_tables import KEY, Bytes, TransactionId, logs, metadata, schemas

# Identities

identities = Table(
    "identities",
    metadata,
    Column("id", Bytes, primary_key=True),
    Column("fqdn", String(253), nullable=False, unique=True),
    Column("key", Bytes, nullable=False),  # the first one, whose thumbprint the id is
    Column("password", Text),  # none: nobody can sign in with one
    Column("created", BigInteger, nullable=False),
    Column("endpoint", Text),  # of the last document that was taken here; none if that is not known
    Column("lives_here", Boolean, nullable=False, server_default=true()),  # false: it has moved to another node
    Column("first_key_lost", Boolean, nullable=False, server_default=false()),  # an old node has destroyed the only one
)

identity_keys = Table(
    "identity_keys",
    metadata,
    Column("author", Bytes, primary_key=True),  # a key has one identity
    Column("identity", Bytes, nullable=False),  # hosted here or known from its document
    Column("sealed", Bytes),  # the secret, encrypted; none if the client keeps it or the identity is not hosted here
    Column("revoked", Text),  # JSON: [log id, last seq that counts, its hash?] of each log; none while the key counts
)
Index(None, identity_keys.c.identity)

names = Table(
    "names",
    metadata,
    Column("fqdn", String(253), primary_key=True),
    Column("identity", Bytes, nullable=False),  # who has it, or had it last
    Column("is_given", Boolean, nullable=False),  # by the operator: it counts whatever the domains are
    Column("checked", BigInteger, nullable=False),  # when other servers were last seen to lead here under it; 0: never
    Column("left_at", BigInteger),  # none while the identity has it; 0: not dated yet
)
Index(None, names.c.identity)

administrators = Table(
    "administrators",
    metadata,
    Column("fqdn", String(253), primary_key=True),  # as the setting lists it
    Column("identity", Bytes, nullable=False),  # who has the rights, whatever their name is now
    Column("bound", BigInteger, nullable=False),
)
Index(None, administrators.c.identity)

closings = Table(
    "closings",  # accounts that are being closed or were; a row outlives its identity, for the certificate
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("fqdn", String(253), nullable=False),
    Column("token", Bytes, nullable=False, unique=True),  # SHA-256 of what was given to whoever closed it
    Column("state", String(12), nullable=False),  # deleting, delivering, parting, closed
    Column("begun", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),  # instances to delete
    Column("deleted", BigInteger, nullable=False),
    Column("undeleted", BigInteger, nullable=False),  # those that could not be
    Column("log", BigInteger, nullable=False),  # up to where instances were looked at
    Column("seq_num", BigInteger, nullable=False),
    Column("facts", Text, nullable=False),  # JSON, for the certificate
    Column("closed", BigInteger),
    Column("certificate", Text),  # JSON
)

moves_out = Table(
    "moves_out",  # identities that are about to leave for another node, with its help, and those that did
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("state", String(8), nullable=False),  # leaving, moved
    Column("grant", Bytes, nullable=False, unique=True),  # SHA-256 of what the new node shows
    Column("fqdn", String(253), nullable=False),  # the name that it has there
    Column("endpoint", Text, nullable=False),  # where it is reached there
    Column("node_key", Bytes, nullable=False),  # what the new node signs its requests with
    Column("file", String(32), nullable=False),  # the id of the export that goes there
    Column("since", BigInteger, nullable=False),  # when it began to leave
    Column("controller", Bytes),  # once it has moved: the key that speaks for it there
    Column("answer", Bytes),  # what the new node was told then
)

moves_in = Table(
    "moves_in",  # identities that come here from another node; seen by nobody until they are `here`
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("token", Bytes, nullable=False, unique=True),  # SHA-256 of what was given to whoever brings it
    Column("state", String(12), nullable=False),  # asked, fetching, arriving, committing, here
    Column("way", String(12), nullable=False),  # helped, file, friends
    Column("key", Bytes, nullable=False),  # the first one, whose thumbprint the identity is
    Column("fqdn", String(253), nullable=False),  # the name that it takes here
    Column("password", Text),  # as in `identities`
    Column("controller", Bytes, nullable=False),  # the key that this node will speak with
    Column("sealed", Bytes, nullable=False),  # its secret
    Column("key_of", Bytes, nullable=False),  # entry 1 of its log 0
    Column("request", Text, nullable=False),  # JSON: what was asked for, by way
    Column("grant_sealed", Bytes),  # what the old node gave to a helped move
    Column("facts", Text, nullable=False),  # JSON: what has been found out on the way
    Column("answer", Text),  # JSON: the entries that have made it live here
    Column("code", String(64)),  # of what keeps it from going on
    Column("reason", Text),
    Column("begun", BigInteger, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("finished", BigInteger),  # when all that follows `here` was done too
)

# Sessions and services

sessions = Table(
    "sessions",
    metadata,
    Column("token", Bytes, primary_key=True),  # SHA-256 of what the client holds
    Column("identity", ForeignKey(identities.c.id), nullable=False),
    Column("expires", BigInteger, nullable=False),
    # What its owner sees of it; 0 and empty if it is from before this was written down.
    Column("created", BigInteger, nullable=False, server_default="0"),
    Column("last_used", BigInteger, nullable=False, server_default="0"),  # within some minutes
    Column("label", String(100), nullable=False, server_default=""),
)
Index(None, sessions.c.identity)

attempts = Table(
    "attempts",
    metadata,
    Column("who", String(80), primary_key=True),  # SHA-256 of a name, an address or both, and what it tries
    Column("tries", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),
)

clients = Table(
    "clients",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", Text, nullable=False),
    Column("redirect_uris", Text, nullable=False),  # JSON
    Column("created", BigInteger, nullable=False),
)

grants = Table(
    "grants",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("identity", ForeignKey(identities.c.id), nullable=False),
    Column("client", ForeignKey(clients.c.id), nullable=False),
    Column("scopes", Text, nullable=False),  # as granted: author and log, never a name
    Column("created", BigInteger, nullable=False),
    Column("revoked", BigInteger),
)
Index(None, grants.c.identity)
Index(None, grants.c.client)

codes = Table(
    "codes",
    metadata,
    Column("code", Bytes, primary_key=True),  # SHA-256
    Column("grant", ForeignKey(grants.c.id), nullable=False),
    Column("redirect_uri", Text, nullable=False),
    Column("challenge", String(128), nullable=False),
    Column("expires", BigInteger, nullable=False),
    Column("used", Boolean, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token", Bytes, primary_key=True),  # SHA-256
    Column("grant", ForeignKey(grants.c.id), nullable=False),
    Column("kind", String(8), nullable=False),  # access or refresh
    Column("expires", BigInteger, nullable=False),
    Column("used", Boolean, nullable=False),  # a refresh token is good for one use; a second one ends the grant
)
Index(None, tokens.c.grant)

accesses = Table(
    "accesses",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("grant", ForeignKey(grants.c.id), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("action", String(20), nullable=False),
    Column("schema", Text),  # author/log; none for relations and blobs
    Column("instance", Bytes),  # or the blob, if one was uploaded or downloaded; none if it was a page
    sqlite_autoincrement=True,
)
Index(None, accesses.c.grant, accesses.c.id)
Index(None, accesses.c.at)

# Who may see what

relations = Table(
    "relations",
    metadata,
    Column("follower", Bytes, primary_key=True),
    Column("followee", Bytes, primary_key=True),
    Column("state", String(12), nullable=False),  # requested, accepted, refused, blocked
    Column("follower_group", String(64)),  # where the follower has put it
    Column("followee_group", String(64)),
    Column("changed", BigInteger, nullable=False),
)
Index(None, relations.c.followee)

shares = Table(
    "shares",
    metadata,
    Column("instance", Bytes, primary_key=True),
    Column("identity", Bytes, primary_key=True),  # whom it was sent to, hosted here or not
    Column("shared", BigInteger, nullable=False),
)
Index(None, shares.c.identity)

visibility_changes = Table(
    "visibility_changes",  # written by triggers on the two tables above
    metadata,
    Column("id", KEY, primary_key=True),
    Column("xid", BigInteger, nullable=False, server_default=TransactionId()),
    Column("reader", Bytes, nullable=False),  # whose sight has changed
    Column("instance", Bytes),  # of one instance that was sent
    Column("followee", Bytes),  # or of all that this identity shows to its followers
    Column("is_gained", Boolean, nullable=False),
    sqlite_autoincrement=True,
)
Index(None, visibility_changes.c.reader, visibility_changes.c.id)
Index(None, visibility_changes.c.xid, visibility_changes.c.id)


def create_visibility_triggers(connection: Connection) -> None:
    """Let every change of shares and relations be noted in `visibility_changes`, whoever makes it."""
    was, is_now = "(OLD.state = 'accepted')", "(NEW.state = 'accepted')"
    for name, event, condition, values in (
        ("shares", "INSERT", "", "NEW.identity, NEW.instance, NULL, TRUE"),
        ("shares", "DELETE", "", "OLD.identity, OLD.instance, NULL, FALSE"),
        ("relations", "INSERT", is_now, f"NEW.follower, NULL, NEW.followee, {is_now}"),
        ("relations", "UPDATE", f"{was} <> {is_now}", f"NEW.follower, NULL, NEW.followee, {is_now}"),
        ("relations", "DELETE", was, "OLD.follower, NULL, OLD.followee, FALSE"),
    ):
        trigger = f"{name}_seen_after_{event.lower()}"
        work = f"""INSERT INTO visibility_changes (reader, instance, followee, is_gained) VALUES ({values});
            DELETE FROM visibility_changes WHERE id <= (SELECT max(id) FROM visibility_changes) - 100000;"""
        body = f"BEGIN {work} END"
        if connection.dialect.name == "postgresql":
            function = f"BEGIN {work} RETURN NULL; END"
            connection.execute(
                text(f"CREATE FUNCTION {trigger}() RETURNS trigger LANGUAGE plpgsql AS $$ {function} $$")
            )
            body = f"EXECUTE FUNCTION {trigger}()"
        when = f"FOR EACH ROW WHEN ({condition})" if condition else "FOR EACH ROW"
        connection.execute(text(f"CREATE TRIGGER {trigger} AFTER {event} ON {name} {when} {body}"))


# Publishing

idempotency = Table(
    "idempotency",
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("client", String(64), primary_key=True),  # empty: the identity itself
    Column("key", String(255), primary_key=True),
    Column("request", Bytes, nullable=False),  # SHA-256 of what was asked
    Column("status", Integer, nullable=False),
    Column("answer", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)
Index(None, idempotency.c.at)

# Blobs

blobs = Table(
    "blobs",
    metadata,
    Column("hash", Bytes, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("unused_since", BigInteger),  # for the garbage collection; none while something refers to it
)

blob_rights = Table(
    "blob_rights",
    metadata,
    Column("hash", ForeignKey(blobs.c.hash), primary_key=True),
    Column("identity", Bytes, primary_key=True),  # who uploaded it here, or whose node sent it: may lend it to readers
    Column("media_type", String(255), nullable=False),
)

identity_usage = Table(
    "identity_usage",
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("entries", BigInteger, nullable=False),  # published here
    Column("payload_bytes", BigInteger, nullable=False),
    Column("blob_bytes", BigInteger, nullable=False),  # uploaded and not yet removed
    # What the administrator gave to this one; none: as the settings say.
    Column("max_entries", BigInteger),
    Column("max_payload_bytes", BigInteger),
    Column("max_blob_bytes", BigInteger),
)

blob_uploads = Table(
    "blob_uploads",
    metadata,
    Column("hash", ForeignKey(blobs.c.hash), primary_key=True),
    Column("identity", Bytes, primary_key=True),
    Column("client", String(64), primary_key=True),  # the service that uploaded it in the name of the identity
)

# Whether the database is older than it was

epoch = Table(
    "epoch",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row
    Column("name", String(64), nullable=False),  # of the mark that lies in the home, beside the database
    Column("behind_since", BigInteger),  # set while the database may be older than it was: nothing is signed
    Column("reason", Text),
    Column("waits_for", Text),  # JSON: the nodes that are still to be asked, each with why
    Column("resumed", BigInteger, nullable=False, server_default="0"),  # how often signing went on after `behind_since`
)

# Other nodes

node_keys = Table(
    "node_keys",
    metadata,
    Column("id", KEY, primary_key=True),  # the newest one signs
    Column("key", Bytes, nullable=False),
    Column("sealed", Bytes, nullable=False),
    Column("created", BigInteger, nullable=False),
)

known_identities = Table(
    "known_identities",
    metadata,
    Column("id", Bytes, primary_key=True),
    Column("fqdn", String(253), nullable=False, unique=True),
    Column("endpoint", Text, nullable=False),
    Column("key", Bytes, nullable=False),  # the first one, whose thumbprint the id is
    Column("document_seq", BigInteger, nullable=False),
    Column("node_key", Bytes, nullable=False),
    Column("fetched", BigInteger, nullable=False),
    Column("expires", BigInteger, nullable=False),
)

nonces = Table(
    "nonces",
    metadata,
    Column("nonce", Bytes, primary_key=True),  # SHA-256 of sender and nonce
    Column("expires", BigInteger, nullable=False),  # from then on the signature is refused for its age
)
Index(None, nonces.c.expires)

blob_references = Table(
    "blob_references",
    metadata,
    Column("hash", Bytes, primary_key=True),  # held here or not
    Column("instance", Bytes, primary_key=True),
    Column("author", Bytes, primary_key=True),  # who says so; it counts if the instance is theirs
    Column("schema_author", Bytes, nullable=False),
    Column("schema_log_id", BigInteger, nullable=False),
    Column("media_type", String(255), nullable=False),
    Column("is_lent", Boolean, nullable=False),  # the author could read it when they said so, or their node sent it
    # A service said so in the author's name that may not read it: the author's own rights lend nothing.
    Column("is_withheld", Boolean, nullable=False, server_default=false()),
    Column("is_decided", Boolean, nullable=False, server_default=true()),  # whether the two above were asked
    # What the messages of the instance say of who may see it; nothing lends that has no log here.
    Column("log", BigInteger),
    Column("create_seq", BigInteger),
    Column("last_seq", BigInteger),  # the last message that this follows from
    Column("mode", String(10)),
    Column("access", Text),  # as rows of views have it
    Column("expires", BigInteger),
)
Index(None, blob_references.c.instance)
Index(None, blob_references.c.log, blob_references.c.create_seq)
Index(None, blob_references.c.hash, blob_references.c.mode)

blob_progress = Table(
    "blob_progress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # one row: up to where the logs were searched
    Column("xid", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
)

# Sharing and replication

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
    Column("parcel", Bytes, nullable=False),  # verified, ingested only when accepted; empty: it is held here already
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

relocations = Table(
    "relocations",  # identities elsewhere whose newest document leads to another place than where they were found
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("is_new_node", Boolean, nullable=False),  # found there: what the old node took is offered again
    Column("version", BigInteger, nullable=False),  # grows whenever there is news; what was done is for the one before
)

document_notices = Table(
    "document_notices",  # whom this node still has to tell of the newest document of an identity that lives here
    metadata,
    Column("identity", Bytes, primary_key=True),
    Column("target", String(253), primary_key=True),  # an identity elsewhere by its id in hex, or a peer by its FQDN
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

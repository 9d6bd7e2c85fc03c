"""Accounts that are being closed, and those that were: progress, who has answered, and what goes at the end.

docs/protocol.md section 7.9. A row outlives its identity: it holds the certificate, for whoever has the token.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.store.db.connection import Compiled
from inkgrove.store.db.erasure_tables import erasures
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import (
    accepted_senders,
    accesses,
    backlogs,
    blob_rights,
    blob_uploads,
    closings,
    codes,
    deliveries,
    document_notices,
    grants,
    idempotency,
    identities,
    identity_keys,
    identity_usage,
    moves_in,
    notices,
    pending_recipients,
    relations,
    request_box,
    sessions,
    shares,
    tokens,
    visibility_changes,
)
from inkgrove.store.federation.outbox import LOCAL_DELIVERY, OF_ERASED

ClosingState = Literal["deleting", "delivering", "parting", "closed"]
"""Deletes are signed; others answer; relations end; all is over."""


@dataclass(frozen=True, slots=True)
class StoredClosing:
    """How far the closing of an account has come."""

    identity: IdentityId
    fqdn: str
    state: ClosingState
    begun: int
    total: int
    """How many instances there were to delete."""
    deleted: int
    undeleted: int
    """How many could not be deleted."""
    log: int
    seq_num: int
    """Up to which entry, of which log (the store's own number), instances were looked at."""
    facts: str
    """JSON: what was counted on the way, for the certificate."""
    closed: int | None
    certificate: str | None
    """JSON, once it is closed."""


_COLUMNS: Final = [closings.c[name] for name in StoredClosing.__slots__]


def _closing(row: Any) -> StoredClosing:
    return StoredClosing(IdentityId(row[0]), *row[1:])


def add_closing(
    connection: Connection, identity: IdentityId, fqdn: str, token: bytes, *, total: int, facts: str, now: int
) -> None:
    """Begin to close an account; `token` is the hash of the one that shows how far it has come.

    An earlier closing of the same identity, which came back since, is replaced.
    """
    connection.execute(delete(closings).where(closings.c.identity == identity))
    row = {"identity": identity, "fqdn": fqdn, "token": token, "state": "deleting", "begun": now, "total": total}
    connection.execute(insert(closings), {**row, "deleted": 0, "undeleted": 0, "log": 0, "seq_num": 0, "facts": facts})


def find_closing(connection: Connection, token: bytes) -> StoredClosing | None:
    """Find a closing by the hash of its token."""
    row = connection.execute(select(*_COLUMNS).where(closings.c.token == token)).first()
    return None if row is None else _closing(row)


def read_closing(connection: Connection, identity: IdentityId) -> StoredClosing | None:
    """Read the closing of an identity."""
    row = connection.execute(select(*_COLUMNS).where(closings.c.identity == identity)).first()
    return None if row is None else _closing(row)


def lock_closing(connection: Connection, identity: IdentityId, state: ClosingState) -> StoredClosing | None:
    """Read the closing of an identity if it is in a state; nobody else goes on with it before the transaction ends."""
    query = select(*_COLUMNS).where(closings.c.identity == identity, closings.c.state == state)
    row = connection.execute(query.with_for_update()).first()
    return None if row is None else _closing(row)


def list_open_closings(connection: Connection) -> list[IdentityId]:
    """The identities whose accounts are being closed, the one that began first first."""
    return [IdentityId(identity) for (identity,) in _open.rows(connection)]


def is_closing(connection: Connection, identity: IdentityId) -> bool:
    """Whether the account of an identity is being closed."""
    return _is_closing.first(connection, identity=identity) is not None


_is_closing: Final = Compiled(
    lambda _: select(closings.c.identity).where(
        closings.c.identity == bindparam("identity"), closings.c.state != "closed"
    )
)
_open: Final = Compiled(
    lambda _: select(closings.c.identity).where(closings.c.state != "closed").order_by(closings.c.begun)
)


def set_closing(connection: Connection, identity: IdentityId, **values: Any) -> None:
    """Set columns of a closing."""
    connection.execute(update(closings).where(closings.c.identity == identity).values(values))


def forget_closings(connection: Connection, closed_before: int) -> None:
    """Forget the certificates of accounts that were closed before a time."""
    connection.execute(delete(closings).where(closings.c.closed < closed_before))


# What is to be deleted


class OwnInstance(NamedTuple):
    """A create that no delete ends, by whichever key of the identity."""

    log: int
    seq_num: int
    hash: Hash


def _undeleted(identity: IdentityId) -> ColumnElement[bool]:
    keys = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    own = select(logs.c.id).where(logs.c.author.in_(keys), logs.c.log_id > 0)
    ending = entries.alias()
    is_ended = exists().where(
        ending.c.log == entries.c.log, ending.c.create_seq == entries.c.seq_num, ending.c.kind == "delete"
    )
    # Another key of the identity may have ended it in its own log (docs/protocol.md section 5.7).
    elsewhere = entries.alias()
    is_ended_elsewhere = exists().where(
        elsewhere.c.ref_hash == entries.c.hash, elsewhere.c.kind == "delete", elsewhere.c.log.in_(own)
    )
    return and_(entries.c.log.in_(own), entries.c.kind == "create", ~is_ended, ~is_ended_elsewhere)


def count_undeleted(connection: Connection, identity: IdentityId) -> int:
    """How many instances of an identity no delete ends."""
    return connection.scalar(select(func.count()).select_from(entries).where(_undeleted(identity))) or 0


def next_undeleted(
    connection: Connection, identity: IdentityId, *, log: int, seq_num: int, limit: int
) -> list[OwnInstance]:
    """The next instances of an identity that no delete ends, behind an entry of a log."""
    is_behind = or_(entries.c.log > log, and_(entries.c.log == log, entries.c.seq_num > seq_num))
    query = select(entries.c.log, entries.c.seq_num, entries.c.hash).where(_undeleted(identity), is_behind)
    found = connection.execute(query.order_by(entries.c.log, entries.c.seq_num).limit(limit))
    return [OwnInstance(row[0], row[1], Hash(row[2])) for row in found]


# Who has answered


def stop_new_deliveries(connection: Connection, identity: IdentityId, now: int) -> None:
    """Let nothing more begin: names that were not found are given up, new followers get nothing from before."""
    waiting = and_(pending_recipients.c.via == identity, pending_recipients.c.state == "waiting")
    values = {"state": "given-up", "code": "identity.unknown", "changed": now}
    connection.execute(update(pending_recipients).where(waiting).values(values))
    connection.execute(delete(backlogs).where(or_(backlogs.c.followee == identity, backlogs.c.follower == identity)))


def ask_for_erased(connection: Connection, identity: IdentityId, now: int) -> None:
    """Send the deletes of an identity once more to whose nodes have them and have not said that all is erased."""
    is_silent = or_(deliveries.c.code.is_(None), deliveries.c.code != OF_ERASED)
    is_told = and_(
        deliveries.c.via == identity, deliveries.c.wanted < LOCAL_DELIVERY, deliveries.c.state == "delivered"
    )
    own = select(entries.c.hash).join_from(entries, logs).where(logs.c.author.in_(_keys_of(identity)))
    values = {"state": "waiting", "delivered": 0, "queued": now}
    connection.execute(update(deliveries).where(is_told, is_silent, deliveries.c.instance.in_(own)).values(values))


def ask_for_erasures(connection: Connection, identity: IdentityId) -> None:
    """Let the grace of everything that an identity has deleted be over."""
    own = select(logs.c.id).where(logs.c.author.in_(_keys_of(identity)))
    waits = and_(erasures.c.erased.is_(None), erasures.c.log.in_(own))
    connection.execute(update(erasures).where(waits).values(since=0))


def count_erasures(connection: Connection, identity: IdentityId) -> int:
    """How many instances of an identity were erased here."""
    own = select(logs.c.id).where(logs.c.author.in_(_keys_of(identity)))
    query = select(func.count()).select_from(erasures).where(erasures.c.erased.is_not(None), erasures.c.log.in_(own))
    return connection.scalar(query) or 0


def _keys_of(identity: IdentityId) -> Any:
    return select(identity_keys.c.author).where(identity_keys.c.identity == identity)


def count_unanswered(connection: Connection, identity: IdentityId) -> int:
    """How many deliveries of an identity wait for an answer."""
    waiting = and_(deliveries.c.via == identity, deliveries.c.state == "waiting")
    return connection.scalar(select(func.count()).select_from(deliveries).where(waiting)) or 0


def has_unanswered(connection: Connection, identity: IdentityId) -> bool:
    """Whether a delivery of an identity waits for an answer."""
    waiting = and_(deliveries.c.via == identity, deliveries.c.state == "waiting")
    return connection.scalar(select(deliveries.c.place).where(waiting).limit(1)) is not None


def has_untold(connection: Connection, identity: IdentityId) -> bool:
    """Whether others have not received a move in relations of an identity yet."""
    return connection.scalar(select(notices.c.id).where(notices.c.me == identity).limit(1)) is not None


class RecipientAnswers(NamedTuple):
    """How many instances of an identity a recipient elsewhere was sent, by what came of their deletes.

    `erased`: delivered, and the recipient's node says that the content is gone.
    """

    recipient: IdentityId
    states: dict[str, int]


def read_answers(connection: Connection, identity: IdentityId) -> list[RecipientAnswers]:
    """Read what recipients on other nodes answered to the deletes of an identity's own instances."""
    keys = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    is_erased = and_(deliveries.c.state == "delivered", deliveries.c.code == OF_ERASED)
    state = case((is_erased, "erased"), else_=deliveries.c.state).label("answer")
    query = (
        select(deliveries.c.recipient, state, func.count())
        .select_from(deliveries)
        .join(entries, entries.c.hash == deliveries.c.instance)
        .join(logs, logs.c.id == entries.c.log)
        .where(deliveries.c.via == identity, deliveries.c.wanted < LOCAL_DELIVERY, logs.c.author.in_(keys))
        .group_by(deliveries.c.recipient, text("answer"))
        .order_by(deliveries.c.recipient)
    )
    found: dict[bytes, dict[str, int]] = {}
    for recipient, answer, number in connection.execute(query):
        found.setdefault(bytes(recipient), {})[answer] = number
    return [RecipientAnswers(IdentityId(recipient), states) for recipient, states in found.items()]


# What goes


def shut_account(connection: Connection, identity: IdentityId) -> dict[str, int]:
    """Take password, sign-ins and all grants from an identity: nobody acts for it any more; how many there were."""
    own = select(grants.c.id).where(grants.c.identity == identity)
    connection.execute(update(identities).where(identities.c.id == identity).values(password=None))
    for table in (codes, tokens, accesses):
        connection.execute(delete(table).where(table.c.grant.in_(own)))
    return {
        "sign_ins": connection.execute(delete(sessions).where(sessions.c.identity == identity)).rowcount,
        "service_grants": connection.execute(delete(grants).where(grants.c.identity == identity)).rowcount,
    }


def forget_hosted_identity(connection: Connection, identity: IdentityId) -> dict[str, int]:
    """Remove everything that this node keeps for an identity besides its logs, its keys too; how much of what it was.

    That its keys were its own is still known: it follows from the logs.
    """
    kept = and_(identity_keys.c.identity == identity, identity_keys.c.sealed.is_not(None))
    is_follower = and_(relations.c.follower == identity, relations.c.state != "blocked")  # a block is somebody else's
    removed = {
        **shut_account(connection, identity),
        "keys": connection.execute(update(identity_keys).where(kept).values(sealed=None)).rowcount,
    }
    for name, table, is_theirs in (
        ("relations", relations, or_(is_follower, relations.c.followee == identity)),
        ("received_shares", shares, shares.c.identity == identity),
        ("requests", request_box, request_box.c.recipient == identity),
        ("accepted_senders", accepted_senders, accepted_senders.c.identity == identity),
        ("uploads_by_services", blob_uploads, blob_uploads.c.identity == identity),
        ("blobs", blob_rights, blob_rights.c.identity == identity),
        ("", idempotency, idempotency.c.identity == identity),
        ("", identity_usage, identity_usage.c.identity == identity),
        ("", deliveries, deliveries.c.via == identity),
        ("", pending_recipients, pending_recipients.c.via == identity),
        ("", notices, notices.c.me == identity),
        ("", document_notices, document_notices.c.identity == identity),
        ("", backlogs, or_(backlogs.c.followee == identity, backlogs.c.follower == identity)),
        ("", visibility_changes, visibility_changes.c.reader == identity),  # after what the triggers wrote
        ("", moves_in, moves_in.c.identity == identity),
        ("", identities, identities.c.id == identity),
    ):
        number = connection.execute(delete(table).where(is_theirs)).rowcount
        if name:
            removed[name] = number
    return removed


def sealed_authors(connection: Connection, identity: IdentityId) -> list[PublicKey]:
    """The keys of an identity whose secrets this node keeps."""
    query = select(identity_keys.c.author).where(
        identity_keys.c.identity == identity, identity_keys.c.sealed.is_not(None)
    )
    return [PublicKey(author) for author in connection.scalars(query.order_by(identity_keys.c.author))]

"""Identities that move between other nodes, in SQL: whom to look up anew, what to offer again, whom to tell.

docs/protocol.md section 7.10.3. A relocation is queued in the transaction that takes in the document, or that finds the
identity on another node; it stays until the identity was found where the document leads and everything was queued.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    union,
    update,
)

from inkgrove.core import Hash, IdentityId
from inkgrove.store.db.connection import Compiled, CompiledList, RetryTransaction, in_lists, insert_new
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import (
    accepted_senders,
    deliveries,
    document_notices,
    identities,
    identity_keys,
    known_identities,
    notices,
    peers,
    relations,
    relocations,
    shares,
)
from inkgrove.store.federation.outbox import LOCAL_DELIVERY
from inkgrove.store.federation.peers import MOVED
from inkgrove.store.node import LIVING

_STATES: Final = ("waiting", "delivered", "held", "refused", "given-up")


# Who has moved


class Relocation(NamedTuple):
    """An identity elsewhere to be looked up where its newest document leads."""

    identity: IdentityId
    is_new_node: bool
    """It was found on another node than before: what the old one has taken is to be offered again."""
    version: int


def note_document_place(connection: Connection, identity: IdentityId, fqdn: str, endpoint: str) -> None:
    """Mark where an identity was found as out of date if its document names another place, and queue a look-up.

    It is also looked up if it is found nowhere at the moment. Nobody is whom nothing here mentions: they are when
    somebody asks for them.
    """
    known = _place.first(connection, identity=identity)
    if known is not None and tuple(known) == (fqdn, endpoint):
        return
    if known is not None:
        is_it = known_identities.c.id == identity
        connection.execute(update(known_identities).where(is_it).values(expires=MOVED))
    if is_mentioned(connection, identity):
        queue_relocation(connection, identity)


_place: Final = Compiled(
    lambda _: select(known_identities.c.fqdn, known_identities.c.endpoint).where(
        known_identities.c.id == bindparam("identity")
    )
)


def queue_relocation(connection: Connection, identity: IdentityId, *, is_new_node: bool = False) -> None:
    """Queue an identity to be looked up, and what was sent to it to be offered again if it is on a new node."""
    values: dict[str, Any] = {"version": relocations.c.version + 1}
    if is_new_node:
        values["is_new_node"] = True
    changed = connection.execute(update(relocations).where(relocations.c.identity == identity).values(values))
    if not changed.rowcount:
        row = {"identity": identity, "is_new_node": is_new_node, "version": 1}
        begun = connection.execute(insert_new(connection, relocations).returning(relocations.c.identity), row)
        if begun.first() is None:
            raise RetryTransaction  # another process has queued it meanwhile


def is_mentioned(connection: Connection, identity: IdentityId) -> bool:
    """Whether somebody here has to do with an identity: relations, deliveries, shares, accepted senders."""
    return bool(_mentions.rows(connection, identity=identity)[0][0])


_WHO: Final[BindParameter[bytes]] = bindparam("identity")
_mentions: Final = Compiled(
    lambda _: select(
        or_(
            exists().where(relations.c.follower == _WHO),
            exists().where(relations.c.followee == _WHO),
            # With all states, the index leads to the recipient.
            exists().where(
                deliveries.c.state.in_([literal(state) for state in _STATES]), deliveries.c.recipient == _WHO
            ),
            exists().where(shares.c.identity == _WHO),
            exists().where(accepted_senders.c.sender == _WHO),
            exists().where(notices.c.other == _WHO),
        )
    )
)


def is_known(connection: Connection, identity: IdentityId) -> bool:
    """Whether an identity is hosted here, was found elsewhere, or is mentioned by something here."""
    found = or_(exists().where(known_identities.c.id == identity), exists().where(identities.c.id == identity))
    return bool(connection.scalar(select(found))) or is_mentioned(connection, identity)


def list_relocations(connection: Connection) -> list[Relocation]:
    """Every identity to be looked up anew; most of the time there is none."""
    return [
        Relocation(IdentityId(identity), bool(is_new), number) for identity, is_new, number in _all.rows(connection)
    ]


_all: Final = Compiled(lambda _: select(*(relocations.c[name] for name in Relocation._fields)))


def find_relocation(connection: Connection, identity: IdentityId) -> Relocation | None:
    """Find the relocation of an identity."""
    row = connection.execute(select(relocations).where(relocations.c.identity == identity)).first()
    return None if row is None else Relocation(IdentityId(row.identity), row.is_new_node, row.version)


def finish_relocation(connection: Connection, done: Relocation) -> None:
    """Remove a relocation, unless there has been news since."""
    is_it = and_(relocations.c.identity == done.identity, relocations.c.version == done.version)
    connection.execute(delete(relocations).where(is_it))


# What is offered again

_AT_ONCE: Final = 500


class LocalDelivery(NamedTuple):
    """Something that a recipient had on this very node, from which they have moved."""

    instance: Hash
    via: IdentityId


class OfferedAgain(NamedTuple):
    """A page of what a recipient was sent: where it ends, and what has to be queued with its newest message."""

    last_position: int
    local: list[LocalDelivery]


def offer_again(
    connection: Connection, recipient: IdentityId, *, changed_since: int, after: int, now: int
) -> OfferedAgain | None:
    """Queue anew, from the beginning, what the node so far of a recipient took since a time, page by page.

    Also what it refused because they do not live there, and what was given up. `after` is the position of the page
    before, 0 at the beginning. Returns None if there is nothing more.
    """
    if not after:  # what was sent in parts begins again
        begun = and_(deliveries.c.state == "waiting", deliveries.c.recipient == recipient, deliveries.c.delivered > 0)
        connection.execute(update(deliveries).where(begun).values(delivered=0, queued=now))
    rows = connection.execute(
        select(deliveries.c.place, deliveries.c.instance, deliveries.c.via, deliveries.c.wanted)
        .where(
            _was_taken(),
            deliveries.c.recipient == recipient,
            deliveries.c.changed >= changed_since,
            deliveries.c.place > after,
        )
        .order_by(deliveries.c.place)
        .limit(_AT_ONCE)
    ).all()
    if not rows:
        return None
    values = {"state": "waiting", "delivered": 0, "code": None, "queued": now, "changed": now}
    for some in in_lists([row.place for row in rows if row.wanted < LOCAL_DELIVERY]):
        connection.execute(update(deliveries).where(deliveries.c.place.in_(some)).values(values))
    local = [LocalDelivery(Hash(row.instance), IdentityId(row.via)) for row in rows if row.wanted == LOCAL_DELIVERY]
    return OfferedAgain(rows[-1].place, local)


def _was_taken() -> ColumnElement[bool]:
    state, code = deliveries.c.state, deliveries.c.code
    is_elsewhere = deliveries.c.wanted < LOCAL_DELIVERY
    return or_(
        state.in_(["delivered", "held"]),
        and_(state == "refused", code.in_(["federation.unknown-recipient", "identity.moved"]), is_elsewhere),
        # Not what its sender has no right or no means to send any more.
        and_(state == "given-up", code.not_in(["federation.nothing-held", "identity.lives-elsewhere"]), is_elsewhere),
    )


def keep_moved(connection: Connection, found_at: Collection[tuple[IdentityId, bytes]]) -> set[IdentityId]:
    """Those of some identities, each with the key of the node where it was found, that are known elsewhere by now."""
    at = dict(found_at)
    rows = _node_keys.rows(connection, sorted(at))
    return {
        IdentityId(found) for found, key, expires in rows if bytes(key) != at[IdentityId(found)] or expires == MOVED
    }


_node_keys: Final = CompiledList(
    lambda ids: select(known_identities.c.id, known_identities.c.node_key, known_identities.c.expires).where(
        known_identities.c.id.in_(ids)
    )
)


# Who is told of a new document

_MOST_TOLD: Final = 100_000
"""So many identities are told of one document; the others hear of it when they ask, or by replication."""


class DocumentNotice(NamedTuple):
    """Somebody to be told of the newest document of an identity of this node."""

    identity: IdentityId
    target: str
    queued: int


def queue_document_notices(connection: Connection, identity: IdentityId, now: int) -> int:
    """Queue notices of an identity's newest document; returns how many.

    To everybody elsewhere with a relation to it, or with something of it or accepted by it as a sender, and to all
    peers.
    """
    keys = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    created = shares.join(entries, entries.c.hash == shares.c.instance).join(logs, logs.c.id == entries.c.log)
    others = union(
        select(relations.c.follower.label("other")).where(
            relations.c.followee == identity, relations.c.state.in_(["requested", "accepted"])
        ),
        select(relations.c.followee).where(
            relations.c.follower == identity, relations.c.state.in_(["requested", "accepted"])
        ),
        select(deliveries.c.recipient).where(deliveries.c.via == identity, deliveries.c.wanted < LOCAL_DELIVERY),
        select(shares.c.identity).select_from(created).where(logs.c.author.in_(keys)),
        select(accepted_senders.c.sender).where(accepted_senders.c.identity == identity),
    ).subquery()
    query = select(others.c.other).where(others.c.other.not_in(LIVING)).order_by(others.c.other).limit(_MOST_TOLD)
    targets = [bytes(other).hex() for other in connection.scalars(query)]
    targets += connection.scalars(select(peers.c.fqdn).order_by(peers.c.fqdn)).all()
    connection.execute(delete(document_notices).where(document_notices.c.identity == identity))
    if targets:
        rows = [{"identity": identity, "target": target, "queued": now} for target in targets]
        connection.execute(insert_new(connection, document_notices), rows)
    return len(targets)


def list_notice_targets(connection: Connection) -> list[str]:
    """Everybody who is to be told of a new document; most of the time there is nobody."""
    return [target for (target,) in _targets.rows(connection)]


_targets: Final = Compiled(
    lambda _: (
        select(document_notices.c.target)
        .group_by(document_notices.c.target)
        .order_by(func.min(document_notices.c.queued), document_notices.c.target)
    )
)


def list_notices_to(connection: Connection, target: str) -> list[DocumentNotice]:
    """The notices for one target, oldest first."""
    query = select(document_notices).where(document_notices.c.target == target)
    rows = connection.execute(query.order_by(document_notices.c.queued, document_notices.c.identity))
    return [DocumentNotice(IdentityId(row.identity), row.target, row.queued) for row in rows]


def remove_notice(connection: Connection, sent: DocumentNotice) -> None:
    """Remove a notice that was taken; one queued meanwhile stays."""
    is_it = and_(document_notices.c.identity == sent.identity, document_notices.c.target == sent.target)
    connection.execute(delete(document_notices).where(is_it, document_notices.c.queued == sent.queued))


def forget_old_notices(connection: Connection, target: str, queued_before: int) -> None:
    """Give up notices that have waited since before a time."""
    is_old = and_(document_notices.c.target == target, document_notices.c.queued < queued_before)
    connection.execute(delete(document_notices).where(is_old))

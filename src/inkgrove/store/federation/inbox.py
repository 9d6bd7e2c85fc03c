"""The request box: what strangers sent, until the recipient accepts or refuses it (docs/protocol.md section 8.6).

Also the senders that recipients have accepted, and ends of instances that came before their creates.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Connection, and_, bindparam, delete, func, insert, or_, select

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import InstanceRef
from inkgrove.store.db.connection import Compiled, in_lists, insert_new
from inkgrove.store.db.node_tables import accepted_senders, early_ends, identities, request_box


@dataclass(frozen=True, slots=True)
class BoxedParcel:
    """A parcel that waits in a request box."""

    id: int
    via: IdentityId
    instance: Hash
    arrived: int
    schema: str | None
    """Author and log of its schema, `AUTHOR/LOG`; None of what came before that was noted."""
    size: int
    """How many bytes the parcel has; 0 if the instance is held already, sent by an identity of this node."""


def lock_box(connection: Connection, recipient: IdentityId) -> None:
    """Lock the request box of a recipient until the transaction ends."""
    is_theirs = identities.c.id == recipient
    # Others may go on to refer to them.
    connection.execute(select(identities.c.id).where(is_theirs).with_for_update(key_share=True))


def add_request(
    connection: Connection,
    recipient: IdentityId,
    via: IdentityId,
    instance: Hash,
    parcel: bytes,
    schema: str,
    now: int,
) -> None:
    """Put a parcel, encoded as a delivery of its own, into the box of a recipient, which must be locked.

    An empty one stands for an instance that is in the log store already, sent by an identity of this node.
    """
    row = {
        "recipient": recipient,
        "via": via,
        "instance": instance,
        "parcel": parcel,
        "arrived": now,
        "schema": schema,
    }
    connection.execute(insert(request_box), row)


def _is_sent(recipient: IdentityId, via: IdentityId, instance: Hash | None) -> ColumnElement[bool]:
    is_it = and_(request_box.c.recipient == recipient, request_box.c.via == via)
    return is_it if instance is None else and_(is_it, request_box.c.instance == instance)


def find_request(connection: Connection, recipient: IdentityId, via: IdentityId, instance: Hash) -> bytes | None:
    """The parcel of an instance from a sender that waits for a recipient."""
    parcel: bytes | None = connection.scalar(select(request_box.c.parcel).where(_is_sent(recipient, via, instance)))
    return parcel


def count_requests(connection: Connection, recipient: IdentityId, via: IdentityId) -> tuple[int, int, int]:
    """How many parcels wait for a recipient, how many of them from one sender, and their bytes all together."""
    of_sender = func.count().filter(request_box.c.via == via)
    size = func.coalesce(func.sum(func.length(request_box.c.parcel)), 0)
    query = select(func.count(), of_sender, size).where(request_box.c.recipient == recipient)
    all_of_them, senders, length = connection.execute(query).one()
    return all_of_them, senders, length


def list_requests(connection: Connection, recipient: IdentityId) -> list[BoxedParcel]:
    """What waits for a recipient, oldest first."""
    size = func.length(request_box.c.parcel)
    columns = (request_box.c.id, request_box.c.via, request_box.c.instance, request_box.c.arrived, request_box.c.schema)
    query = select(*columns, size).where(request_box.c.recipient == recipient).order_by(request_box.c.id)
    return [
        BoxedParcel(number, IdentityId(via), Hash(instance), *rest)
        for number, via, instance, *rest in connection.execute(query)
    ]


def read_requests(
    connection: Connection, recipient: IdentityId, via: IdentityId, instance: Hash | None = None
) -> dict[int, tuple[Hash, bytes]]:
    """The instances that one sender has sent, or the one named, oldest first, by number, with the parcels."""
    is_it = _is_sent(recipient, via, instance)
    columns = (request_box.c.id, request_box.c.instance, request_box.c.parcel)
    query = select(*columns).where(is_it).order_by(request_box.c.id)
    return {number: (Hash(found), parcel) for number, found, parcel in connection.execute(query)}


def remove_read_requests(connection: Connection, numbers: Collection[int]) -> None:
    """Remove parcels that were read; one that came since then, be it of the same instance, stays."""
    connection.execute(delete(request_box).where(request_box.c.id.in_(numbers)))


def remove_requests(
    connection: Connection, recipient: IdentityId, via: IdentityId, instance: Hash | None = None
) -> None:
    """Remove the parcels of one sender, or the one of an instance."""
    is_it = _is_sent(recipient, via, instance)
    connection.execute(delete(request_box).where(is_it))


def remove_ended_requests(connection: Connection, instances: Collection[Hash]) -> None:
    """Remove the parcels of instances that have ended, for any recipient."""
    for some in in_lists(instances):
        connection.execute(delete(request_box).where(request_box.c.instance.in_(some)))


def remove_old_requests(connection: Connection, recipient: IdentityId, before: int) -> None:
    """Remove what has waited for a recipient since before a time."""
    connection.execute(delete(request_box).where(request_box.c.recipient == recipient, request_box.c.arrived < before))


# Ends of instances that came before their creates. A delivery that its sender gave up can arrive minutes later, after
# the sender has sent the end and was answered that nothing of the kind is held. What ended stays ended, so it is
# remembered as long as such a request can still be valid.


def note_end(
    connection: Connection, author: PublicKey, log_id: int, instance: InstanceRef, expires: int, now: int
) -> None:
    """Remember that an author has ended an instance of a log; forget what has expired."""
    row = {"author": author, "log_id": log_id, "instance": str(instance)}
    is_it = and_(*(early_ends.c[name] == value for name, value in row.items()))
    connection.execute(delete(early_ends).where(or_(early_ends.c.expires <= now, is_it)))
    connection.execute(insert_new(connection, early_ends).values(**row, expires=expires))  # it may come twice at once


def has_ended(connection: Connection, author: PublicKey, log_id: int, instance: Hash, seq_num: int) -> bool:
    """Whether the end of an instance came before it, in the log that it begins in at `seq_num`."""
    query = select(early_ends.c.instance).where(
        early_ends.c.author == author,
        early_ends.c.log_id == log_id,
        early_ends.c.instance.in_([str(instance), str(seq_num)]),
    )
    return connection.execute(query).first() is not None


def list_early_enders(connection: Connection, instance: Hash) -> list[PublicKey]:
    """List the keys that have ended an instance, by its hash and in whichever log, before it came."""
    query = select(early_ends.c.author).where(early_ends.c.instance == str(instance)).distinct()
    return [PublicKey(author) for author in connection.scalars(query)]


# Accepted senders, whose deliveries do not wait in the request box; nobody follows anybody by it.


class AcceptedSender(NamedTuple):
    """A sender whose deliveries are accepted, and since when."""

    sender: IdentityId
    since: int


def add_sender(connection: Connection, identity: IdentityId, sender: IdentityId, now: int) -> None:
    """Accept deliveries of a sender for an identity from now on; twice is once."""
    row = {"identity": identity, "sender": sender, "since": now}
    connection.execute(insert_new(connection, accepted_senders), row)


def remove_sender(connection: Connection, identity: IdentityId, sender: IdentityId) -> bool:
    """Let deliveries of a sender wait in the request box again; returns whether they had been accepted."""
    is_it = and_(accepted_senders.c.identity == identity, accepted_senders.c.sender == sender)
    return connection.execute(delete(accepted_senders).where(is_it)).rowcount > 0


def list_senders(
    connection: Connection, identity: IdentityId, *, after: IdentityId | None = None, limit: int
) -> list[AcceptedSender]:
    """The senders that an identity has accepted, ordered by id."""
    query = select(accepted_senders.c.sender, accepted_senders.c.since).where(accepted_senders.c.identity == identity)
    if after is not None:
        query = query.where(accepted_senders.c.sender > after)
    found = connection.execute(query.order_by(accepted_senders.c.sender).limit(limit))
    return [AcceptedSender(IdentityId(sender), since) for sender, since in found]


def has_accepted_sender(connection: Connection, identity: IdentityId, first: IdentityId, second: IdentityId) -> bool:
    """Whether an identity has accepted one of two others as a sender."""
    return _accepted.first(connection, me=identity, first=first, second=second) is not None


_TWO_SENDERS: Final[list[BindParameter[bytes]]] = [bindparam("first"), bindparam("second")]
_accepted: Final = Compiled(
    lambda _: select(accepted_senders.c.since).where(
        accepted_senders.c.identity == bindparam("me"), accepted_senders.c.sender.in_(_TWO_SENDERS)
    )
)

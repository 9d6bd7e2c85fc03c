"""The box of requests: what strangers sent, until the recipient accepts or refuses it."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, and_, delete, func, insert, select

from inkgrove.core import Hash, IdentityId
from inkgrove.store.database import in_lists
from inkgrove.store.federation_tables import request_box
from inkgrove.store.node_tables import identities


@dataclass(frozen=True, slots=True)
class HeldRequest:
    """A parcel that waits."""

    id: int
    via: IdentityId
    instance: Hash
    arrived: int
    schema: str | None
    """Author and log of its schema, `AUTHOR/LOG`; None of what came before that was noted."""
    size: int
    """How many bytes the parcel has; 0 if the instance is held here already, by somebody of this node."""


def lock_box(connection: Connection, recipient: IdentityId) -> None:
    """Let nobody else put something into the box of a recipient until the transaction ends."""
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


def find_request(connection: Connection, recipient: IdentityId, via: IdentityId, instance: Hash) -> bytes | None:
    """The parcel of an instance that waits for a recipient's word on its sender."""
    is_it = and_(request_box.c.recipient == recipient, request_box.c.via == via, request_box.c.instance == instance)
    parcel: bytes | None = connection.scalar(select(request_box.c.parcel).where(is_it))
    return parcel


def count_requests(connection: Connection, recipient: IdentityId, via: IdentityId) -> tuple[int, int, int]:
    """How many parcels wait for a recipient, how many of them from one sender, and their bytes all together."""
    of_sender = func.count().filter(request_box.c.via == via)
    size = func.coalesce(func.sum(func.length(request_box.c.parcel)), 0)
    query = select(func.count(), of_sender, size).where(request_box.c.recipient == recipient)
    all_of_them, senders, length = connection.execute(query).one()
    return all_of_them, senders, length


def list_requests(connection: Connection, recipient: IdentityId) -> list[HeldRequest]:
    """What waits for a recipient, oldest first."""
    size = func.length(request_box.c.parcel)
    columns = (request_box.c.id, request_box.c.via, request_box.c.instance, request_box.c.arrived, request_box.c.schema)
    query = select(*columns, size).where(request_box.c.recipient == recipient).order_by(request_box.c.id)
    return [
        HeldRequest(number, IdentityId(via), Hash(instance), *rest)
        for number, via, instance, *rest in connection.execute(query)
    ]


def read_requests(
    connection: Connection, recipient: IdentityId, via: IdentityId, instance: Hash | None = None
) -> dict[int, tuple[Hash, bytes]]:
    """The instances that one sender has sent, or the one named, oldest first, by number, with the parcels."""
    is_it = and_(request_box.c.recipient == recipient, request_box.c.via == via)
    if instance is not None:
        is_it = and_(is_it, request_box.c.instance == instance)
    columns = (request_box.c.id, request_box.c.instance, request_box.c.parcel)
    query = select(*columns).where(is_it).order_by(request_box.c.id)
    return {number: (Hash(found), parcel) for number, found, parcel in connection.execute(query)}


def remove_read(connection: Connection, numbers: Collection[int]) -> None:
    """Take out parcels that were read; one that came since then, be it of the same instance, stays."""
    connection.execute(delete(request_box).where(request_box.c.id.in_(numbers)))


def remove_requests(
    connection: Connection, recipient: IdentityId, via: IdentityId, instance: Hash | None = None
) -> None:
    """Take out the parcels of one sender, or the one of an instance."""
    is_it = and_(request_box.c.recipient == recipient, request_box.c.via == via)
    if instance is not None:
        is_it = and_(is_it, request_box.c.instance == instance)
    connection.execute(delete(request_box).where(is_it))


def remove_ended(connection: Connection, instances: Collection[Hash]) -> None:
    """Take out what waits of instances that have ended, for whomever."""
    for some in in_lists(instances):
        connection.execute(delete(request_box).where(request_box.c.instance.in_(some)))


def remove_old_requests(connection: Connection, recipient: IdentityId, before: int) -> None:
    """Take out what has waited for a recipient since before a time."""
    connection.execute(delete(request_box).where(request_box.c.recipient == recipient, request_box.c.arrived < before))

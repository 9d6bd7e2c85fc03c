"""Queues what is to be sent to other nodes, in the transaction that publishes it (docs/protocol.md section 8)."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy import Connection, bindparam, select

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.node.audience import may_pass_on, may_pass_to, may_receive
from inkgrove.node.held import HeldInstance, find_held, owner_of
from inkgrove.store.db import Compiled, CompiledList, deliveries, in_lists, relations, shares
from inkgrove.store.federation import LOCAL_DELIVERY, queue_deliveries, recipients_of, senders_of
from inkgrove.store.node import LIVING, living_among


def queue_own(
    connection: Connection,
    changed: Mapping[Hash, Collection[IdentityId]],
    publishers: Collection[IdentityId],
    now: int,
) -> None:
    """Let everyone elsewhere who is to know get the newest of these instances, each with whom it is sent to now."""
    if not changed:
        return
    followers = _followers_elsewhere(connection, publishers)
    sent = _sent_elsewhere(connection, changed)
    for instance, again in changed.items():
        # Most instances concern nobody elsewhere; those are not even looked at.
        if not followers and instance not in sent:
            continue
        held = find_held(connection, instance)
        if held is None:
            continue
        owner = owner_of(connection, held.author)
        of_owner = followers.get(owner, set())
        known = sent.get(instance, set())
        if held.is_deleted:
            recipients = set(recipients_of(connection, instance, owner))
        else:
            recipients = {
                recipient
                for recipient in known | of_owner
                if may_receive(held.access, recipient, was_sent=recipient in known, is_follower=recipient in of_owner)
            }
        if recipients:
            queue_deliveries(connection, instance, owner, recipients, wanted=held.last_seq, now=now, again=again)
        if held.is_deleted or may_pass_on(held.access):
            queue_forwards(connection, instance, held.last_seq, now, besides=owner)


def queue_passed_on(
    connection: Connection, held: HeldInstance, via: IdentityId, recipients: Collection[IdentityId], now: int
) -> None:
    """Let recipients get an instance of somebody else from a recipient of this node."""
    others = set(recipients) - living_among(connection, recipients)
    queue_deliveries(connection, held.instance, via, others, wanted=held.last_seq, now=now, again=others)


def queue_forwards(
    connection: Connection, instance: Hash, last_seq: int, now: int, *, besides: IdentityId | None = None
) -> None:
    """Let those get what is new of an instance whom identities of this node have passed it to."""
    for via in senders_of(connection, instance):
        if via != besides:
            queue_deliveries(
                connection, instance, via, recipients_of(connection, instance, via), wanted=last_seq, now=now
            )


def queue_news(connection: Connection, instances: Collection[Hash], now: int) -> None:
    """The same for instances of which something came by whatever way; once one is closed, only its end."""
    for instance in instances:
        held = find_held(connection, instance)
        if held is not None and (held.is_deleted or may_pass_on(held.access)):
            besides = owner_of(connection, held.author)  # who publishes queues by themselves
            queue_forwards(connection, instance, held.last_seq, now, besides=besides)


def is_due_to(connection: Connection, held: HeldInstance, via: IdentityId, recipient: IdentityId) -> bool:
    """Whether what was said last may still go to a recipient: it may have waited, and the word may be another now."""
    owner = owner_of(connection, held.author)
    follows = is_follower(connection, recipient, owner)
    if owner != via:
        return may_pass_to(held.access, is_follower=follows)
    sent = was_sent(connection, held.instance, recipient)
    return may_receive(held.access, recipient, was_sent=sent, is_follower=follows)


def was_sent(connection: Connection, instance: Hash, identity: IdentityId) -> bool:
    """Whether an instance was sent to an identity."""
    return _share.first(connection, instance=instance, identity=identity) is not None


def was_addressed(connection: Connection, instance: Hash, identity: IdentityId) -> bool:
    """Whether an instance was sent to an identity, which has it, or was told of it and may have it one day."""
    return was_sent(connection, instance, identity) or (
        _addressed.first(connection, instance=instance, identity=identity) is not None
    )


def is_follower(connection: Connection, follower: IdentityId, followee: IdentityId) -> bool:
    """Whether the follower was accepted."""
    return _accepted.first(connection, follower=follower, followee=followee) is not None


_share: Final = Compiled(
    lambda _: select(shares.c.shared).where(
        shares.c.instance == bindparam("instance"), shares.c.identity == bindparam("identity")
    )
)
_addressed: Final = Compiled(
    lambda _: (
        select(deliveries.c.place)
        .where(deliveries.c.instance == bindparam("instance"), deliveries.c.recipient == bindparam("identity"))
        .limit(1)
    )
)
_accepted: Final = Compiled(
    lambda _: select(relations.c.changed).where(
        relations.c.follower == bindparam("follower"),
        relations.c.followee == bindparam("followee"),
        relations.c.state == "accepted",
    )
)


def _followers_elsewhere(
    connection: Connection, publishers: Collection[IdentityId]
) -> dict[IdentityId, set[IdentityId]]:
    found: dict[IdentityId, set[IdentityId]] = {}
    for some in in_lists(publishers):
        for followee, follower in _followers.rows(connection, some):
            found.setdefault(IdentityId(followee), set()).add(IdentityId(follower))
    return found


_followers: Final = CompiledList(
    lambda followees: select(relations.c.followee, relations.c.follower).where(
        relations.c.followee.in_(followees), relations.c.state == "accepted", relations.c.follower.not_in(LIVING)
    )
)


def _sent_elsewhere(connection: Connection, instances: Collection[Hash]) -> dict[Hash, set[IdentityId]]:
    found: dict[Hash, set[IdentityId]] = {}
    for some in in_lists(instances):
        for instance, identity in _sent.rows(connection, some):
            found.setdefault(Hash(instance), set()).add(IdentityId(identity))
        # Who once followed has it too, and is to hear of its end.
        for (instance,) in _delivered.rows(connection, some):
            found.setdefault(Hash(instance), set())
    return found


_sent: Final = CompiledList(
    lambda instances: select(shares.c.instance, shares.c.identity).where(
        shares.c.instance.in_(instances), shares.c.identity.not_in(LIVING)
    )
)
_delivered: Final = CompiledList(
    lambda instances: (
        select(deliveries.c.instance)
        .where(deliveries.c.instance.in_(instances), deliveries.c.wanted < LOCAL_DELIVERY)
        .distinct()
    )
)

"""Recipients whose node cannot be asked who they are: what was sent waits for them (docs/protocol.md section 8.6)."""

from collections.abc import Collection
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.instance import Access
from inkgrove.node.audience import may_pass_to, mode_of
from inkgrove.node.errors import DeliveryError, NotAddressed, PublishError
from inkgrove.node.held import find_held, owner_of
from inkgrove.node.node import Node
from inkgrove.node.sending import is_follower
from inkgrove.node.sending_here import Sent, deliver_here
from inkgrove.store.federation import PendingRecipient, add_pending, count_pending, queue_deliveries, take_pending
from inkgrove.store.node import add_shares, lives_here

MAX_PENDING: Final = 1_000
"""How many names one identity waits for."""


def check_later(
    connection: Connection,
    via: IdentityId,
    access: Access | None,
    names: Collection[str],
    others: Collection[IdentityId],
) -> None:
    """Raise unless an instance can be sent to names that are not found yet, besides those who are."""
    if not names:
        return
    match mode_of(access):
        case "self":
            raise PublishError(
                "publish.not-shareable", "the instance is for its owner alone; change its access first, or share a copy"
            )
        case "relations":
            raise DeliveryError(
                "federation.not-following",
                "the instance is for those who follow its owner, and nobody knows these names here",
            )
        case "closed" if not others:
            raise DeliveryError(
                "federation.cannot-be-named",
                "a closed instance names its recipients by id, and none of these was found: try later",
            )
        case _:
            pass
    if count_pending(connection, via) + len(names) > MAX_PENDING:
        raise DeliveryError(
            "federation.too-many-not-found", "too many recipients of yours could not be found yet: try again later"
        )


def send_later(
    connection: Connection, instance: Hash, via: IdentityId, access: Access | None, names: Collection[str], now: int
) -> None:
    """Let an instance go to names as soon as they are found; a closed one cannot, since it is signed without them."""
    if not names:
        return
    if mode_of(access) == "closed":
        add_pending(connection, instance, via, names, "refused", "federation.cannot-be-named", now)
    else:
        add_pending(connection, instance, via, names, "waiting", "federation.not-found-yet", now)


def send_found(connection: Connection, node: Node, name: str, identity: IdentityId) -> bool:
    """Send somebody who was found what waits for their name, as far as they may still have it; whether anything did."""
    now = node.clock()
    found = take_pending(connection, name)
    for item in found:
        _send(connection, item, identity, now)
    return bool(found)


def _send(connection: Connection, item: PendingRecipient, identity: IdentityId, now: int) -> None:
    held = find_held(connection, item.instance)
    if held is None or held.is_deleted or held.is_expired(now):
        return  # nobody gets anything of it any more
    owner = owner_of(connection, held.author)
    if identity in (owner, item.via):
        return
    follows = is_follower(connection, identity, owner)
    mode = mode_of(held.access)
    may_have = may_pass_to(held.access, is_follower=follows)
    if owner == item.via and mode == "closed":
        may_have = held.access is not None and identity in held.access.to
    if not may_have:
        add_pending(connection, item.instance, item.via, [item.name], "refused", NotAddressed.code, now)
        return
    if lives_here(connection, identity):
        deliver_here(connection, [Sent(identity, item.instance, item.via)], now)
        return
    if owner == item.via:
        add_shares(connection, [(item.instance, identity)], now)
    queue_deliveries(connection, item.instance, item.via, [identity], wanted=held.last_seq, now=now, again=[identity])

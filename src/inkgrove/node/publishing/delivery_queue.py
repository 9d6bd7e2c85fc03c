"""Queues deliveries to other nodes in the transaction that publishes, and shows how far they have come.

docs/protocol.md section 8. The newest held access of an instance decides who gets its messages. Narrowing it recalls
nothing; later messages go only to those who may still see the instance. A delete goes to everybody who has a copy from
this node.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import Access, AccessMode
from inkgrove.node.errors import ViewError
from inkgrove.node.identity.caller import RELATIONS_READ, Caller
from inkgrove.node.identity.identity_log import find_owner
from inkgrove.node.identity.names import find_identity_name
from inkgrove.node.publishing.held_instance import HeldInstance, find_erased_instance, find_held_instance
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import (
    LOCAL_DELIVERY,
    DeliveryState,
    PendingRecipient,
    is_queued_for,
    keep_queued_elsewhere,
    newest_pending,
    newest_states_via,
    pending_of,
    queue_deliveries,
    recipients_of,
    senders_of,
    states_of,
)
from inkgrove.store.node import find_followers_elsewhere, find_shares_elsewhere, is_follower, living_among, was_sent

# Who may receive an instance: pure decisions


def mode_of(access: Access | None) -> AccessMode:
    """Return the mode of an access; `listed` if there is none."""
    return access.mode if access is not None else "listed"


def may_pass_on(access: Access | None) -> bool:
    """Whether somebody other than the owner may send the instance on; with `relations`, only to followers."""
    return mode_of(access) not in ("self", "closed")


def may_pass_to(access: Access | None, *, is_follower: bool) -> bool:
    """Whether somebody other than the owner may send the instance to a recipient; `is_follower`: of the owner."""
    return may_pass_on(access) and (is_follower or mode_of(access) != "relations")


def may_receive(access: Access | None, recipient: IdentityId, *, was_sent: bool, is_follower: bool) -> bool:
    """Whether a recipient gets the owner's newest messages: if it was sent to them, or they follow and the mode fits.

    With `relations` followers alone get them, even if it was sent to others before.
    """
    match mode_of(access):
        case "self":
            return False
        case "closed":
            return was_sent and access is not None and recipient in access.to
        case "listed":
            return was_sent
        case "relations":
            return is_follower
        case _:
            return was_sent or is_follower


def queue_own(
    connection: Connection,
    changed: Mapping[Hash, Collection[IdentityId]],
    publishers: Collection[IdentityId],
    now: int,
) -> None:
    """Queue changed instances of publishers for everybody on other nodes who may receive them.

    `changed`: by instance, the recipients whom it is sent to right now.
    """
    if not changed:
        return
    followers = find_followers_elsewhere(connection, publishers)
    sent = find_shares_elsewhere(connection, changed)
    # Who followed once has copies too, and gets the delete: what was ever queued counts.
    known_elsewhere = sent.keys() | keep_queued_elsewhere(connection, changed)
    for instance, again in changed.items():
        # Most instances concern nobody elsewhere; those are not read.
        if not followers and instance not in known_elsewhere:
            continue
        held = find_held_instance(connection, instance)
        if held is None:
            continue
        owner = find_owner(connection, held.author)
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
    """Queue an instance of somebody else for recipients on other nodes; `via` passes it on."""
    others = set(recipients) - living_among(connection, recipients)
    queue_deliveries(connection, held.instance, via, others, wanted=held.last_seq, now=now, again=others)


def queue_forwards(
    connection: Connection, instance: Hash, last_seq: int, now: int, *, besides: IdentityId | None = None
) -> None:
    """Queue an instance for all to whom identities of this node, but for `besides`, have passed it on."""
    for via in senders_of(connection, instance):
        if via != besides:
            queue_deliveries(
                connection, instance, via, recipients_of(connection, instance, via), wanted=last_seq, now=now
            )


def queue_news(connection: Connection, instances: Collection[Hash], now: int) -> None:
    """Queue instances of which messages came in for those they were passed on to; of a closed one, only its delete."""
    for instance in instances:
        held = find_held_instance(connection, instance)
        if held is not None and (held.is_deleted or may_pass_on(held.access)):
            besides = find_owner(connection, held.author)  # owners queue when they publish
            queue_forwards(connection, instance, held.last_seq, now, besides=besides)


def is_due_to(connection: Connection, held: HeldInstance, via: IdentityId, recipient: IdentityId) -> bool:
    """Whether a queued instance may still go to a recipient: its access may have changed while it waited."""
    owner = find_owner(connection, held.author)
    follows = is_follower(connection, recipient, owner)
    if owner != via:
        return may_pass_to(held.access, is_follower=follows)
    sent = was_sent(connection, held.instance, recipient)
    return may_receive(held.access, recipient, was_sent=sent, is_follower=follows)


def was_addressed(connection: Connection, instance: Hash, identity: IdentityId) -> bool:
    """Whether an instance was sent to an identity or queued for it, whether or not it was delivered."""
    return was_sent(connection, instance, identity) or is_queued_for(connection, instance, identity)


# How far deliveries have come

_NOBODY: Final = IdentityId(b"")
"""The recipient of a delivery to a name that was not found yet."""


def read_deliveries(node: Node, caller: Caller, instance: Hash) -> list[tuple[DeliveryState, str | None]]:
    """Return the deliveries of an instance that the caller sent or passed on, each with the recipient's name.

    For a service without `relations:read` followers are left out. Raises `view.unknown-instance` if the caller has
    neither written nor sent it.
    """
    unknown = ViewError("view.unknown-instance", f"no instance {instance.hex()[:140]} is here that you have sent")
    identity = caller.require_any_identity()

    def work(connection: Connection) -> list[tuple[DeliveryState, str | None]]:
        held = find_held_instance(connection, instance) or find_erased_instance(connection, instance)
        if held is None:
            raise unknown
        states = [state for state in states_of(connection, instance) if state.via == identity]
        pending = pending_of(connection, instance, identity)
        is_own = find_owner(connection, held.author) == identity
        if not states and not pending and not is_own:
            raise unknown
        # Only who has sent it learns that a service lacks the right to read it.
        caller.read_as(held.schema, instance)
        if is_own and caller.grant is not None and RELATIONS_READ not in caller.scopes:
            sent = {state.recipient for state in states if was_sent(connection, instance, state.recipient)}
            states = [state for state in states if state.wanted == LOCAL_DELIVERY or state.recipient in sent]
        found = [(_shown(state, held.last_seq), find_identity_name(connection, state.recipient)) for state in states]
        return [*found, *((_unfound(item, held.last_seq), item.name) for item in pending)]

    return node.database.read(work)


def _shown(state: DeliveryState, last_seq: int) -> DeliveryState:
    """Return a state with sequence numbers; a recipient of this node has all messages or none."""
    if state.wanted != LOCAL_DELIVERY:
        return state
    return replace(state, wanted=last_seq, delivered=last_seq if state.delivered else 0)


def _unfound(item: PendingRecipient, last_seq: int) -> DeliveryState:
    """Return the state of a delivery to a name that is not found."""
    return DeliveryState(_NOBODY, item.via, item.state, last_seq, 0, item.code, item.changed)


@dataclass(frozen=True, slots=True)
class SentInstance:
    """An instance that was sent, and how far it has come with one recipient."""

    instance: Hash
    fqdn: str | None
    state: DeliveryState


def newest_deliveries(node: Node, identity: IdentityId, limit: int = 20) -> list[SentInstance]:
    """Return what an identity has sent, by the last change, newest first."""

    def work(connection: Connection) -> list[SentInstance]:
        found = newest_states_via(connection, identity, limit)
        names = {
            recipient: find_identity_name(connection, recipient)
            for recipient in {state.recipient for _, state in found}
        }
        sent = [SentInstance(instance, names[state.recipient], state) for instance, state in found]
        sent += [
            SentInstance(item.instance, item.name, _unfound(item, 0))
            for item in newest_pending(connection, identity, limit)
        ]
        return sorted(sent, key=lambda item: item.state.changed, reverse=True)[:limit]

    return node.database.read(work)

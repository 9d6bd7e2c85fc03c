"""How far an instance has come with those it was sent to."""

from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.node.caller import RELATIONS_READ, Caller
from inkgrove.node.errors import ViewError
from inkgrove.node.held import find_held, owner_of
from inkgrove.node.names import name_on
from inkgrove.node.node import Node
from inkgrove.node.sending import was_sent
from inkgrove.store.federation import (
    LOCAL_DELIVERY,
    DeliveryState,
    PendingRecipient,
    newest_pending,
    newest_states_via,
    pending_of,
    states_of,
)

_NOBODY: Final = IdentityId(b"")
"""Stands for whoever has a name that was not found yet."""


def read_deliveries(node: Node, caller: Caller, instance: Hash) -> list[tuple[DeliveryState, str | None]]:
    """What the identity that asks has sent of an instance, as its author or as one who passed it on, with names.

    A service without `relations:read` is told only of those whom it was sent to by name: the others are followers.
    """
    unknown = ViewError("view.unknown-instance", f"no instance {instance.hex()[:140]} is here that you have sent")
    identity = caller.require_somebody()

    def work(connection: Connection) -> list[tuple[DeliveryState, str | None]]:
        held = find_held(connection, instance)
        if held is None:
            raise unknown
        states = [state for state in states_of(connection, instance) if state.via == identity]
        pending = pending_of(connection, instance, identity)
        is_own = owner_of(connection, held.author) == identity
        if not states and not pending and not is_own:
            raise unknown
        # Only who has sent it learns that a service lacks the right to read it.
        caller.reader_of(held.schema, instance)
        if is_own and caller.grant is not None and RELATIONS_READ not in caller.scopes:
            sent = {state.recipient for state in states if was_sent(connection, instance, state.recipient)}
            states = [state for state in states if state.wanted == LOCAL_DELIVERY or state.recipient in sent]
        found = [(_shown(state, held.last_seq), name_on(connection, state.recipient)) for state in states]
        return [*found, *((_unfound(item, held.last_seq), item.name) for item in pending)]

    return node.database.read(work)


def _shown(state: DeliveryState, last_seq: int) -> DeliveryState:
    """A state with numbers of messages: who is hosted here is to have whatever is newest, and has it or nothing."""
    if state.wanted != LOCAL_DELIVERY:
        return state
    return replace(state, wanted=last_seq, delivered=last_seq if state.delivered else 0)


def _unfound(item: PendingRecipient, last_seq: int) -> DeliveryState:
    """How far something has come with a name that is not found: nowhere."""
    return DeliveryState(_NOBODY, item.via, item.state, last_seq, 0, item.code, item.changed)


@dataclass(frozen=True, slots=True)
class Sent:
    """An instance on its way to somebody."""

    instance: Hash
    fqdn: str | None
    state: DeliveryState


def newest_deliveries(node: Node, identity: IdentityId, limit: int = 20) -> list[Sent]:
    """What an identity has sent, what changed last first."""

    def work(connection: Connection) -> list[Sent]:
        found = newest_states_via(connection, identity, limit)
        names = {recipient: name_on(connection, recipient) for recipient in {state.recipient for _, state in found}}
        sent = [Sent(instance, names[state.recipient], state) for instance, state in found]
        sent += [
            Sent(item.instance, item.name, _unfound(item, 0)) for item in newest_pending(connection, identity, limit)
        ]
        return sorted(sent, key=lambda item: item.state.changed, reverse=True)[:limit]

    return node.database.read(work)

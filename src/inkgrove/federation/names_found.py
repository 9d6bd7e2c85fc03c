"""Looks for the names of recipients that could not be found when something was sent to them.

docs/protocol.md section 8.6. A name is tried again with the patience of any queue. Once it is found, what waits for it
is sent; if its host says that nobody is there, or after `give_up_seconds`, the author sees why it is not.
"""

from typing import Final

from sqlalchemy import Connection

from inkgrove.federation.errors import BadAnswer, FederationError, PeerTimeout, QuotaUsedUp, Unreachable
from inkgrove.node.publishing import send_pending
from inkgrove.node.runtime import Node
from inkgrove.store.federation.outbox import clear_backoff
from inkgrove.store.federation.peers import RemoteIdentity
from inkgrove.store.federation.pending import end_pending

NO_WORD: Final = (Unreachable, PeerTimeout, BadAnswer, QuotaUsedUp)
"""What says nothing about a name: its node does not answer, or something before it answers in its place."""


def target_of(name: str) -> str:
    """What the queue of a name is called."""
    return f"name {name}"


def take_found(node: Node, name: str, known: RemoteIdentity) -> None:
    """A name was found: send what waits for it."""

    def work(connection: Connection) -> bool:
        clear_backoff(connection, target_of(name))
        return send_pending(connection, node, name, known.id)

    while node.database.write(work):
        pass


def refuse_name(node: Node, name: str, error: FederationError) -> None:
    """The host of a name says that nobody is there, or proves another one: nothing of what waits will be sent."""

    def work(connection: Connection) -> None:
        clear_backoff(connection, target_of(name))
        end_pending(connection, name, "refused", error.code, node.clock())

    node.database.write(work)

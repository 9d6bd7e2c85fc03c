"""Sends new followers what was published before they followed (docs/protocol.md section 7.6).

A follower is noted once their node has heard that they were accepted; the outbox then queues the newest instances for
them like any others. Doing it twice queues nothing twice.
"""

from itertools import islice
from typing import Final

from sqlalchemy import Connection

from inkgrove.node.publishing import HeldInstance, find_held_instance, is_follower, may_receive
from inkgrove.node.runtime import Node
from inkgrove.store.federation.outbox import queue_deliveries, retry_refused
from inkgrove.store.federation.pending import Backlog, first_backlog, newest_for_followers, take_backlog
from inkgrove.store.node.identities import lives_here

_PATIENCE: Final = 5
"""How many instances are looked at for each one that may be sent, at most."""


def queue_backlogs(node: Node) -> None:
    """Queue what followers lack who are noted, one after the other, each in a transaction of its own."""
    while (backlog := node.database.read(first_backlog)) is not None:
        node.database.write(lambda connection: _queue_one(connection, node, backlog))


def _queue_one(connection: Connection, node: Node, backlog: Backlog) -> None:
    followee, follower = backlog
    if not take_backlog(connection, backlog) or not lives_here(connection, followee):
        return
    # Whoever lives here sees what is for followers as soon as they are one.
    if not is_follower(connection, follower, followee) or lives_here(connection, follower):
        return
    now, most = node.clock(), node.settings.new_follower_posts
    retry_refused(connection, followee, follower, "federation.not-following", now)
    found: list[HeldInstance] = []
    for instance in islice(newest_for_followers(connection, followee, _PATIENCE * most), _PATIENCE * most):
        if len(found) >= most:
            break
        held = find_held_instance(connection, instance)
        if held is None or held.is_deleted or held.is_expired(now):
            continue
        if may_receive(held.access, follower, was_sent=False, is_follower=True):
            found.append(held)
    for held in reversed(found):  # the oldest goes first
        queue_deliveries(connection, held.instance, followee, [follower], wanted=held.last_seq, now=now)

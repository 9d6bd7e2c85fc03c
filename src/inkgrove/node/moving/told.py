"""What friends have told of an identity that comes here with its words alone, put in once it lives here.

docs/protocol.md section 7.10.2. Whom the person has named as a friend is believed about themselves: if they follow,
they may go on. Others on the same node only ask again, and so does the person with those whom it followed.
"""

import json
from collections.abc import Sequence
from hmac import compare_digest
from typing import Any, Final

from inkgrove.core import Hash, IdentityId, PublicKey, identity_of, verify_signature
from inkgrove.core.errors import BadSignature
from inkgrove.messages import Create, ToldRelation, ToldShare, Update, decode_if_valid, mandate_claim, share_proof
from inkgrove.node.errors import IdentityError
from inkgrove.node.person_file import deliver_waiting
from inkgrove.node.publishing import LocalShare, find_held_instance
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.federation import queue_deliveries
from inkgrove.store.logs import LogState, read_entries, read_payloads_of
from inkgrove.store.node import StoredArrival, add_shares, find_shares_elsewhere, keys_of, living_among
from inkgrove.store.person import find_own_logs_of, keep_own_instances, put_person_rows

_CHUNK: Final = 500
MANDATE_SECONDS: Final = 30 * 86_400
"""How long friends may be asked with one mandate, at most."""
MOST_TOLD: Final = 20_000
"""How many relations are kept of what friends tell."""


def check_mandate(node: Node, key: PublicKey, controller: PublicKey, until: int, signature: bytes) -> str:
    """Return the mandate of a first key for a controller, as nodes of friends are shown it.

    Raises `identity.unproved` if it is not signed by the first key, is over, or lasts too long.
    """
    left = until - node.clock() // 1_000_000
    if not 0 < left <= MANDATE_SECONDS:
        raise IdentityError("identity.unproved", "the mandate is over, or lasts longer than 30 days: check the clock")
    try:
        verify_signature(key, mandate_claim(identity_of(key), controller, until), signature)
    except BadSignature as err:
        raise IdentityError("identity.unproved", "the mandate is not signed by the first key") from err
    return f"{key.hex()} {until} {signature.hex()}"


def render_told(item: ToldRelation, *, is_friend: bool) -> list[Any]:
    """Return a relation that a friend's node has told, in the form in which an arrival keeps it."""
    return [item.identity.hex(), item.fqdn, item.side, item.state, item.changed, is_friend]


def put_told_relations(node: Node, arrival: StoredArrival) -> list[tuple[IdentityId, str]]:
    """Put in the relations that friends have told, and whom the instances that came back were sent to.

    Returns the others with the names under which they can be looked up.
    """
    told: list[list[Any]] = json.loads(arrival.facts).get("relations", [])
    me, rows, people = arrival.identity, [], []
    for identity, fqdn, side, state, changed, is_friend in told:
        other = IdentityId.fromhex(identity)
        is_follower = side == "followers"
        rows.append(
            {
                "follower": other if is_follower else me,
                "followee": me if is_follower else other,
                "state": state if is_friend or not is_follower else "requested",
                "group": None,
                "changed": changed,
            }
        )
        people.append((other, fqdn))
    now = node.clock()
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        node.database.write(lambda c, some=some: put_person_rows(c, me, "relations", some, now))  # type: ignore[misc]
    _restore_shares(node, me)
    return list(dict.fromkeys(people))


def put_told_shares(node: Node, arrival: StoredArrival, told: Sequence[ToldShare]) -> None:
    """Note which instances of an identity others were sent, as their node says.

    It counts for instances in the identity's own logs of which that node has proved that it holds the payload: others
    would get to see later changes of what they never had. People of this very node are passed over.
    """

    def work(connection: Connection) -> None:
        held = read_payloads_of(connection, {item.instance for item in told})
        own = keep_own_instances(connection, arrival.identity, held)
        here = living_among(connection, {item.identity for item in told})
        rows = [
            (item.instance, item.identity)
            for item in told
            if item.instance in own
            and item.identity not in here
            and item.identity != arrival.identity
            and compare_digest(item.proof, share_proof(held[item.instance], arrival.controller))
        ]
        add_shares(connection, rows, node.clock())

    if told:
        node.database.write(work)


def _restore_shares(node: Node, identity: IdentityId) -> None:
    """Queue the identity's instances for everybody elsewhere who was sent them.

    That is whom their messages name, and whom nodes of friends have told of. They have most of it, say so, and get what
    changes later, deletes too.
    """
    logs = node.database.read(lambda c: find_own_logs_of(c, keys_of(c, identity)))
    for log in logs:
        for first in range(1, log.height + 1, _CHUNK) if log.log_id != 0 else ():
            recipients = _read_recipients(node, log, first)
            if recipients:
                node.database.write(lambda c, some=recipients: _queue(c, identity, some, node.clock()))  # type: ignore[misc]


def _read_recipients(node: Node, log: LogState, first: int) -> dict[Hash, set[IdentityId]]:
    """The instances of which messages stand in a part of a log, each with whom these name."""
    found: dict[Hash, set[IdentityId]] = {}
    for item in node.store.read(read_entries, log.author, log.log_id, first, first + _CHUNK - 1):
        message = decode_if_valid(item.payload)
        if isinstance(message, Create | Update):
            instance = item.hash if isinstance(message, Create) else message.instance
            if isinstance(instance, Hash):
                found.setdefault(instance, set()).update(message.access.to if message.access is not None else ())
    return found


def _queue(connection: Connection, identity: IdentityId, named: dict[Hash, set[IdentityId]], now: int) -> None:
    # A message can name any instance, and anybody: others are sent what is the identity's own.
    own = keep_own_instances(connection, identity, named)
    sent = [(instance, to) for instance in sorted(own) for to in sorted(named[instance] - {identity})]
    here = living_among(connection, {to for _, to in sent})
    add_shares(connection, [(instance, to) for instance, to in sent if to not in here], now)
    deliver_waiting(connection, identity, {LocalShare(to, instance, identity) for instance, to in sent}, now)
    for instance, recipients in find_shares_elsewhere(connection, own).items():
        held = find_held_instance(connection, instance)
        if held is not None:
            queue_deliveries(connection, instance, identity, recipients, wanted=held.last_seq, now=now)

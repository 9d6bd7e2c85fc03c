"""Rows of a person's file, put where they are lacking: what is there stays as it is, so twice is once.

A file can say anything. Whoever brings it gets by it what is theirs to say (whom they let follow, whom they block, what
they have sent) and what the file itself holds; never the sight of something that only this node holds, and never
somebody else's word (that they were accepted): for that they ask again. What people of this very node want and were
sent this node knows itself: they follow nobody, and are shown nothing, because a file says so.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, exists, select, update

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.store.db.connection import in_lists, insert_new
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import (
    accepted_senders,
    backlogs,
    blob_references,
    deliveries,
    identity_keys,
    notices,
    pending_recipients,
    relations,
    request_box,
    shares,
)
from inkgrove.store.db.rot_tables import pins
from inkgrove.store.federation.outbox import LOCAL_DELIVERY
from inkgrove.store.logs.blob_references import lend_reference
from inkgrove.store.node.identities import living_among

_Rows = Sequence[Mapping[str, Any]]


def keep_own_instances(connection: Connection, identity: IdentityId, instances: Collection[Hash]) -> set[Hash]:
    """Return those of the instances that a key of the identity created."""
    own = select(identity_keys.c.author).where(identity_keys.c.identity == identity)
    query = select(entries.c.hash).join_from(entries, logs, logs.c.id == entries.c.log)
    return {
        Hash(found)
        for some in in_lists(instances)
        for found in connection.scalars(query.where(entries.c.hash.in_(some), logs.c.author.in_(own)))
    }


def keep_received(connection: Connection, identity: IdentityId, instances: Collection[Hash]) -> set[Hash]:
    """Return those of the instances that were sent to the identity."""
    query = select(shares.c.instance).where(shares.c.identity == identity)
    return {
        Hash(found)
        for some in in_lists(instances)
        for found in connection.scalars(query.where(shares.c.instance.in_(some)))
    }


def grant_copies(connection: Connection, identity: IdentityId, instances: Collection[Hash], now: int) -> None:
    """Record that instances, whose bytes the identity has brought, were sent to it."""
    rows = [{"instance": instance, "identity": identity, "shared": now} for instance in instances]
    if rows:
        connection.execute(insert_new(connection, shares), rows)


def lend_received(connection: Connection, identity: IdentityId, content: Hash) -> bool:
    """Let readers of instances that were sent to the identity read a blob that they name; whether there is one."""
    was_sent = exists().where(shares.c.instance == blob_references.c.instance, shares.c.identity == identity)
    query = select(blob_references.c.instance, blob_references.c.author)
    found = connection.execute(query.where(blob_references.c.hash == content, was_sent)).all()
    for instance, author in found:
        lend_reference(connection, content, Hash(instance), PublicKey(author))
    return bool(found)


def put_person_rows(connection: Connection, identity: IdentityId, table: str, rows: _Rows, now: int) -> int:
    """Put rows of a file into the tables of the node; returns how many of them were put, or are there already.

    `rows` are as `messages.person_file.read_rows` gives them. Those that are not the identity's to say are left out.
    """
    return _WRITERS[table](connection, identity, rows, now)


def _insert(connection: Connection, table: Any, rows: Sequence[dict[str, Any]]) -> int:
    if rows:
        connection.execute(insert_new(connection, table), rows)
    return len(rows)


def _put_relations(connection: Connection, identity: IdentityId, rows: _Rows, now: int) -> int:
    own = [row for row in rows if identity in (row["follower"], row["followee"]) and row["follower"] != row["followee"]]
    known = _known_relations(connection, identity)
    here = living_among(connection, {IdentityId(row[side]) for row in own for side in ("follower", "followee")})
    new, asked, left_out = [], [], 0
    for row in own:
        if (row["follower"], row["followee"]) in known:
            continue
        is_follower = row["follower"] == identity
        state = row["state"]
        if not is_follower and row["follower"] in here and state in ("accepted", "requested"):
            left_out += 1  # nobody follows who has not asked to, and nobody has here
            continue
        if is_follower and state in ("accepted", "requested"):
            state = "requested"  # that they were accepted is the other one's word, who is asked again
            asked.append(IdentityId(row["followee"]))
        new.append(
            {
                "follower": row["follower"],
                "followee": row["followee"],
                "state": state,
                "follower_group": row["group"] if is_follower else None,
                "followee_group": None if is_follower else row["group"],
                "changed": row["changed"],
            }
        )
    _insert(connection, relations, new)
    moves = [
        {"me": identity, "other": other, "as_follower": True, "move": "request", "queued": now}
        for other in asked
        if other not in here
    ]
    _insert(connection, notices, moves)
    return len(own) - left_out


def _known_relations(connection: Connection, identity: IdentityId) -> set[tuple[bytes, bytes]]:
    is_side = (relations.c.follower == identity) | (relations.c.followee == identity)
    return {tuple(row) for row in connection.execute(select(relations.c.follower, relations.c.followee).where(is_side))}


def _put_shares(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    own = keep_own_instances(connection, identity, {row["instance"] for row in rows})
    here = living_among(connection, {IdentityId(row["identity"]) for row in rows})
    new = [dict(row) for row in rows if row["instance"] in own and row["identity"] not in here]
    return _insert(connection, shares, new)


def _put_senders(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    return _insert(connection, accepted_senders, [{"identity": identity, **row} for row in rows])


def _put_requests(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    # One without bytes would stand for an instance that this node holds, and show it.
    return _insert(connection, request_box, [{"recipient": identity, **row} for row in rows if row["parcel"]])


def keep_sendable(connection: Connection, identity: IdentityId, instances: Collection[Hash]) -> set[Hash]:
    """Return those of the instances that an identity may have sent: its own, and what was sent to it."""
    return keep_own_instances(connection, identity, instances) | keep_received(connection, identity, instances)


def _put_deliveries(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    sendable = keep_sendable(connection, identity, {row["instance"] for row in rows})
    here = living_among(connection, {IdentityId(row["recipient"]) for row in rows})
    own = [row for row in rows if row["instance"] in sendable]
    newest = _newest_messages(connection, {row["instance"] for row in own})
    new = []
    for row in own:
        values = {"via": identity, **row}
        if row["wanted"] == LOCAL_DELIVERY and row["recipient"] not in here:
            # They lived on the node that the file is from: what they had there they have.
            wanted = newest.get(row["instance"], 1)
            values |= {"wanted": wanted, "delivered": wanted if row["state"] == "delivered" else 0}
        elif row["recipient"] in here:
            reached = LOCAL_DELIVERY if row["state"] == "delivered" else 0
            values |= {"wanted": LOCAL_DELIVERY, "delivered": reached}
        new.append(values)
    return _insert(connection, deliveries, new)


def _newest_messages(connection: Connection, instances: Collection[Hash]) -> dict[bytes, int]:
    """The sequence number of the newest message of each instance."""
    creates, messages = entries.alias("creates"), entries
    query = (
        select(creates.c.hash, messages.c.seq_num)
        .join_from(creates, messages, and_(messages.c.log == creates.c.log, messages.c.create_seq == creates.c.seq_num))
        .order_by(messages.c.seq_num)
    )
    return {
        found: seq_num
        for some in in_lists(instances)
        for found, seq_num in connection.execute(query.where(creates.c.hash.in_(some)))
    }


def _put_pending(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    sendable = keep_sendable(connection, identity, {row["instance"] for row in rows})
    new = [{"via": identity, **row} for row in rows if row["instance"] in sendable]
    return _insert(connection, pending_recipients, new)


def _put_moves(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    return _insert(connection, notices, [{"me": identity, **row} for row in rows])


def _put_backlogs(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    return _insert(connection, backlogs, [{"followee": identity, **row} for row in rows])


def _put_pins(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    held = keep_sendable(connection, identity, {row["instance"] for row in rows})
    return _insert(connection, pins, [{"identity": identity, **row} for row in rows if row["instance"] in held])


def _put_withheld(connection: Connection, identity: IdentityId, rows: _Rows, _now: int) -> int:
    own = keep_own_instances(connection, identity, {row["instance"] for row in rows})
    changed = 0
    for row in rows:
        if row["instance"] in own:
            refers = blob_references.c
            is_it = and_(*(refers[name] == row[name] for name in ("hash", "instance", "author")))
            values = {"is_withheld": True, "is_lent": False, "is_decided": True}
            changed += connection.execute(update(blob_references).where(is_it).values(values)).rowcount
    return changed


_WRITERS = {
    "relations": _put_relations,
    "shares": _put_shares,
    "senders": _put_senders,
    "requests": _put_requests,
    "deliveries": _put_deliveries,
    "pending": _put_pending,
    "moves": _put_moves,
    "backlogs": _put_backlogs,
    "pins": _put_pins,
    "withheld": _put_withheld,
}

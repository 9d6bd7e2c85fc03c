"""Every copy with all that a fungus and a policy look at, as one query (docs/protocol.md section 9).

`guard` says why a copy is not to be touched. Hard guards hold whatever the policy says; the others can be turned off.
"""

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    not_,
    null,
    or_,
    select,
)

from inkgrove.core import Hash
from inkgrove.store.database import in_lists
from inkgrove.store.federation_tables import deliveries
from inkgrove.store.node_tables import blob_references, blobs, identities, identity_keys
from inkgrove.store.rot_tables import SHOWN, answered, copies, copy_reads, pins
from inkgrove.store.tables import entries, logs

HARD_GUARDS: Final = ("own", "evidence", "undelivered", "tombstone")
SOFT_GUARDS: Final = ("pinned", "answered", "passed-on", "newest")
_TO_BE_SENT: Final = ("waiting", "held")
"""Deliveries that need the payloads: what is held goes out again as a whole once the recipient accepts the sender."""


def select_copies(guards: Collection[str], now: int, absence: int) -> Select[Any]:
    """All copies; `guards` are the soft ones in force, `absence` how long tombstones stay, in microseconds."""
    # PostgreSQL adds whole numbers up to a decimal one.
    refers = select(cast(func.coalesce(func.sum(blobs.c.size), 0), BigInteger)).join_from(
        blob_references, blobs, blobs.c.hash == blob_references.c.hash
    )
    blob_bytes = refers.where(blob_references.c.instance == copies.c.instance).correlate(copies).scalar_subquery()
    newest = (
        select(copies.c.log, func.max(copies.c.create_seq).label("create_seq"))
        .where(_is_live(copies, now))
        .group_by(copies.c.log)
        .subquery()
    )
    owner = func.coalesce(identity_keys.c.identity, logs.c.author)
    conditions = _set_by_others() | {
        "own": not_(may_rot(now)),
        "tombstone": copies.c.ended > now - absence,
        "newest": newest.c.create_seq == copies.c.create_seq,
    }
    in_force = [name for name in (*HARD_GUARDS, *SOFT_GUARDS) if name in HARD_GUARDS or name in guards]
    guard = case(*((conditions[name], literal(name)) for name in in_force), else_=null())
    return (
        select(
            copies.c.instance,
            copies.c.log,
            copies.c.create_seq,
            owner.label("owner"),
            copies.c.schema,
            copies.c.arrival,
            copies.c.born,
            copies.c.noted,
            copies.c.bytes.label("payload_bytes"),
            case((copies.c.step == "full", blob_bytes), else_=0).label("blob_bytes"),
            copies.c.reads,
            copies.c.last_read,
            func.coalesce(copy_reads.c.count, 0).label("new_reads"),
            copies.c.freshness,
            copies.c.step,
            copies.c.changed,
            copies.c.expires,
            copies.c.ended,
            copies.c.cooked,
            guard.label("guard"),
        )
        .join_from(copies, logs, logs.c.id == copies.c.log)
        .outerjoin(identity_keys, identity_keys.c.author == logs.c.author)
        .outerjoin(identities, identities.c.id == identity_keys.c.identity)
        .outerjoin(copy_reads, copy_reads.c.instance == copies.c.instance)
        .outerjoin(newest, newest.c.log == copies.c.log)
    )


def may_rot(now: int) -> Any:
    """Whether a copy is somebody else's, or our own and its owner asked for it: it has expired."""
    return or_(identities.c.id.is_(None), func.coalesce(copies.c.expires <= now, false()))


def _set_by_others() -> dict[str, Any]:
    """The guards that can come over a copy at any time."""
    return {
        "evidence": _is_evidence(),
        "undelivered": exists().where(deliveries.c.instance == copies.c.instance, deliveries.c.state.in_(_TO_BE_SENT)),
        "pinned": exists().where(pins.c.instance == copies.c.instance),
        "answered": exists().where(answered.c.instance == copies.c.instance),
        "passed-on": exists().where(deliveries.c.instance == copies.c.instance),
    }


def _is_evidence() -> Any:
    """Whether something of the instance lies where its log is forked or lied about a size."""
    is_broken = or_(logs.c.forked_at.is_not(None), logs.c.lied_at.is_not(None))
    is_behind = or_(entries.c.seq_num >= logs.c.forked_at, entries.c.seq_num >= logs.c.lied_at)
    message = exists().where(entries.c.log == copies.c.log, entries.c.create_seq == copies.c.create_seq, is_behind)
    return and_(is_broken, message)


def _is_live(table: Any, now: int) -> Any:
    """Whether views show a copy: what has ended or expired is nobody's newest."""
    is_here = or_(table.c.expires.is_(None), table.c.expires > now)
    return and_(table.c.step.in_(SHOWN), table.c.ended.is_(None), is_here)


def read_copy(connection: Connection, instance: Hash, guards: Collection[str], now: int, absence: int) -> Any:
    """The same of one copy, or None."""
    return connection.execute(select_copies(guards, now, absence).where(copies.c.instance == instance)).first()


def guarded_among(connection: Connection, instances: Collection[Hash], guards: Collection[str], now: int) -> set[Hash]:
    """Those of a plan made at `now` that have come under a guard since, as far as copies were noted since.

    `guards` are the soft ones in force; as in a plan, they spare what is shown.
    """
    found = _set_by_others()
    is_shown, is_deleted = copies.c.step.in_(SHOWN), _has_delete()
    hard = [
        found["evidence"],
        found["undelivered"],
        and_(is_deleted, or_(copies.c.ended.is_(None), copies.c.ended > now)),
        and_(is_shown, copies.c.changed > now),  # fetched again
    ]
    later = copies.alias("later")
    # From the end of the log: what was the newest for the plan is there, unless it was deleted since.
    newest = select(later.c.create_seq).where(later.c.log == copies.c.log, _is_live(later, now))
    found["newest"] = (
        newest.order_by(later.c.create_seq.desc()).limit(1).correlate(copies).scalar_subquery() == copies.c.create_seq
    )
    soft = [and_(is_shown, found[name]) for name in SOFT_GUARDS if name in guards]
    query = select(copies.c.instance).join_from(copies, logs, logs.c.id == copies.c.log)
    return {
        Hash(name)
        for some in in_lists(instances)
        for name in connection.scalars(query.where(copies.c.instance.in_(some), or_(*hard, *soft)))
    }


def _has_delete() -> Any:
    is_its = (entries.c.log == copies.c.log, entries.c.create_seq == copies.c.create_seq)
    return exists().where(*is_its, entries.c.kind == "delete")

"""Records of all copies that can rot, kept up to date from the ingests of the logs (docs/protocol.md section 9).

Those are the foreign ones, and of our own the ones that their owner lets expire. Every copy has an ingest, whether it
came by delivery, replication, import or command: code that ingests does nothing for rot.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    and_,
    case,
    cast,
    delete,
    exists,
    false,
    func,
    literal,
    not_,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from inkgrove.core import Hash, IdentityId, PublicKey, is_hash
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Create, Unset, Update, decode_message
from inkgrove.store.db.connection import execute_many, in_lists, insert_new, pairs_as_parameters, table_of_pairs
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import (
    blob_references,
    blobs,
    deliveries,
    identities,
    identity_keys,
    relations,
    shares,
)
from inkgrove.store.db.rot_tables import LADDER, ROTTED, SHOWN, answered, copies, copy_reads, pins, rot_progress
from inkgrove.store.logs.followers import PAGE_SIZE, follow
from inkgrove.store.logs.positions import Ingest, IngestKind, read_ingests

_ROWS: Final = 10_000
_TELLING: Final = (IngestKind.ENTRY, IngestKind.PAYLOAD, IngestKind.PAYLOAD_DROPPED)
EXPIRES_KEY: Final = b"gexpires"
"""The key as CBOR writes it: what does not hold it is not decoded."""


@dataclass(frozen=True, slots=True)
class Copy:
    """The record of a copy that can rot."""

    instance: Hash
    log: int
    create_seq: int
    author: PublicKey
    step: str
    bytes: int
    freshness: float
    reads: float
    last_read: int | None
    born: int
    arrival: int
    expires: int | None
    run: int | None
    why: str | None
    fetched: int


# Recording


def note_copies(connection: Connection, tick: int, now: int, limit: int = PAGE_SIZE) -> bool:
    """Look through the next page of what happened; whether there was anything."""

    def handle(happened: list[Ingest]) -> bool:
        own = find_own_logs(connection, {item.log for item in happened if item.log is not None})
        _note_answers(connection, [item for item in happened if item.log in own])
        _note(connection, [item for item in happened if item.log not in own], tick, now)
        _note(connection, [item for item in happened if item.log in own], tick, now, only_expiring=True)
        return True

    return follow(connection, rot_progress, read_ingests, handle, limit) is not None


def find_own_logs(connection: Connection, numbers: Collection[int]) -> set[int]:
    """Those of the logs that identities of this node write."""
    hosted = select(identity_keys.c.author).join_from(
        identity_keys, identities, identities.c.id == identity_keys.c.identity
    )
    return {
        number
        for some in in_lists(numbers)
        for number in connection.scalars(select(logs.c.id).where(logs.c.id.in_(some), logs.c.author.in_(hosted)))
    }


def _note(
    connection: Connection, happened: Iterable[Ingest], tick: int, now: int, *, only_expiring: bool = False
) -> None:
    """Record copies; of our own instances only those that their owner lets expire."""
    arrivals: dict[tuple[int, int], int] = {}
    for item in happened:
        if item.what in _TELLING and item.log is not None and item.create_seq is not None:
            instance = item.log, item.create_seq
            if item.what is IngestKind.PAYLOAD and item.seq_num == item.create_seq:
                # The entry came before, in the proof of another one: what has arrived is the content.
                arrivals[instance] = item.offset.position
            else:
                arrivals.setdefault(instance, item.offset.position)
    if not arrivals:
        return
    dialect = connection.dialect.name
    found = connection.execute(_select_groups(dialect), pairs_as_parameters(dialect, sorted(arrivals))).all()
    rows = [
        {
            "instance": row.hash,
            "log": row.log,
            "create_seq": row.seq_num,
            "schema": row.schema,
            "arrival": arrivals[row.log, row.seq_num],
            "noted": now,
            "born": tick,
            "bytes": row.bytes or 0,
            "expires": read_expiry(connection, row.log, row.seq_num) if row.may_expire else None,
            "ended": now if row.is_ended else None,
            "freshness": 1.0,
            "reads": 0.0,
            "step": "full" if row.is_held else "gone",
            "changed": now,
            "fetched": 0,
        }
        for row in found
        if row.may_expire or not only_expiring
    ]
    if rows:
        connection.execute(_put_copies(dialect), rows)


@cache
def _select_groups(dialect: str) -> Select[Any]:
    """Of instances, given by log and create's seq num: the create, and what is held of all messages together."""
    wanted, creates = table_of_pairs(dialect), entries.alias("creates")
    payload = entries.c.payload
    if dialect == "sqlite":
        may_expire: Any = func.instr(payload, literal(EXPIRES_KEY))
    else:
        may_expire = case((payload.op("LIKE")(literal(b"%" + EXPIRES_KEY + b"%")), 1), else_=0)
    is_valid = or_(logs.c.forked_at.is_(None), creates.c.seq_num < logs.c.forked_at)
    return (
        select(
            creates.c.log,
            creates.c.seq_num,
            creates.c.hash,
            creates.c.schema,
            cast(func.sum(func.coalesce(func.length(payload), 0)), BigInteger).label("bytes"),
            func.max(case((entries.c.kind == "delete", 1), else_=0)).label("is_ended"),
            func.max(func.coalesce(may_expire, 0)).label("may_expire"),
            func.max(case(((entries.c.id == creates.c.id) & payload.is_not(None), 1), else_=0)).label("is_held"),
        )
        .join_from(wanted, creates, (creates.c.log == wanted.c.first) & (creates.c.seq_num == wanted.c.second))
        .join(logs, logs.c.id == creates.c.log)
        .join(entries, (entries.c.log == creates.c.log) & (entries.c.create_seq == creates.c.seq_num))
        .where(creates.c.kind == "create", creates.c.schema.is_not(None), is_valid)
        .group_by(creates.c.id, creates.c.log, creates.c.seq_num, creates.c.hash, creates.c.schema)
    )


@cache
def _put_copies(dialect: str) -> Any:
    """Insert new copies; of known ones refresh what they hold, and begin anew with those that were gone."""
    insert = postgresql.insert(copies) if dialect == "postgresql" else sqlite.insert(copies)
    new = insert.excluded
    is_back = (copies.c.step == "gone") & (new.step == "full")
    begun_anew = ("arrival", "noted", "born", "freshness", "reads", "step", "changed")
    changes = {name: case((is_back, new[name]), else_=copies.c[name]) for name in begun_anew}
    return insert.on_conflict_do_update(
        index_elements=["instance"],
        set_={
            **changes,
            "bytes": new.bytes,
            "expires": new.expires,
            "ended": func.coalesce(copies.c.ended, new.ended),
        },
    )


def read_expiry(connection: Connection, log: int, create_seq: int) -> int | None:
    """When an instance expires, by the newest message about it; None if it does not."""
    query = (
        select(entries.c.payload)
        .where(entries.c.log == log, entries.c.create_seq == create_seq, entries.c.payload.is_not(None))
        .order_by(entries.c.seq_num)
    )
    expires = None
    for payload in connection.scalars(query):
        message = _decode(payload)
        if message is not None and not isinstance(message.expires, Unset):
            expires = message.expires
    return None if expires is None else expires.microseconds


def _note_answers(connection: Connection, happened: Iterable[Ingest]) -> None:
    """Record which instances those of our own point to: as relations, or as what they were copied from."""
    hashes = [
        item.hash for item in happened if item.hash is not None and item.what in (IngestKind.ENTRY, IngestKind.PAYLOAD)
    ]
    named: set[Hash] = set()
    for some in in_lists(hashes):
        query = select(entries.c.payload).where(entries.c.hash.in_(some), entries.c.payload.is_not(None))
        for payload in connection.scalars(query.where(entries.c.kind.in_(("create", "update")))):
            message = _decode(payload)
            if message is not None:
                named |= set(instances_named(message))
    if named:
        connection.execute(insert_new(connection, answered), [{"instance": name} for name in sorted(named)])


def instances_named(message: Create | Update) -> Iterable[Hash]:
    """The hashes among the values of a message, which blobs hide in a map of their own."""
    if isinstance(message, Create) and message.copied_from is not None:
        yield message.copied_from
    if isinstance(message.fields, Unset):
        return
    for value in message.fields.values():
        for item in value if type(value) is list else (value,):
            if isinstance(item, bytes) and is_hash(item):
                yield Hash(item)


def _decode(payload: bytes) -> Create | Update | None:
    try:
        message = decode_message(payload)
    except InkgroveError:
        return None
    return message if isinstance(message, Create | Update) else None


# Reads and pins


def add_reads(connection: Connection, counts: Mapping[Hash, int]) -> None:
    """Add a batch of reads to those that the next run takes into account."""
    # In order: two processes that count at once must not wait for each other in a circle.
    names = sorted(counts)
    if connection.dialect.name == "postgresql":
        if names:
            execute_many(connection, _ADD_READS, [{"instance": name, "count": counts[name]} for name in names])
        return
    # One statement for all of a length: with one for each, SQLite and those who read meanwhile would hand the
    # interpreter's lock to and fro for every row.
    for size in {len(name) for name in names}:
        some = [name for name in names if len(name) == size]
        values = {"names": b"".join(some), "size": size, "counts": json.dumps([counts[name] for name in some])}
        connection.exec_driver_sql(_ADD_READS_AT_ONCE, values)


_INSERT_READS: Final = postgresql.insert(copy_reads)
_ADD_READS: Final = _INSERT_READS.on_conflict_do_update(
    index_elements=["instance"], set_={"count": copy_reads.c.count + _INSERT_READS.excluded.count}
)
_ADD_READS_AT_ONCE: Final = """
INSERT INTO copy_reads (instance, count)
SELECT substr(:names, key * :size + 1, :size), value FROM json_each(:counts) WHERE true
ON CONFLICT (instance) DO UPDATE SET count = count + excluded.count
"""


def lock_instance(connection: Connection, instance: Hash) -> None:
    """Lock the log of an instance: until the transaction ends nothing of it comes or goes, and rot waits."""
    query = select(logs.c.id).join_from(logs, entries).where(entries.c.hash == instance)
    connection.execute(query.with_for_update(read=True, of=logs))


def put_pin(connection: Connection, instance: Hash, identity: IdentityId, now: int) -> None:
    """Pin a copy for an identity: it is kept whatever the budget."""
    lock_instance(connection, instance)
    row = {"instance": instance, "identity": identity, "pinned": now}
    connection.execute(insert_new(connection, pins), row)


def drop_pin(connection: Connection, instance: Hash, identity: IdentityId) -> bool:
    """Unpin a copy; returns whether it was pinned."""
    is_it = (pins.c.instance == instance, pins.c.identity == identity)
    return connection.execute(delete(pins).where(*is_it)).rowcount > 0


# Single copies


def find_copy(connection: Connection, instance: Hash) -> Copy | None:
    """The record of a copy; None if the instance cannot rot, or was not recorded yet."""
    query = select(copies, logs.c.author).join_from(copies, logs).where(copies.c.instance == instance)
    row = connection.execute(query).first()
    if row is None:
        return None
    values = {name: row._mapping[name] for name in Copy.__slots__}
    return Copy(**values | {"instance": Hash(row.instance), "author": PublicKey(row.author)})


def revive(connection: Connection, instance: Hash, now: int) -> bool:
    """Mark a rotted copy as full again, in the transaction that brings its payloads; returns whether it was rotted."""
    values = {"step": "full", "freshness": 1.0, "changed": now, "why": "fetched again", "fetched": copies.c.fetched + 1}
    is_it = (copies.c.instance == instance, copies.c.step.in_((*ROTTED, LADDER[-1])))
    return connection.execute(update(copies).where(*is_it).values(values)).rowcount > 0


def record_refetch(connection: Connection, instance: Hash) -> None:
    """Count that blobs of a copy were fetched again after they had rotted."""
    had = (copies.c.instance == instance, copies.c.step == "no-blobs")
    connection.execute(update(copies).where(*had).values(fetched=copies.c.fetched + 1))


# Every copy with all that fungi and policies depend on, as one query. `guard` says why a copy is not to be touched.
# Hard guards are in force whatever the policy says, the others can be turned off.

HARD_GUARDS: Final = ("own", "evidence", "line", "undelivered", "tombstone")
SOFT_GUARDS: Final = ("pinned", "answered", "passed-on", "newest")
_TO_BE_SENT: Final = ("waiting", "held")
"""Deliveries that need the payloads: what is held goes out again as a whole once the recipient accepts the sender."""


def _select_copies(guards: Collection[str], now: int, absence: int) -> Select[Any]:
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
        "own": not_(_may_rot(now)),
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


def _may_rot(now: int) -> Any:
    """Whether a copy is somebody else's, or our own and its owner asked for it: it has expired."""
    return or_(identities.c.id.is_(None), func.coalesce(copies.c.expires <= now, false()))


def _set_by_others() -> dict[str, Any]:
    """The guards that a copy can come under at any time."""
    return {
        "evidence": _is_evidence(),
        "line": _keeps_another_ended(),
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


def _keeps_another_ended() -> Any:
    """Whether it continues an instance of which a payload is held: without its create that one would come back."""
    creates, target, theirs = entries.alias("continuing"), entries.alias("continued"), logs.alias("log_of_continued")
    its_key, their_key = identity_keys.alias("its_key"), identity_keys.alias("their_key")
    is_same_identity = exists().where(
        its_key.c.author == logs.c.author,
        their_key.c.author == theirs.c.author,
        its_key.c.identity == their_key.c.identity,
    )
    return exists().where(
        creates.c.log == copies.c.log,
        creates.c.seq_num == copies.c.create_seq,
        creates.c.kind == "create",
        target.c.hash == creates.c.ref_hash,
        target.c.payload.is_not(None),
        theirs.c.id == target.c.log,
        or_(theirs.c.author == logs.c.author, is_same_identity),
    )


def _is_live(table: Any, now: int) -> Any:
    """Whether views show a copy: what has ended or expired is nobody's newest."""
    is_here = or_(table.c.expires.is_(None), table.c.expires > now)
    return and_(table.c.step.in_(SHOWN), table.c.ended.is_(None), is_here)


def read_copies(
    connection: Connection, guards: Collection[str], now: int, absence: int, *, part: int, parts: int
) -> Iterator[Sequence[Sequence[Any]]]:
    """One of so many parts of the copies that can rot, some thousand rows at a time.

    `guards` are the soft ones in force, `absence` says how long tombstones stay, in microseconds.
    """
    # What is our own and stays takes nothing of the budgets.
    query = _select_copies(guards, now, absence).where(_may_rot(now))
    if parts > 1:
        query = query.where((copies.c.log + copies.c.create_seq) % parts == part)
    yield from connection.execute(query, execution_options={"yield_per": _ROWS}).partitions(_ROWS)


def read_copy(connection: Connection, instance: Hash, guards: Collection[str], now: int, absence: int) -> Any:
    """A row of `read_copies` for one instance, whether it can rot or not; None if it is no copy."""
    return connection.execute(_select_copies(guards, now, absence).where(copies.c.instance == instance)).first()


def is_any_copy_ended(connection: Connection) -> bool:
    """Whether the owner of any copy has deleted it."""
    return connection.scalar(select(literal(1)).where(copies.c.ended.is_not(None)).limit(1)) is not None


class CopyAudience(NamedTuple):
    """The identities of this node that copies of one owner can be visible to."""

    recipients: Mapping[bytes, set[bytes]]
    """Whom each instance was sent to."""
    followers: set[bytes]
    owner: set[bytes]
    """The owner, if of this node."""


def find_audience(connection: Connection, instances: Iterable[bytes], owner: bytes) -> CopyAudience:
    """Whom of this node instances of an owner were sent to, and who follows the owner."""
    hosted = select(identities.c.id)
    recipients: dict[bytes, set[bytes]] = defaultdict(set)
    for some in in_lists(instances):
        sent = (shares.c.instance.in_(some), shares.c.identity.in_(hosted))
        for row in connection.execute(select(shares.c.instance, shares.c.identity).where(*sent)):
            recipients[bytes(row.instance)].add(bytes(row.identity))
    follows = (relations.c.followee == owner, relations.c.state == "accepted", relations.c.follower.in_(hosted))
    followers = connection.scalars(select(relations.c.follower).where(*follows))
    own = connection.scalars(hosted.where(identities.c.id == owner))
    return CopyAudience(recipients, set(map(bytes, followers)), set(map(bytes, own)))


def guarded_among(connection: Connection, instances: Collection[Hash], guards: Collection[str], now: int) -> set[Hash]:
    """Those instances of a plan made at `now` that have come under a guard since, as far as copies were recorded since.

    `guards` are the soft ones in force; as in a plan, they spare what is shown.
    """
    found = _set_by_others()
    is_shown, is_deleted = copies.c.step.in_(SHOWN), _has_delete()
    hard = [
        found["evidence"],
        found["line"],
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

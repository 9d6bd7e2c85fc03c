"""Follows the logs and remembers what replication asks for: which instances are public, which schemas are unknown.

docs/protocol.md section 8. All of it follows from the logs; a page of ingest positions is looked at once, and each
instance whose access may have changed is judged anew. What came by whatever way, and was sent to somebody elsewhere
before it came, is found on the way.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    null,
    or_,
    select,
)

from inkgrove.core import Hash, PublicKey, certificate_pool, shortest_path
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import Create, SchemaId, SchemaMigration, Unset, Update, decode_message
from inkgrove.store.db.connection import execute_many, in_lists, pairs_as_parameters, table_of_pairs
from inkgrove.store.db.log_tables import encode_log_key, entries, ingests, logs, schemas
from inkgrove.store.db.node_tables import deliveries, identities, identity_keys, index_progress, public_instances
from inkgrove.store.federation.wanted_schemas import want_schemas
from inkgrove.store.logs.decision import LogValidity
from inkgrove.store.logs.entries import (
    LogState,
    find_fork_proofs,
    find_log,
    find_logs,
    log_state,
    read_entry_bytes,
    read_logs,
)
from inkgrove.store.logs.followers import follow, read_offset
from inkgrove.store.logs.messages import InstanceKey, create_seqs_from
from inkgrove.store.logs.positions import VERDICTS, IngestKind, Offset, is_after_offset, newest_offset, read_range

_FORGET = delete(public_instances).where(
    public_instances.c.log == bindparam("of_log"), public_instances.c.create_seq == bindparam("of_seq")
)
_REMEMBER = insert(public_instances)
_IS_ENTRY = and_(entries.c.log == ingests.c.log, entries.c.seq_num == ingests.c.seq_num)
_VERDICTS: Final = tuple(sorted(kind.value for kind in VERDICTS))


def indexed_offset(connection: Connection) -> Offset:
    """Up to where the logs are in the index."""
    return read_offset(connection, index_progress)


def is_index_behind(connection: Connection) -> bool:
    """Whether there are ingests that are not in the index."""
    return indexed_offset(connection) != newest_offset(connection)


def update_public_index(connection: Connection, now: int) -> list[Hash] | None:
    """Look at the next page of what happened; None if nothing did.

    Gives the instances of which something came that is newer than what is due to somebody elsewhere.
    """

    def handle(is_new: ColumnElement[bool]) -> list[Hash]:
        _settle(connection, _dirty_instances(connection, is_new))
        want_schemas(connection, _named_schemas(connection, is_new), now)
        return _newer_than_due(connection, is_new)

    return follow(connection, index_progress, read_range, handle)


def _newer_than_due(connection: Connection, is_new: ColumnElement[bool]) -> list[Hash]:
    creates = entries.alias()
    is_create = and_(creates.c.log == entries.c.log, creates.c.seq_num == entries.c.create_seq)
    # As a condition, so that no database begins with all that was ever sent.
    is_due = exists().where(deliveries.c.instance == creates.c.hash, deliveries.c.wanted < entries.c.seq_num)
    query = select(creates.c.hash).distinct().join_from(ingests, entries, _IS_ENTRY).join(creates, is_create)
    return [Hash(instance) for instance in connection.scalars(query.where(is_new, is_due))]


def _dirty_instances(connection: Connection, is_new: ColumnElement[bool]) -> set[InstanceKey]:
    """The instances whose access may have changed."""
    members = entries.alias()
    # A create that comes after its updates: what they say counts from now on. Their seq num is not asked to be greater,
    # for a database that looks for that would read the rest of the log for every create.
    was_spoken_of = exists().where(
        members.c.log == entries.c.log,
        members.c.create_seq == entries.c.create_seq,
        members.c.seq_num != entries.c.seq_num,
        members.c.access.is_not(None),
    )
    # An update of something public may say when it expires.
    is_public = exists().where(
        public_instances.c.log == entries.c.log, public_instances.c.create_seq == entries.c.create_seq
    )
    speaks = or_(
        entries.c.kind == "delete",
        entries.c.access.is_not(None),
        and_(entries.c.kind == "create", was_spoken_of),
        and_(entries.c.kind == "update", is_public),
    )
    query = select(entries.c.log, entries.c.create_seq).join_from(ingests, entries, _IS_ENTRY).where(is_new, speaks)
    dirty = {InstanceKey(log, create_seq) for log, create_seq in connection.execute(query)}
    verdicts = select(ingests.c.what, ingests.c.log, ingests.c.seq_num).where(is_new, ingests.c.what.in_(_VERDICTS))
    for what, log, seq_num in connection.execute(verdicts).all():
        # When a pin moves entries, all that is remembered of the log is forgotten.
        first = 1 if what == IngestKind.BRANCH else seq_num
        dirty |= {InstanceKey(log, found) for found in create_seqs_from(connection, log, first)}
    return dirty


def _settle(connection: Connection, dirty: Collection[InstanceKey]) -> None:
    """Record anew which of these instances are public, or were so and have ended."""
    if not dirty:
        return
    standings = {number: log.standing for number, log in read_logs(connection, {key.log for key in dirty}).items()}
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_member = and_(entries.c.log == wanted.c.first, entries.c.create_seq == wanted.c.second)
    columns = (entries.c.log, entries.c.create_seq, entries.c.seq_num, entries.c.kind, entries.c.access)
    query = select(*columns).join_from(wanted, entries, is_member)
    begun: set[InstanceKey] = set()
    ended: set[InstanceKey] = set()
    newest: dict[InstanceKey, tuple[int, str]] = {}
    was_public: set[InstanceKey] = set()
    for log, create_seq, seq_num, kind, access in connection.execute(
        query, pairs_as_parameters(dialect, sorted(dirty))
    ):
        key = InstanceKey(log, create_seq)
        if kind == "delete" and not standings[log].is_behind_end(seq_num):
            ended.add(key)  # in whatever branch of a forked log
        if standings[log].refusal(seq_num) is not None:
            continue
        if kind == "create" and seq_num == create_seq:
            begun.add(key)
        if access is not None and newest.get(key, (0, ""))[0] < seq_num:
            newest[key] = seq_num, access
        if access == "public":
            was_public.add(key)
    execute_many(connection, _FORGET, [{"of_log": log, "of_seq": create_seq} for log, create_seq in sorted(dirty)])
    # Nodes that took it while it was public get its end, whatever its access is since.
    public = [key for key in begun & was_public if key in ended or newest[key][1] == "public"]
    if public:
        expires = _read_expiries(connection, [key for key in public if key not in ended], standings)
        rows = [
            {
                "log": key.log,
                "create_seq": key.create_seq,
                "is_deleted": key in ended,
                "expires": expires.get(key),
            }
            for key in sorted(public)
        ]
        execute_many(connection, _REMEMBER, rows)


def _read_expiries(
    connection: Connection, keys: Collection[InstanceKey], standings: Mapping[int, LogValidity]
) -> dict[InstanceKey, int | None]:
    """When instances expire, by the newest message about it."""
    newest: dict[InstanceKey, int | None] = {}
    if not keys:
        return newest
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_member = and_(entries.c.log == wanted.c.first, entries.c.create_seq == wanted.c.second)
    query = (
        select(entries.c.log, entries.c.create_seq, entries.c.seq_num, entries.c.payload)
        .join_from(wanted, entries, is_member)
        .where(entries.c.kind.in_(("create", "update")), entries.c.payload.is_not(None))
        .order_by(entries.c.seq_num)
    )
    for log, create_seq, seq_num, payload in connection.execute(query, pairs_as_parameters(dialect, sorted(keys))):
        if standings[log].refusal(seq_num) is not None:
            continue
        message = decode_message(payload)
        if isinstance(message, Create | Update) and not isinstance(message.expires, Unset):
            expires = message.expires
            newest[InstanceKey(log, create_seq)] = expires.microseconds if expires is not None else None
    return newest


# Schemas that are named


def _named_schemas(connection: Connection, is_new: ColumnElement[bool]) -> dict[SchemaId, int]:
    """The schemas that new messages name, or new versions point to, each with the newest version named."""
    registered = select(ingests.c.schema, literal(1)).where(is_new, ingests.c.schema.is_not(None))
    versions: dict[int, int] = dict(connection.execute(registered).all())
    newest = select(entries.c.schema, func.max(entries.c.schema_version)).join_from(ingests, entries, _IS_ENTRY)
    newest = newest.where(is_new, entries.c.schema.is_not(None)).group_by(entries.c.schema)
    versions |= dict(connection.execute(newest).all())
    named: dict[SchemaId, int] = {}
    for some in in_lists(versions):
        for row in connection.execute(select(schemas).where(schemas.c.id.in_(some))):
            named[SchemaId(PublicKey(row.author), row.log_id)] = versions[row.id]
    is_migration = and_(entries.c.kind == "schema-migration", entries.c.payload.is_not(None))
    for payload in connection.scalars(
        select(entries.c.payload).join_from(ingests, entries, _IS_ENTRY).where(is_new, is_migration)
    ):
        message = decode_message(payload)
        assert isinstance(message, SchemaMigration)
        for change in message.changes:
            if change.schema is not None:
                named.setdefault(change.schema, 1)
    return named


# What this node offers to any other: schema logs and log 0 whole, public instances with the pools that prove them.
#
# docs/protocol.md section 8. Of an instance that has ended only its end is offered, if it was ever public, and
# nothing of
# one that has expired. Payloads of anything else never leave by this way, and logs that hold nothing to offer are not
# even named. Log 0 is offered of identities that are hosted here and of authors who have something else to offer: not
# of
# everybody whom somebody here writes to.


SeqNumRange = tuple[int, int]
"""The first and the last of some sequence numbers."""

_OPEN_KINDS: Final = ("schema-meta", "schema-migration", "schema-revert", "identity", "key-of")


_MOST_COUNTED: Final = 10_000
"""How many payloads are counted for a page of logs: what it costs does not grow with the logs."""
_MOST_BRANCHES: Final = 20
"""How many entries of log 0 at one sequence number are offered, besides the first: more is no accident."""
_MOST_RUNS: Final = 500
"""Each run brings a pool of its own: this bounds how much comes beside what was counted."""


class OfferedLog(NamedTuple):
    """A log of which something is offered."""

    author: PublicKey
    log_id: int
    height: int
    offered: int
    """How many payloads there are to have, about: of many, how many entries are held."""
    proof: tuple[bytes, bytes] | None
    """Two entries that prove that the log is forked."""


def _is_schema_log() -> ColumnElement[bool]:
    is_first = and_(entries.c.log == logs.c.id, entries.c.seq_num == 1, entries.c.kind == "schema-meta")
    return and_(logs.c.log_id > 0, exists().where(is_first))


def _is_hosted_log0() -> ColumnElement[bool]:
    is_hosted = and_(identity_keys.c.author == logs.c.author, identity_keys.c.identity == identities.c.id)
    return and_(logs.c.log_id == 0, exists().where(is_hosted))


def _is_offered(now: int) -> ColumnElement[bool]:
    """Whether something of an instance that is or was public is on offer: its end, or all of it until it expires."""
    return or_(
        public_instances.c.is_deleted.is_(True), public_instances.c.expires.is_(None), public_instances.c.expires > now
    )


def _has_public(now: int) -> ColumnElement[bool]:
    return exists().where(public_instances.c.log == logs.c.id, _is_offered(now))


def offered_logs(
    connection: Connection, since: Offset | None, *, after: int, limit: int, now: int
) -> tuple[list[OfferedLog], int | None]:
    """Logs with something to offer that is news since an offset, and where the next page begins."""
    is_whole = or_(_is_schema_log(), _is_hosted_log0())
    query = select(logs).where(logs.c.id > after).order_by(logs.c.id).limit(limit)
    if since is None:
        query = query.where(or_(is_whole, _has_public(now)))
    else:
        changed = select(ingests.c.log).where(is_after_offset(connection, since), ingests.c.log.is_not(None))
        query = query.where(or_(and_(is_whole, logs.c.id.in_(changed)), logs.c.id.in_(_with_public_news(changed, now))))
    rows = connection.execute(query).all()
    states = [log_state(row) for row in rows]
    found = {(state.author, state.log_id): state for state in states}
    # The identities of those who have something to offer come with it.
    log0s = find_logs(
        connection, {encode_log_key(author, 0) for author in _with_kin(connection, {s.author for s in states})}
    )
    found |= {(state.author, 0): state for state in log0s.values() if (state.author, 0) not in found}
    counts = _count_payloads(connection, [state.id for state in found.values()], now)
    proofs = find_fork_proofs(connection, [state.id for state in found.values()])
    offered = [
        OfferedLog(state.author, state.log_id, state.height, counts.get(state.id) or state.held, proofs.get(state.id))
        for state in found.values()
    ]
    return offered, rows[-1].id if len(rows) == limit else None


def _with_public_news(changed: Select[Any], now: int) -> Select[Any]:
    """The logs in which something changed that anybody may see; other changes are not shown."""
    is_entry = and_(entries.c.log == ingests.c.log, entries.c.seq_num == ingests.c.seq_num)
    is_public = and_(
        public_instances.c.log == ingests.c.log,
        public_instances.c.create_seq == entries.c.create_seq,
        _is_offered(now),
    )
    of_log = exists().where(public_instances.c.log == ingests.c.log, _is_offered(now))
    is_verdict = and_(ingests.c.what.in_(_VERDICTS), of_log)
    return changed.where(or_(exists().where(is_entry, is_public), is_verdict))


def _count_payloads(connection: Connection, numbers: Collection[int], now: int) -> dict[int, int]:
    """How many payloads of public instances there are to have, by log; of none if they are very many."""
    of_public = and_(entries.c.log == public_instances.c.log, entries.c.create_seq == public_instances.c.create_seq)
    found = select(public_instances.c.log).join_from(public_instances, entries, of_public)
    found = found.where(public_instances.c.log.in_(numbers), _is_offered(now))
    some = found.limit(_MOST_COUNTED + 1).subquery()
    rows = connection.execute(select(some.c.log, func.count()).group_by(some.c.log))
    counts: dict[int, int] = {row[0]: row[1] for row in rows}
    return counts if sum(counts.values()) <= _MOST_COUNTED else {}


class OfferedEntries(NamedTuple):
    """Entries of one log in order, those on offer with payloads."""

    entries: list[tuple[bytes, bytes | None]]
    size: int
    next: int | None
    """The sequence number behind which there is more; None if that was all."""


NO_OFFERED_ENTRIES: Final = OfferedEntries([], 0, None)


def read_offered(
    connection: Connection,
    author: PublicKey,
    log_id: int,
    ranges: Sequence[SeqNumRange],
    *,
    after: int,
    most: int,
    most_bytes: int,
    now: int,
) -> OfferedEntries:
    """The entries in some ranges of a log that are offered to others, with the pools that prove them.

    Of the pools only what lies in the ranges is given, be it before or behind `after`.
    """
    log = find_log(connection, author, log_id)
    if log is None:
        return NO_OFFERED_ENTRIES
    is_whole = _is_offered_whole(connection, log, now)
    rows: dict[int, tuple[bytes, bytes | None]] = {}
    branches: dict[int, list[tuple[bytes, bytes | None]]] = {}
    size, stopped_at = 0, None
    for first, last in ranges:
        found = _rows(connection, log, max(first, after + 1), last, is_whole=is_whole, now=now)
        for seq_num, encoded, payload in found:
            weight = len(encoded) + len(payload or b"")
            if seq_num in rows:  # of log 0 all branches are given, those at one sequence number together
                others = branches.setdefault(seq_num, [])
                if len(others) < _MOST_BRANCHES:
                    others.append((encoded, payload))
                    size += weight
                continue
            if rows and (len(rows) >= most or size + weight > most_bytes):
                stopped_at = max(rows)
                break
            rows[seq_num] = encoded, payload
            size += weight
        if stopped_at is not None:
            break
    pinned = log.pinned_seq if not is_whole and (rows or _is_offered_partly(connection, log, now)) else None
    if not is_whole and (rows or pinned is not None):
        runs = list(_runs(sorted(rows)))
        if len(runs) > _MOST_RUNS:
            stopped_at = runs[_MOST_RUNS - 1][1]
            rows = {seq_num: row for seq_num, row in rows.items() if seq_num <= stopped_at}
        pool = _pool(sorted(rows), log.height, is_cut=stopped_at is not None)
        if pinned is not None:
            pool.update(certificate_pool(pinned, log.height))
        lacking = [n for n in pool - rows.keys() if any(first <= n <= last for first, last in ranges)]
        for seq_num, encoded in read_entry_bytes(connection, log.id, lacking).items():
            rows[seq_num] = encoded, None
            size += len(encoded)
    ordered = [item for seq_num in sorted(rows) for item in (rows[seq_num], *branches.get(seq_num, ()))]
    return OfferedEntries(ordered, size, stopped_at)


def _is_offered_whole(connection: Connection, log: LogState, now: int) -> bool:
    of_author = _has_public(now)
    query = select(logs.c.id).where(logs.c.id == log.id, or_(_is_schema_log(), _is_hosted_log0()))
    if connection.scalar(query) is not None:
        return True
    if log.log_id != 0:
        return False
    # Log 0 of somebody elsewhere goes with what else of theirs is on offer, by whichever of their keys.
    for author in sorted(_with_kin(connection, {log.author})):
        first, last = encode_log_key(author, 1), encode_log_key(author, MAX_STORED_INTEGER)
        others = select(logs.c.id).where(logs.c.name.between(first, last), or_(_is_schema_log(), of_author)).limit(1)
        if connection.scalar(others) is not None:
            return True
    return False


def _with_kin(connection: Connection, authors: Collection[PublicKey]) -> set[PublicKey]:
    """The authors, and all other keys of the identities that they belong to: a document is proved by several logs."""
    own, kin = identity_keys.alias(), identity_keys.alias()
    found = {PublicKey(author) for author in authors}
    for some in in_lists(authors):
        query = select(kin.c.author).join_from(own, kin, kin.c.identity == own.c.identity).where(own.c.author.in_(some))
        found |= {PublicKey(author) for author in connection.scalars(query)}
    return found


def _is_offered_partly(connection: Connection, log: LogState, now: int) -> bool:
    return connection.scalar(select(logs.c.id).where(logs.c.id == log.id, _has_public(now))) is not None


def _rows(
    connection: Connection, log: LogState, first: int, last: int, *, is_whole: bool, now: int
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Valid entries between two sequence numbers: all of a log that is offered whole, else of public instances.

    Of log 0 those of all branches.
    """
    standing = log.standing
    invalid_from = standing.lied_at if log.log_id == 0 else standing.invalid_from
    if invalid_from is not None:
        last = min(last, invalid_from - 1)
    if standing.last_counted is not None and (log.log_id > 0 or standing.forked_at is None):
        last = min(last, standing.last_counted)
    is_public = and_(
        public_instances.c.log == entries.c.log,
        public_instances.c.create_seq == entries.c.create_seq,
        or_(public_instances.c.is_deleted.is_(False), entries.c.kind == "delete"),
        _is_offered(now),
    )
    columns = (entries.c.seq_num, entries.c.encoded)
    if is_whole:
        # Such a log should hold nothing else; if it does, that is no more public than elsewhere.
        is_open = or_(entries.c.kind.in_(_OPEN_KINDS), entries.c.kind.is_(None), exists().where(is_public))
        query = select(*columns, case((is_open, entries.c.payload), else_=null()))
    else:
        query = select(*columns, entries.c.payload).join_from(entries, public_instances, is_public)
        query = query.where(entries.c.payload.is_not(None), entries.c.code.is_(None))
    query = query.where(entries.c.log == log.id, entries.c.seq_num.between(first, last)).order_by(
        entries.c.seq_num, entries.c.hash
    )
    with connection.execution_options(yield_per=500).execute(query) as found:
        for row in found:
            yield row[0], row[1], row[2]


def _pool(seq_nums: Sequence[int], height: int, *, is_cut: bool) -> set[int]:
    """What proves these entries: of each run of neighbours, the path from its first to 1 and the pool of its last.

    From the last of a run there is a path to any of it. Where more of a run follows, its end is proved later.
    """
    pool: set[int] = set()
    for first, last in _runs(seq_nums):
        pool.update(shortest_path(first, 1))
        if not (is_cut and last == seq_nums[-1]):
            pool.update(certificate_pool(last, height))
    return pool


def _runs(seq_nums: Sequence[int]) -> Iterator[SeqNumRange]:
    if not seq_nums:
        return
    first = last = seq_nums[0]
    for seq_num in seq_nums[1:]:
        if seq_num != last + 1:
            yield first, last
            first = seq_num
        last = seq_num
    yield first, last


# The other side


def find_missing_ranges(
    connection: Connection, author: PublicKey, log_id: int, height: int, *, most: int, is_forked: bool = False
) -> list[SeqNumRange]:
    """The sequence numbers up to a height whose payloads never came; those that came and were dropped are left out.

    If there are more ranges than `most`, the last one covers all the rest. `is_forked`: the other side has a proof that
    the log is forked; then of log 0 everything is asked for, since it may have branches that are not held here. While
    the pin of a log does not decide, the path from it to entry 1 is among them, also where entries of other branches
    are held.
    """
    log = find_log(connection, author, log_id)
    if log is None or (log_id == 0 and (is_forked or log.standing.forked_at is not None)):
        return [(1, height)] if height else []
    path: list[SeqNumRange] = []
    if (last_counted := log.standing.revoked_after) is not None:
        if log.pin is not None and not log.is_pinned and last_counted <= height:
            path = list(_runs(sorted(shortest_path(last_counted, 1))))
        height = min(height, last_counted)
    if log.invalid_from is not None:
        height = min(height, log.invalid_from - 1)
    return _unite([*path, *_find_gaps(connection, log, height, most=max(1, most - len(path)))])


def _unite(ranges: Collection[SeqNumRange]) -> list[SeqNumRange]:
    """Sort ranges, and make one of those that touch."""
    united: list[SeqNumRange] = []
    for first, last in sorted(ranges):
        if united and first <= united[-1][1] + 1:
            united[-1] = united[-1][0], max(last, united[-1][1])
        else:
            united.append((first, last))
    return united


def _find_gaps(connection: Connection, log: LogState, height: int, *, most: int) -> list[SeqNumRange]:
    came = or_(entries.c.kind.is_not(None), entries.c.code.is_not(None), entries.c.payload.is_not(None))
    held = select(entries.c.seq_num).where(entries.c.log == log.id, entries.c.seq_num <= height, came).distinct()
    some = held.subquery()
    island = (some.c.seq_num - func.row_number().over(order_by=some.c.seq_num)).label("island")
    numbered = select(some.c.seq_num, island).subquery()
    query = (
        select(func.min(numbered.c.seq_num), func.max(numbered.c.seq_num))
        .group_by(numbered.c.island)
        .order_by(func.min(numbered.c.seq_num))
    )
    ranges: list[SeqNumRange] = []
    start = 1
    for first, last in connection.execute(query):
        if first > start:
            if len(ranges) == most - 1:
                return [*ranges, (start, height)]
            ranges.append((start, first - 1))
        start = last + 1
    if start <= height:
        ranges.append((start, height))
    return ranges


def count_seq_nums(ranges: Collection[SeqNumRange]) -> int:
    """How many sequence numbers there are in ranges."""
    return sum(last - first + 1 for first, last in ranges)

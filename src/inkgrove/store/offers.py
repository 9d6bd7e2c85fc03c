"""What this node offers to any other: schema logs and log 0 whole, public instances with the pools that prove them.

docs/protocol.md section 8. Of an instance that has ended only its end is offered, if it was ever public, and nothing of
one that has expired. Payloads of anything else never leave by this way, and logs that hold nothing to offer are not
even named. Log 0 is offered of identities that are hosted here and of authors who have something else to offer: not of
everybody whom somebody here writes to.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, case, exists, func, null, or_, select

from inkgrove.core import PublicKey, certificate_pool, shortest_path
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.store.federation_tables import public_instances
from inkgrove.store.ingests import Offset, What, is_after
from inkgrove.store.node_tables import identities, identity_keys
from inkgrove.store.reading import LogState, find_fork_proofs, find_log, find_logs, log_state, read_encoded
from inkgrove.store.tables import entries, ingests, logs, name_of_log

Range = tuple[int, int]
"""The first and the last of some sequence numbers."""

_OPEN_KINDS: Final = ("schema-meta", "schema-migration", "schema-revert", "identity", "key-of")


_MOST_COUNTED: Final = 10_000
"""How many payloads are counted for a page of logs: what it costs does not grow with the logs."""
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
        changed = select(ingests.c.log).where(is_after(connection, since), ingests.c.log.is_not(None))
        query = query.where(or_(and_(is_whole, logs.c.id.in_(changed)), logs.c.id.in_(_with_public_news(changed, now))))
    rows = connection.execute(query).all()
    states = [log_state(row) for row in rows]
    found = {(state.author, state.log_id): state for state in states}
    # The identities of those who have something to offer come with it.
    log0s = find_logs(connection, {name_of_log(state.author, 0) for state in states})
    found |= {(state.author, 0): state for state in log0s.values() if (state.author, 0) not in found}
    counts = _count_payloads(connection, [state.id for state in found.values()], now)
    proofs = find_fork_proofs(connection, [s.id for s in found.values() if s.standing.forked_at is not None])
    offered = [
        OfferedLog(state.author, state.log_id, state.height, counts.get(state.id) or state.held, proofs.get(state.id))
        for state in found.values()
    ]
    return offered, rows[-1].id if len(rows) == limit else None


def _with_public_news(changed: Select[Any], now: int) -> Select[Any]:
    """The logs in which something changed that anybody may see; other changes are nobody's business."""
    is_entry = and_(entries.c.log == ingests.c.log, entries.c.seq_num == ingests.c.seq_num)
    is_public = and_(
        public_instances.c.log == ingests.c.log,
        public_instances.c.create_seq == entries.c.create_seq,
        _is_offered(now),
    )
    of_log = exists().where(public_instances.c.log == ingests.c.log, _is_offered(now))
    is_verdict = and_(ingests.c.what.in_((What.FORK.value, What.LIE.value, What.ENDED.value)), of_log)
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
    """Behind which place there is more; None if that was all."""


NOTHING: Final = OfferedEntries([], 0, None)


def read_offered(
    connection: Connection,
    author: PublicKey,
    log_id: int,
    ranges: Sequence[Range],
    *,
    after: int,
    most: int,
    most_bytes: int,
    now: int,
) -> OfferedEntries:
    """What is offered of a log at places that somebody lacks, with the pools that prove it.

    Of the pools only what they lack is sent, be it before or behind `after`.
    """
    log = find_log(connection, author, log_id)
    if log is None:
        return NOTHING
    is_whole = _is_offered_whole(connection, log, now)
    rows: dict[int, tuple[bytes, bytes | None]] = {}
    size, stopped_at = 0, None
    for first, last in ranges:
        found = _rows(connection, log, max(first, after + 1), last, is_whole=is_whole, now=now)
        for seq_num, encoded, payload in found:
            weight = len(encoded) + len(payload or b"")
            if rows and (len(rows) >= most or size + weight > most_bytes):
                stopped_at = max(rows)
                break
            rows[seq_num] = encoded, payload
            size += weight
        if stopped_at is not None:
            break
    if not is_whole and rows:
        runs = list(_runs(sorted(rows)))
        if len(runs) > _MOST_RUNS:
            stopped_at = runs[_MOST_RUNS - 1][1]
            rows = {seq_num: row for seq_num, row in rows.items() if seq_num <= stopped_at}
        pool = _pool(sorted(rows), log.height, is_cut=stopped_at is not None)
        lacking = [n for n in pool - rows.keys() if any(first <= n <= last for first, last in ranges)]
        for seq_num, encoded in read_encoded(connection, log.id, lacking).items():
            rows[seq_num] = encoded, None
            size += len(encoded)
    return OfferedEntries([rows[seq_num] for seq_num in sorted(rows)], size, stopped_at)


def _is_offered_whole(connection: Connection, log: LogState, now: int) -> bool:
    of_author = _has_public(now)
    query = select(logs.c.id).where(logs.c.id == log.id, or_(_is_schema_log(), _is_hosted_log0()))
    if connection.scalar(query) is not None:
        return True
    if log.log_id != 0:
        return False
    # Log 0 of somebody elsewhere goes with what else of theirs is on offer.
    first, last = name_of_log(log.author, 1), name_of_log(log.author, MAX_STORED_INTEGER)
    others = select(logs.c.id).where(logs.c.name.between(first, last), or_(_is_schema_log(), of_author)).limit(1)
    return connection.scalar(others) is not None


def _rows(
    connection: Connection, log: LogState, first: int, last: int, *, is_whole: bool, now: int
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Entries between two places that count: all of a log that is offered whole, else those of public instances."""
    standing = log.standing
    if standing.invalid_from is not None:
        last = min(last, standing.invalid_from - 1)
    if standing.last_counted is not None:
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
    query = query.where(entries.c.log == log.id, entries.c.seq_num.between(first, last)).order_by(entries.c.seq_num)
    with connection.execution_options(yield_per=500).execute(query) as found:
        for row in found:
            yield row[0], row[1], row[2]


def _pool(seq_nums: Sequence[int], height: int, *, is_cut: bool) -> set[int]:
    """The places that prove these: of each run of neighbours, the way from its first to 1 and the pool of its last.

    Whoever holds a run can go from its last to any of it. Where more of a run follows, its end proves itself later.
    """
    pool: set[int] = set()
    for first, last in _runs(seq_nums):
        pool.update(shortest_path(first, 1))
        if not (is_cut and last == seq_nums[-1]):
            pool.update(certificate_pool(last, height))
    return pool


def _runs(seq_nums: Sequence[int]) -> Iterator[Range]:
    first = last = seq_nums[0]
    for seq_num in seq_nums[1:]:
        if seq_num != last + 1:
            yield first, last
            first = seq_num
        last = seq_num
    yield first, last


# The other side


def lacking_ranges(connection: Connection, author: PublicKey, log_id: int, height: int, *, most: int) -> list[Range]:
    """The places up to a height whose payloads never came here; those that came and were dropped stay away.

    If there are more ranges than `most`, the last one covers all the rest.
    """
    log = find_log(connection, author, log_id)
    if log is None:
        return [(1, height)] if height else []
    if log.invalid_from is not None:
        height = min(height, log.invalid_from - 1)
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
    ranges: list[Range] = []
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


def count_places(ranges: Collection[Range]) -> int:
    """How many places there are in ranges."""
    return sum(last - first + 1 for first, last in ranges)

"""Which entries of a log are its rows and which lie beside them, as the pin of its owner says.

docs/protocol.md section 7.2. Readers know of no branches: `entries` holds what may count of a log, and what its pin
does not lead to is kept in `branch_entries`, where a later pin finds it. `settle_branch` moves entries between the two
when a pin comes, changes or begins to decide; what it makes of a log follows from what is held of it, whatever came
first.

| the log | rows | beside them |
|---|---|---|
| pinned (the pin decides) | the branch of the pin | everything else |
| not pinned | what is verified, and all of the invalid part | what has no path to entry 1 yet |

In a log that is whole and not forked the branch of a pin is all up to it. There nothing moves, and entries behind the
pin stay where they are, for `revoked_after` hides them.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update

from inkgrove.core import Entry, Hash, PublicKey, decode_entry, lipmaa
from inkgrove.core.errors import InkgroveError, OtherBranch
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import Delete, RevokedLog, Update, decode_message
from inkgrove.store.db.connection import CompiledList, execute_many, in_lists, insert_new
from inkgrove.store.db.log_tables import branch_entries, encode_log_key, entries, fork_proofs, ingests, logs
from inkgrove.store.db.node_tables import blob_references, public_instances
from inkgrove.store.db.rot_tables import copies
from inkgrove.store.logs.blob_references import rebuild_references
from inkgrove.store.logs.entries import StoredEntry
from inkgrove.store.logs.messages import InstanceKey, create_seqs_from
from inkgrove.store.logs.positions import IngestKind

_MOST_TIPS: Final = 100
"""How many branches of a log are looked at to find the one that came first."""


class _Held(NamedTuple):
    """An entry of the log, wherever it lies."""

    id: int

    hash: Hash
    seq_num: int
    links: tuple[tuple[int, Hash], ...]
    """What it links to, each with its sequence number."""
    is_end: bool
    is_lie: bool
    """Whether its payload is held and shows that it claims a wrong size."""
    is_row: bool


class _Verdict(NamedTuple):
    """What a log is to be."""

    rows: set[Hash]
    is_pinned: bool
    height: int
    forked_at: int | None
    lied_at: int | None
    ended_at: int | None
    proof: tuple[Hash, Hash] | None = None


def links_of(entry: Entry) -> tuple[tuple[int, Hash], ...]:
    """The hashes that an entry links to, each with the sequence number that it stands for."""
    links = ((entry.seq_num - 1, entry.backlink), (lipmaa(entry.seq_num), entry.lipmaa_link))
    return tuple((at, link) for at, link in links if link is not None)


def settle_branch(connection: Connection, log: int) -> bool:
    """Bring the rows of a log in line with its pin; returns whether it had to judge all of the log.

    The log is locked, and `pin` and `revoked_after` are set.

    Writes what happened to `ingests`: `BRANCH` at the first sequence number where something counts otherwise than
    before, and an `ENTRY` for each row from there on, so that whoever follows looks at all of them again.
    """
    state = connection.execute(select(logs).where(logs.c.id == log)).one()
    is_whole = state.held == state.height and state.forked_at is None and state.aside == 0
    if is_whole and (state.ended_at is None or state.pin is None or state.ended_at >= state.revoked_after):
        is_pinned = state.pin is not None and _hash_at(connection, log, state.revoked_after) == state.pin
        if is_pinned != state.is_pinned:
            connection.execute(update(logs).where(logs.c.id == log).values(is_pinned=is_pinned))
        return False
    branch = read_branch(connection, log, Hash(state.pin), state.revoked_after) if state.pin is not None else None
    if branch is None and not state.is_pinned and state.aside == 0:
        return False
    held = {item.hash: item for item in _read_all(connection, log)}
    verdict = _judge_all(held.values()) if branch is None else _judge_branch([held[name] for name in branch])
    _apply(connection, state, held, verdict)
    return True


def _hash_at(connection: Connection, log: int, seq_num: int) -> bytes | None:
    query = select(entries.c.hash).where(entries.c.log == log, entries.c.seq_num == seq_num)
    return connection.scalar(query)


# Reading


def _columns(table: Table) -> Any:
    return select(table.c.id, table.c.hash, table.c.seq_num, table.c.encoded, func.length(table.c.payload))


_rows_called: Final = CompiledList(
    lambda hashes: _columns(entries).where(entries.c.hash.in_(hashes), entries.c.log == bindparam("log"))
)
_beside_called: Final = CompiledList(
    lambda hashes: _columns(branch_entries).where(
        branch_entries.c.hash.in_(hashes), branch_entries.c.log == bindparam("log")
    )
)


def _held_of(row: Any, *, is_row: bool) -> _Held:
    number, entry_hash, seq_num, encoded, size = row
    entry = decode_entry(encoded)
    is_lie = size is not None and size != entry.payload_size
    return _Held(number, Hash(entry_hash), seq_num, links_of(entry), entry.is_end_of_log, is_lie, is_row)


def _read_all(connection: Connection, log: int) -> Iterator[_Held]:
    for table in (entries, branch_entries):
        for row in connection.execute(_columns(table).where(table.c.log == log)).all():
            yield _held_of(row, is_row=table is entries)


def read_branch(connection: Connection, log: int, pin: Hash, last: int) -> set[Hash] | None:
    """Return what a pin leads to, over held entries; None if it does not decide which branch counts."""
    branch: dict[Hash, _Held] = {}
    wanted: dict[Hash, int] = {pin: last}
    # In rounds: to any entry below leads a path of few links.
    while wanted:
        found: dict[Hash, _Held] = {}
        for some in in_lists(sorted(wanted)):
            for query, is_row in ((_rows_called, True), (_beside_called, False)):
                for row in query.rows(connection, some, log=log):
                    item = _held_of(row, is_row=is_row)
                    if wanted[item.hash] == item.seq_num:
                        found[item.hash] = item
        branch |= found
        wanted = {link: at for item in found.values() for at, link in item.links if link not in branch}
    items = branch.values()
    has_first = any(item.seq_num == 1 for item in items)
    goes_past_end = any(item.is_end and item.seq_num < last for item in items)
    return set(branch) if has_first and not goes_past_end and _find_fork(items) is None else None


def _find_fork(held: Iterable[_Held]) -> tuple[int, Hash, Hash] | None:
    """Find the earliest sequence number with two claims, and two entries that make them."""
    claims: dict[int, dict[Hash, Hash]] = {}
    for item in held:
        for at, claimed in ((item.seq_num, item.hash), *item.links):
            claims.setdefault(at, {}).setdefault(claimed, item.hash)
    forked_at = min((at for at, claimed in claims.items() if len(claimed) > 1), default=None)
    if forked_at is None:
        return None
    first, second, *_ = claims[forked_at].values()
    return forked_at, first, second


# Judging


def _judge_branch(branch: Collection[_Held]) -> _Verdict:
    last = max(branch, key=lambda item: item.seq_num)
    return _Verdict(
        rows={item.hash for item in branch},
        is_pinned=True,
        height=last.seq_num,
        forked_at=None,
        lied_at=_first_lie(branch),
        ended_at=last.seq_num if last.is_end else None,
    )


def _judge_all(held: Collection[_Held]) -> _Verdict:
    """Judge a log that no pin decides on, as `core.log.verify_log` does."""
    fork, lied_at = _find_fork(held), _first_lie(held)
    forked_at = fork[0] if fork is not None else None
    invalid_from = min((at for at in (forked_at, lied_at) if at is not None), default=None)
    verified: set[tuple[int, Hash]] = set()
    ended_at: int | None = None
    rows: set[Hash] = set()
    for item in sorted(held, key=lambda item: item.seq_num):
        if invalid_from is not None and item.seq_num >= invalid_from:
            rows.add(item.hash)
            continue
        if item.seq_num > 1 and verified.isdisjoint(item.links):
            if ended_at is not None and item.is_row:
                rows.add(item.hash)  # behind the end, where it counts nowhere
            continue
        if ended_at is not None:
            rows.add(item.hash)
            continue
        verified.add((item.seq_num, item.hash))
        rows.add(item.hash)
        if item.is_end:
            ended_at = item.seq_num
    height = max((item.seq_num for item in held if item.hash in rows), default=0)
    return _Verdict(rows, False, height, forked_at, lied_at, ended_at, fork[1:] if fork is not None else None)


def _first_lie(held: Iterable[_Held]) -> int | None:
    return min((item.seq_num for item in held if item.is_lie), default=None)


# Applying


def _apply(connection: Connection, state: Any, held: dict[Hash, _Held], verdict: _Verdict) -> None:
    log = state.id
    leaving = [item for item in held.values() if item.is_row and item.hash not in verdict.rows]
    joining = [item for item in held.values() if not item.is_row and item.hash in verdict.rows]
    values = {
        "is_pinned": verdict.is_pinned,
        "height": verdict.height,
        "held": len(verdict.rows),
        "aside": len(held) - len(verdict.rows),
        "forked_at": verdict.forked_at,
        "lied_at": verdict.lied_at,
        "ended_at": verdict.ended_at,
    }
    connection.execute(update(logs).where(logs.c.id == log).values(values))
    changed = [item.seq_num for item in (*leaving, *joining)]
    for name in ("forked_at", "lied_at", "ended_at"):
        if values[name] != state._mapping[name]:
            changed += [at for at in (values[name], state._mapping[name]) if at is not None]
    if verdict.forked_at is not None and verdict.proof is not None:
        first, second = verdict.proof
        proof = {"log": log, "seq_num": verdict.forked_at, "first": first, "second": second}
        connection.execute(insert_new(connection, fork_proofs), proof)
    if not changed:
        return
    _move(connection, entries, branch_entries, [item.hash for item in leaving])
    _move(connection, branch_entries, entries, [item.hash for item in joining])
    _name_creates_anew(connection, log, {item.hash for item in leaving}, {item.hash for item in joining})
    _forget_derived(connection, log, [item.hash for item in leaving])
    first_seq = min(changed)
    happened = [{"what": IngestKind.BRANCH.value, "log": log, "seq_num": first_seq}]
    rows = connection.scalars(
        select(entries.c.seq_num)
        .where(entries.c.log == log, entries.c.seq_num >= first_seq)
        .order_by(entries.c.seq_num)
    )
    happened += [{"what": IngestKind.ENTRY.value, "log": log, "seq_num": seq_num} for seq_num in dict.fromkeys(rows)]
    execute_many(connection, insert(ingests), happened)
    instances = [InstanceKey(log, create_seq) for create_seq in create_seqs_from(connection, log, first_seq)]
    rebuild_references(connection, dict.fromkeys(instances, PublicKey(state.author)))


_MOVED: Final = [column.name for column in entries.c if column.name != "id"]


def _move(connection: Connection, source: Table, target: Table, hashes: Collection[Hash]) -> None:
    for some in in_lists(sorted(hashes)):
        found = select(*(source.c[name] for name in _MOVED)).where(source.c.hash.in_(some)).order_by(source.c.seq_num)
        connection.execute(insert(target).from_select(_MOVED, found))
        connection.execute(delete(source).where(source.c.hash.in_(some)))


def _name_creates_anew(connection: Connection, log: int, left: set[Hash], joined: set[Hash]) -> None:
    """Find anew which entry a message is folded with, where it names one by its hash that has come or gone."""
    columns = (entries.c.id, entries.c.seq_num, entries.c.hash, entries.c.create_seq, entries.c.ref_hash)
    query = select(*columns, entries.c.payload).where(
        entries.c.log == log, entries.c.kind.in_(("update", "delete")), entries.c.payload.is_not(None)
    )
    named: list[tuple[Any, Hash]] = []
    for row in connection.execute(query).all():
        instance = _instance_named(row.payload)
        if instance is not None and (instance in left or instance in joined or row.hash in joined):
            named.append((row, instance))
    wanted = {instance for _, instance in named}
    there: dict[Hash, int] = {}
    for some in in_lists(sorted(wanted)):
        targets = select(entries.c.hash, entries.c.seq_num).where(entries.c.hash.in_(some), entries.c.log == log)
        there |= {Hash(found): seq_num for found, seq_num in connection.execute(targets)}
    changes = []
    for row, instance in named:
        create_seq = there.get(instance, row.seq_num)
        ref_hash = instance if create_seq == row.seq_num else None
        if (create_seq, ref_hash) != (row.create_seq, row.ref_hash):
            changes.append({"of_id": row.id, "new_create_seq": create_seq, "new_ref_hash": ref_hash})
    if changes:
        execute_many(connection, _RENAME, changes)


_RENAME = (
    update(entries)
    .where(entries.c.id == bindparam("of_id"))
    .values(create_seq=bindparam("new_create_seq"), ref_hash=bindparam("new_ref_hash"))
)


def _instance_named(payload: bytes) -> Hash | None:
    try:
        message = decode_message(payload)
    except InkgroveError:
        return None
    if isinstance(message, Update | Delete) and isinstance(message.instance, Hash):
        return message.instance
    return None


def _forget_derived(connection: Connection, log: int, left: Collection[Hash]) -> None:
    """Forget what was remembered of instances that count no more; who follows the log finds the rest anew.

    What is public is forgotten for the whole log: else an instance of another branch with the same number would pass
    for it.
    """
    connection.execute(delete(public_instances).where(public_instances.c.log == log))
    for some in in_lists(sorted(left)):
        connection.execute(
            delete(blob_references).where(blob_references.c.log == log, blob_references.c.instance.in_(some))
        )
        connection.execute(delete(copies).where(copies.c.instance.in_(some)))


def read_beside(connection: Connection, author: PublicKey, log_id: int) -> list[StoredEntry]:
    """Read the entries of a log that are no rows of it, in order."""
    query = (
        select(branch_entries)
        .join_from(branch_entries, logs)
        .where(logs.c.name == encode_log_key(author, log_id))
        .order_by(branch_entries.c.seq_num, branch_entries.c.hash)
    )
    return [
        StoredEntry(decode_entry(row.encoded), Hash(row.hash), row.payload, OtherBranch.code)
        for row in connection.execute(query)
    ]


# Pinning


def find_pins(connection: Connection, author: PublicKey) -> list[RevokedLog]:
    """Find the ends that let all of an author's logs count as far as they are held, each with the hash of its entry.

    Of a forked log the branch that came first is pinned: whoever steals a key comes after its owner.
    """
    is_its_own = logs.c.name.between(encode_log_key(author, 0), encode_log_key(author, MAX_STORED_INTEGER))
    states = connection.execute(select(logs).where(is_its_own, logs.c.height > 0).order_by(logs.c.name)).all()
    return [RevokedLog(state.log_id, *_find_end(connection, state)) for state in states]


def _find_end(connection: Connection, state: Any) -> tuple[int, Hash | None]:
    if state.is_pinned:
        return state.revoked_after, Hash(state.pin)
    if state.forked_at is None:
        found = _hash_at(connection, state.id, state.height)
        return state.height, Hash(found) if found is not None else None
    held = {item.hash: item for item in _read_all(connection, state.id)}
    linked = {link for item in held.values() for _, link in item.links}
    tips = sorted((item for item in held.values() if item.hash not in linked), key=lambda item: item.id)
    chosen: tuple[list[int], _Held] | None = None
    for tip in tips[:_MOST_TIPS]:
        branch = read_branch(connection, state.id, tip.hash, tip.seq_num)
        if branch is not None:
            members = sorted((held[name] for name in branch), key=lambda item: item.seq_num)
            arrivals = [item.id for item in members if item.seq_num >= state.forked_at]
            if chosen is None or arrivals < chosen[0]:
                chosen = arrivals, tip
    return (state.forked_at - 1, None) if chosen is None else (chosen[1].seq_num, chosen[1].hash)

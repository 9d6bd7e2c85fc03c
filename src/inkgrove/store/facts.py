"""Reads and locks what a batch has to be judged by: a few queries for the whole batch, however long its logs are.

docs/protocol.md section 2. Of each log only the places that the items claim something about are read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, and_, exists, or_, select

from inkgrove.core import Hash, decode_entry, lipmaa
from inkgrove.store.compiled import Compiled, CompiledList
from inkgrove.store.database import TryAgain, in_lists, insert_new, pairs_as_parameters, table_of_pairs
from inkgrove.store.decide import Claim, LogFacts, Standing
from inkgrove.store.prepare import Batch, LogKey, Prepared
from inkgrove.store.revocations import lock_ends
from inkgrove.store.rot_tables import ROTTED, copies
from inkgrove.store.tables import STANDING, entries, logs, name_of_log

lock_logs: Final = CompiledList(
    lambda names: (
        select(logs.c.name, logs.c.id, logs.c.height, logs.c.held, *STANDING)
        .where(logs.c.name.in_(names))
        .order_by(logs.c.name)
        .with_for_update()
    )
)


def lock_facts(connection: Connection, batch: Batch, *, must_be_next: bool) -> dict[LogKey, LogFacts]:
    """The facts of every log of the batch, which no other writer changes before the transaction ends."""
    facts = _lock_logs(connection, batch)
    _load_claims(connection, batch, facts, must_be_next=must_be_next)
    return facts


def _lock_logs(connection: Connection, batch: Batch) -> dict[LogKey, LogFacts]:
    names = {name_of_log(*key): key for key in batch}
    facts: dict[LogKey, LogFacts] = {}
    # One order for all writers: rows that exist by name, then new ones by name. Nobody waits in a circle.
    for some in in_lists(sorted(names)):
        for name, number, height, held, *standing in lock_logs.rows(connection, some):
            key = names[name]
            facts[key] = LogFacts(*key, number, height, held, Standing(*standing), first_height=height)
    missing = {name: key for name, key in names.items() if key not in facts}
    # A log begins with its first entry: nothing else finds a path, and nothing held can be contradicted.
    begun = {name: key for name, key in missing.items() if batch[key][0].signed.entry.seq_num == 1}
    if begun:
        ends = lock_ends(connection, {author for author, _ in begun.values()})
        standings = {
            name: Standing(revoked_after=ends[author].get(log_id, 0) if log_id and author in ends else None)
            for name, (author, log_id) in begun.items()
        }
        rows = [
            {"name": name, "author": author, "log_id": log_id, "height": 0, "held": 0}
            | {"revoked_after": standings[name].revoked_after}
            for name, (author, log_id) in sorted(begun.items())
        ]
        made = connection.execute(insert_new(connection, logs).returning(logs.c.id, logs.c.name), rows).all()
        if len(made) < len(rows):
            raise TryAgain  # another writer has begun one of these logs meanwhile
        facts |= {names[row.name]: LogFacts(*names[row.name], row.id, standing=standings[row.name]) for row in made}
    return facts | {key: LogFacts(*key) for name, key in missing.items() if name not in begun}


def _load_claims(connection: Connection, batch: Batch, facts: dict[LogKey, LogFacts], *, must_be_next: bool) -> None:
    by_id = {log.id: log for log in facts.values() if log.first_height}
    places = {
        (facts[key].id, seq_num)
        for key, items in batch.items()
        if facts[key].first_height
        for seq_num in _places(facts[key], items, must_be_next=must_be_next)
    }
    for found in read_claims(connection, places, {number: log.height for number, log in by_id.items()}):
        log = by_id[found.log]
        if found.has_payload is None:
            log.claims.setdefault(found.at, found.claim)
        else:
            log.claims[found.at] = found.claim
            log.known[found.claim.hash] = found.has_payload


class FoundClaim(NamedTuple):
    """What the store says about a place: by the entry held there, or by one that links to it."""

    log: int
    at: int
    claim: Claim
    has_payload: bool | None
    """None unless the entry itself is held."""


def read_claims(
    connection: Connection, places: Collection[tuple[int, int]], heights: Mapping[int, int]
) -> Iterator[FoundClaim]:
    """The claims about places (log, sequence number) of logs that are `heights` high."""
    if not places:
        return
    held: set[tuple[int, int]] = set()
    for log, seq_num, found, has_payload in _read(connection, _held, places):
        held.add((log, seq_num))
        entry_hash = Hash(found)
        yield FoundClaim(log, seq_num, Claim(entry_hash, entry_hash), bool(has_payload))
    # Entries that are not held may be claimed by others that link to them.
    missing = set(places) - held
    witnesses = {(log, witness) for log, seq_num in missing for witness in linking_to(seq_num, heights[log])}
    for log, witness, encoded in _read(connection, _witnesses, witnesses):
        entry = decode_entry(encoded)
        for at, claimed in ((entry.seq_num - 1, entry.backlink), (lipmaa(entry.seq_num), entry.lipmaa_link)):
            if claimed is not None:
                yield FoundClaim(log, at, Claim(claimed, Hash(witness)), None)


def _places(log: LogFacts, items: Iterable[Prepared], *, must_be_next: bool) -> Iterator[int]:
    """The sequence numbers that matter to the items, as far as anything can be held there."""
    height = log.first_height
    for item in items:
        yield from (at for at, _ in item.claims if at <= height)
    if must_be_next:
        yield from (height, lipmaa(height + 1))


def linking_to(seq_num: int, height: int) -> Iterator[int]:
    """The sequence numbers up to `height` whose entries link to this one, by backlink or lipmaa link."""
    # lipmaa(n) is n - R(j), or for n = R(k) it is R(k - 1): so n - lipmaa(n) is some R(j) or a power of three.
    distance, power = 1, 1
    while seq_num + min(distance, power) <= height:
        for at in {seq_num + distance, seq_num + power}:
            if at <= height and (at == seq_num + 1 or lipmaa(at) == seq_num):
                yield at
        power *= 3
        distance = distance * 3 + 1


def _read(connection: Connection, query: Compiled, places: Collection[tuple[int, int]]) -> Sequence[Any]:
    if not places:
        return []
    return query.rows(connection, **pairs_as_parameters(connection.dialect.name, sorted(places)))


def _select_held(connection: Connection) -> Select[Any]:
    # What has rotted does not come back unasked: its payloads count as if they were here.
    has_rotted = exists().where(
        copies.c.log == entries.c.log,
        copies.c.create_seq == entries.c.create_seq,
        or_(*(copies.c.step == step for step in ROTTED)),
    )
    has_payload = or_(entries.c.payload.is_not(None), has_rotted)
    return _at_places(select(entries.c.log, entries.c.seq_num, entries.c.hash, has_payload), connection)


def _select_witnesses(connection: Connection) -> Select[Any]:
    return _at_places(select(entries.c.log, entries.c.hash, entries.c.encoded), connection)


def _at_places(query: Select[Any], connection: Connection) -> Select[Any]:
    wanted = table_of_pairs(connection.dialect.name)
    return query.join_from(wanted, entries, and_(entries.c.log == wanted.c.first, entries.c.seq_num == wanted.c.second))


_held: Final = Compiled(_select_held)
_witnesses: Final = Compiled(_select_witnesses)

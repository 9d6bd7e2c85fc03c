"""Keeps the content of erased instances from coming back, whoever brings it (docs/protocol.md section 9.5).

An entry is taken in as any other; the payload of a create or update of an erased instance is not.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from sqlalchemy import Connection, select

from inkgrove.core import Hash
from inkgrove.core.errors import PayloadError
from inkgrove.store.db.connection import in_lists, pairs_as_parameters, table_of_pairs
from inkgrove.store.db.erasure_tables import erasures
from inkgrove.store.logs.preparation import PayloadContent, PreparedItem

_CONTENT = frozenset({"create", "update"})


class OfferedMessage(NamedTuple):
    """A payload that is about to be stored, and where."""

    log: int
    """The store's own number of its log; 0 if that is not held."""
    hash: Hash
    """Of its entry."""
    content: PayloadContent


def is_erased(connection: Connection, instance: Hash) -> bool:
    """Whether the content of an instance was erased here."""
    query = select(erasures.c.instance).where(erasures.c.instance == instance, erasures.c.erased.is_not(None))
    return connection.scalar(query) is not None


def find_erased_messages(connection: Connection, offered: Iterable[OfferedMessage]) -> set[Hash]:
    """Find those of the messages, by the hash of their entry, that are content of erased instances."""
    if connection.scalar(select(erasures.c.instance).where(erasures.c.erased.is_not(None)).limit(1)) is None:
        return set()
    by_hash: dict[Hash, list[Hash]] = {}
    by_place: dict[tuple[int, int], list[Hash]] = {}
    for log, entry_hash, content in offered:
        if content.kind not in _CONTENT:
            continue
        named = entry_hash if content.kind == "create" else content.instance
        if isinstance(named, Hash):
            by_hash.setdefault(named, []).append(entry_hash)
        elif named is not None:
            by_place.setdefault((log, named), []).append(entry_hash)
    found = {name for instance in _erased_among(connection, by_hash) for name in by_hash[instance]}
    return found | {name for place in _erased_at(connection, by_place) for name in by_place[place]}


def without_content(item: PreparedItem) -> PreparedItem:
    """Return an item without its payload, and with the error that says why."""
    error = PayloadError("payload.erased", "the content of this instance was erased here and is not taken again")
    return item._replace(payload=None, content=None, payload_error=error)


def _erased_among(connection: Connection, instances: Collection[Hash]) -> Iterator[Hash]:
    for some in in_lists(instances):
        query = select(erasures.c.instance).where(erasures.c.instance.in_(some), erasures.c.erased.is_not(None))
        yield from map(Hash, connection.scalars(query))


def _erased_at(connection: Connection, places: Collection[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    if not places:
        return
    dialect = connection.dialect.name
    wanted = table_of_pairs(dialect)
    is_there = (erasures.c.log == wanted.c.first) & (erasures.c.create_seq == wanted.c.second)
    query = select(erasures.c.log, erasures.c.create_seq).join_from(wanted, erasures, is_there)
    rows = connection.execute(query.where(erasures.c.erased.is_not(None)), pairs_as_parameters(dialect, sorted(places)))
    yield from ((log, create_seq) for log, create_seq in rows)

"""Ends and continuations between logs: what deletes name in other logs, and who ends an instance (section 5.7).

A message that names an entry which its own log does not hold, and a create that continues an instance, have its hash in
`ref_hash`. Which keys are of one identity is in `identity_keys`, as the newest documents say.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, exists, insert, or_, select

from inkgrove.core import Hash, PublicKey
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import Create, Delete, decode_if_valid
from inkgrove.schema import End, NamedEntry
from inkgrove.store.db.connection import CompiledList, in_lists
from inkgrove.store.db.log_tables import VALIDITY_COLUMNS, encode_log_key, entries, ingests, logs
from inkgrove.store.db.node_tables import identity_keys
from inkgrove.store.logs.decision import LogValidity
from inkgrove.store.logs.messages import InstanceKey
from inkgrove.store.logs.positions import IngestKind

_CAN_END: Final = or_(entries.c.kind == "create", entries.c.kind == "delete")
"""The kinds of messages that can end an instance of another log; an update never does."""

_first = entries.alias("first_of_log")


def _has_instances() -> ColumnElement[bool]:
    """Whether a log is one of instances: neither log 0 nor, as far as its entry 1 counts, that of a schema."""
    is_of_schema = exists().where(
        _first.c.log == logs.c.id,
        _first.c.seq_num == 1,
        _first.c.kind == "schema-meta",
        _first.c.payload.is_not(None),
        logs.c.forked_at.is_(None) | (logs.c.forked_at > 1),
        logs.c.lied_at.is_(None) | (logs.c.lied_at > 1),
    )
    return and_(logs.c.log_id != 0, ~is_of_schema)


class _Key(NamedTuple):
    """A key and whose it is, if that is known."""

    author: bytes
    identity: bytes | None

    def is_of_identity_of(self, other: "_Key") -> bool:
        return self.author == other.author or (self.identity is not None and self.identity == other.identity)


def _read_key(connection: Connection, author: PublicKey) -> _Key:
    for _, identity in _owners.rows(connection, [author]):
        return _Key(author, identity)
    return _Key(author, None)


_owners: Final = CompiledList(
    lambda authors: select(identity_keys.c.author, identity_keys.c.identity).where(identity_keys.c.author.in_(authors))
)


class EndsInStore:
    """Ends of instances of several logs, read at once."""

    def __init__(self, found: Iterable[tuple[Hash, _Key, End]] = ()) -> None:
        self._ends: dict[Hash, list[tuple[_Key, End]]] = defaultdict(list)
        for instance, key, end in found:
            self._ends[instance].append((key, end))

    def __bool__(self) -> bool:
        return bool(self._ends)

    def __contains__(self, instance: Hash) -> bool:
        return instance in self._ends

    def of_key(self, connection: Connection, author: PublicKey) -> dict[Hash, list[End]]:
        """Return those that count for instances of this author, by instance."""
        if not self._ends:
            return {}
        own = _read_key(connection, author)
        counted = {
            instance: [end for key, end in ends if key.is_of_identity_of(own)] for instance, ends in self._ends.items()
        }
        return {instance: ends for instance, ends in counted.items() if ends}


def read_ends(connection: Connection, instances: Collection[Hash]) -> EndsInStore:
    """Read the messages of any log that name one of these instances as the one they end."""
    return EndsInStore(
        found for some in in_lists(instances) for found in _counted_ends(_ends_of.rows(connection, some))
    )


def read_ends_within(connection: Connection, first: int, last: int) -> EndsInStore:
    """Read the ends of all instances of the logs from one of the store's own numbers to another."""
    target = entries.alias("target")
    query = _ENDS.join(target, target.c.hash == entries.c.ref_hash).where(
        entries.c.ref_hash.is_not(None), target.c.log.between(first, last)
    )
    return EndsInStore(_counted_ends(connection.execute(query).all()))


_ENDS: Final[Select[Any]] = (
    select(
        entries.c.ref_hash,
        entries.c.hash,
        entries.c.seq_num,
        entries.c.payload,
        logs.c.author,
        identity_keys.c.identity,
        *VALIDITY_COLUMNS,
    )
    .join_from(entries, logs, logs.c.id == entries.c.log)
    .outerjoin(identity_keys, identity_keys.c.author == logs.c.author)
    .where(_CAN_END, entries.c.payload.is_not(None), _has_instances())
)
_ends_of: Final = CompiledList(lambda hashes: _ENDS.where(entries.c.ref_hash.in_(hashes)))


def _counted_ends(rows: Iterable[Any]) -> Iterable[tuple[Hash, _Key, End]]:
    for instance, entry_hash, seq_num, payload, author, identity, *standing in rows:
        message = decode_if_valid(payload)
        validity = LogValidity(*standing)
        refusal = validity.refusal(seq_num)
        # Deletes count in the invalid part of a log too, where creates are none.
        counts = refusal is None or (isinstance(message, Delete) and not validity.is_behind_end(seq_num))
        if counts and isinstance(message, Create | Delete):
            yield Hash(instance), _Key(author, identity), End(Hash(entry_hash), message)


def find_named_entry(connection: Connection, author: PublicKey, entry_hash: Hash) -> NamedEntry | None:
    """Find an entry that a message of `author` names, if it is held and counts in its log, whichever that is."""
    query = (
        select(
            entries.c.seq_num,
            entries.c.payload,
            logs.c.author,
            identity_keys.c.identity,
            _has_instances().label("has_instances"),
            *VALIDITY_COLUMNS,
        )
        .join_from(entries, logs, logs.c.id == entries.c.log)
        .outerjoin(identity_keys, identity_keys.c.author == logs.c.author)
        .where(entries.c.hash == entry_hash)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    seq_num, payload, named_author, identity, has_instances, *standing = row
    if LogValidity(*standing).refusal(seq_num) is not None:
        return None
    is_own = _Key(named_author, identity).is_of_identity_of(_read_key(connection, author))
    return NamedEntry(is_own and bool(has_instances), payload is not None, decode_if_valid(payload))


Reading = Callable[[Callable[[Connection], Any]], Any]
"""Runs a query: in a transaction of its own (`Database.read`), or in one that is open."""


class OtherLogsInStore:
    """The other logs of a store, as the fold of one of an author's logs asks for them."""

    def __init__(self, read: Reading, author: PublicKey, ends: EndsInStore) -> None:
        self._read, self._author = read, author
        self._ends: dict[Hash, list[End]] = read(lambda connection: ends.of_key(connection, author)) if ends else {}

    def find_entry(self, entry_hash: Hash) -> NamedEntry | None:
        """Find an entry of another log; seldom asked, so one at a time."""
        found: NamedEntry | None = self._read(lambda connection: find_named_entry(connection, self._author, entry_hash))
        return found

    def ends_of(self, instance: Hash) -> Sequence[End]:
        """Return the ends of an instance, if it is among those that `ends` was read for."""
        return self._ends.get(instance, ())


# What has to be folded anew


class EndReference(NamedTuple):
    """A message that may end an instance, and where that instance is, if its create's entry is held."""

    message: InstanceKey
    target: InstanceKey | None


def references_at(connection: Connection, places: Collection[tuple[int, int]]) -> list[EndReference]:
    """Find the messages at these places (log, sequence number) that may end an instance."""
    by_log: dict[int, set[int]] = defaultdict(set)
    for log, seq_num in places:
        by_log[log].add(seq_num)
    found: list[Any] = []
    for log, seq_nums in by_log.items():
        for some in in_lists(seq_nums):
            found += connection.execute(_REFERENCES.where(entries.c.log == log, entries.c.seq_num.in_(some))).all()
    return _with_targets(connection, found)


def references_from(connection: Connection, log: int, first: int) -> list[EndReference]:
    """Find the messages of a log from a sequence number on that may end an instance."""
    query = _REFERENCES.where(entries.c.log == log, entries.c.seq_num >= first)
    return _with_targets(connection, connection.execute(query).all())


def references_of_keys(connection: Connection, logs_0: Collection[int]) -> list[EndReference]:
    """Find the messages in all logs of some keys, given by the numbers of their logs 0, that may end an instance."""
    found: list[Any] = []
    for some in in_lists(logs_0):
        for author in connection.scalars(select(logs.c.author).where(logs.c.id.in_(some))).all():
            first, last = (encode_log_key(PublicKey(author), number) for number in (1, MAX_STORED_INTEGER))
            own = select(logs.c.id).where(logs.c.name.between(first, last))
            found += connection.execute(_REFERENCES.where(entries.c.log.in_(own))).all()
    return _with_targets(connection, found)


_REFERENCES: Final[Select[Any]] = select(entries.c.log, entries.c.seq_num, entries.c.ref_hash).where(
    entries.c.ref_hash.is_not(None), _CAN_END
)
_places: Final = CompiledList(
    lambda hashes: select(entries.c.hash, entries.c.log, entries.c.seq_num).where(entries.c.hash.in_(hashes))
)


def _with_targets(connection: Connection, found: Sequence[Any]) -> list[EndReference]:
    targets: Mapping[bytes, InstanceKey] = {
        entry_hash: InstanceKey(log, seq_num)
        for some in in_lists({row.ref_hash for row in found})
        for entry_hash, log, seq_num in _places.rows(connection, some)
    }
    return [EndReference(InstanceKey(row.log, row.seq_num), targets.get(row.ref_hash)) for row in found]


def note_key_change(connection: Connection, authors: Collection[PublicKey]) -> None:
    """Note that these keys, each of which has a log 0, may belong to another identity than before."""
    for some in in_lists({encode_log_key(author, 0) for author in authors}):
        for log in connection.scalars(select(logs.c.id).where(logs.c.name.in_(some)).order_by(logs.c.name)).all():
            connection.execute(insert(ingests), {"what": IngestKind.KEYS.value, "log": log})

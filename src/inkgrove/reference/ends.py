"""Ends and continuations: what one key of an identity does to an instance that another of its keys has written.

docs/protocol.md section 5.7. An end counts whatever came first, so there is nothing to order: the ends of an instance
are a set. Of several creates that continue it, its line goes on with the one of the least hash.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import Create, Delete, SchemaId
from inkgrove.reference.checks import judge_create, judge_placement
from inkgrove.reference.live_path import LiveSchema
from inkgrove.reference.logs import HeldMessage, Log, LogKey, schema_named_by
from inkgrove.reference.results import Verdict


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who belongs to whom, for the question which messages may end an instance of another log."""

    logs: Mapping[LogKey, Log]
    owners: Mapping[PublicKey, IdentityId]
    """The identity of each key that belongs to one (`inkgrove.reference.control`)."""

    def may_end(self, held: HeldMessage, named: HeldMessage) -> bool:
        """Whether a delete or continuing create may end what it names, an entry that counts, if that is a create.

        True also if the payload of the entry is not held: it may turn out to be one.
        """
        log = self.logs[named.author, named.log_id]
        if log.log_id == 0 or log.is_schema_log or not self._are_of_one_identity(held.author, named.author):
            return False
        own = schema_named_by(held)
        return own is not None and (named.content is None or _schema_of_create(named) == own)

    def _are_of_one_identity(self, one: PublicKey, other: PublicKey) -> bool:
        return one == other or (one in self.owners and self.owners[one] == self.owners.get(other))


def _schema_of_create(held: HeldMessage) -> SchemaId | None:
    return held.content.schema.schema_id if isinstance(held.content, Create) else None


@dataclass(frozen=True, slots=True)
class Ends:
    """The instances that messages of other logs have deleted, or creates of any log continue."""

    deleted: frozenset[Hash]
    continued: dict[Hash, Hash]
    """By instance: the create with which its line goes on."""

    def last_of_line(self, instance: Hash) -> Hash:
        """The instance that look-ups of this one lead to; itself if nothing continues it."""
        while instance in self.continued:
            instance = self.continued[instance]
        return instance


def find_ends(
    ownership: Ownership, by_hash: Mapping[Hash, HeldMessage], schemas: Mapping[SchemaId, LiveSchema]
) -> Ends:
    """Return all ends that count of instances of the registered schemas."""
    deleted, continued = set(), dict[Hash, Hash]()
    for log in ownership.logs.values():
        for held, target in _ending_messages(log):
            named = by_hash.get(target)
            if named is None or named.content is None or not ownership.may_end(held, named):
                continue
            if isinstance(held.content, Delete):
                if (named.author, named.log_id) != (log.author, log.log_id):
                    deleted.add(target)
            elif _is_applied(held, log, schemas) and (target not in continued or held.hash < continued[target]):
                continued[target] = held.hash
    return Ends(frozenset(deleted), continued)


def _ending_messages(log: Log) -> Iterable[tuple[HeldMessage, Hash]]:
    """The messages of an instance log that name an instance to end by its hash; deletes of its invalid part too."""
    if log.log_id == 0 or log.is_schema_log:
        return
    for held in log.messages:
        if isinstance(held.content, Delete) and not isinstance(held.content.instance, int):
            yield held, held.content.instance
        elif isinstance(held.content, Create) and held.content.continues is not None:
            yield held, held.content.continues


def _is_applied(held: HeldMessage, log: Log, schemas: Mapping[SchemaId, LiveSchema]) -> bool:
    """Whether a create makes a row, if nothing ends it: only then does it take the place of another."""
    assert isinstance(held.content, Create)
    schema = schemas.get(held.content.schema.schema_id)
    if schema is None or judge_placement(held, log) is not None:
        return False
    return not isinstance(judge_create(held.content, schema), Verdict)

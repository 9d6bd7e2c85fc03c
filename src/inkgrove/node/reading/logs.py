"""Logs as a caller may see them: their own, those of registered schemas, and for an administrator all.

docs/protocol.md section 2. How much somebody writes is private.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from inkgrove.core import ForkProof, Hash, PublicKey
from inkgrove.messages import DocumentState, IdentityState, SchemaId, fork_state
from inkgrove.node.errors import ViewError
from inkgrove.node.identity.caller import Caller
from inkgrove.node.identity.identity_log import IDENTITY_LOG, StoredIdentityLog, find_control, find_document_state
from inkgrove.node.identity.names import find_author_names
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import (
    LogState,
    StoredEntry,
    count_absent,
    find_fork_proof,
    find_log,
    read_entries,
    read_logs,
    read_registered,
    schemas_of_logs,
)
from inkgrove.store.node import keys_of


@dataclass(frozen=True, slots=True)
class AuthorLogs:
    """The logs of an author, with the name of its identity."""

    key: PublicKey
    fqdn: str | None
    logs: Sequence[tuple[LogState, Sequence[SchemaId]]]
    """Each with the schemas that its messages name."""


@dataclass(frozen=True, slots=True)
class LogPage:
    """A log with some of its entries."""

    state: LogState
    fqdn: str | None
    absent: int
    """How many of its verified entries have no payload here."""
    entries: Sequence[StoredEntry]
    fork: ForkProof | None
    identity_state: IdentityState | None
    """Of a log 0: whether it is forked, and whether that ends the identity."""
    documents: Mapping[Hash, DocumentState]
    """The states of those of the entries that are identity documents."""


def list_logs(node: Node, caller: Caller) -> list[AuthorLogs]:
    """Return authors with their logs, as far as the caller may see them."""
    is_visible = _LogVisibility(node, caller)

    def work(connection: Connection) -> list[AuthorLogs]:
        found: dict[PublicKey, list[LogState]] = {}
        for state in read_logs(connection).values():
            if is_visible(connection, state.author, state.log_id):
                found.setdefault(state.author, []).append(state)
        named = schemas_of_logs(connection, [state.id for states in found.values() for state in states])
        names = find_author_names(connection, list(found))
        return [
            AuthorLogs(key, names.get(key), [(state, sorted(named[state.id])) for state in states])
            for key, states in found.items()
        ]

    return node.database.read(work)


def show_log(node: Node, caller: Caller, author: PublicKey, log_id: int, first: int, count: int) -> LogPage:
    """Return a log and `count` of its entries from `first` on; raises `view.unknown-log`."""
    is_visible = _LogVisibility(node, caller)

    def work(connection: Connection) -> LogPage:
        state = find_log(connection, author, log_id)
        if state is None or not is_visible(connection, author, log_id):
            raise ViewError("view.unknown-log", "no such log is here, or it may not be seen")
        entries = read_entries(connection, author, log_id, first, first + count - 1)
        fork = find_fork_proof(connection, author, log_id)
        name = find_author_names(connection, [author]).get(author)
        is_identity = log_id == IDENTITY_LOG
        control_of = cache(partial(find_control, connection))
        states = (
            {item.hash: find_document_state(connection, item.hash, control_of) for item in entries}
            if is_identity
            else {}
        )
        documents = {name: found for name, found in states.items() if found is not None}
        forked = fork_state(StoredIdentityLog(connection, author)) if is_identity else None
        return LogPage(state, name, count_absent(connection, state.id), entries, fork, forked, documents)

    return node.database.read(work)


class _LogVisibility:
    """Whether a caller may see a log."""

    def __init__(self, node: Node, caller: Caller) -> None:
        identity = caller.require_identity()
        self._sees_all = caller.is_administrator
        self._schemas = frozenset(node.store.read(read_registered))
        self._identity = identity
        self._own: frozenset[PublicKey] | None = None

    def __call__(self, connection: Connection, author: PublicKey, log_id: int) -> bool:
        if self._own is None:
            self._own = frozenset(keys_of(connection, self._identity))
        return self._sees_all or author in self._own or SchemaId(author, log_id) in self._schemas

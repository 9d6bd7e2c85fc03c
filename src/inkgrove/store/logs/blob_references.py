"""Which instances name which blobs, and who may see these: kept with every message that is stored, however it came.

docs/protocol.md section 8.10. The right to a blob follows from the messages in the log store, not from views. A
reference holds what the messages of its instance say of who may see it (`access`, `expires`), and up to which sequence
number (`last_seq`): a fork, a revocation or an end before it makes it count no more, at once.
It begins with the message that names the hash and ends with the instance, since earlier states can be read too.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple, Self, TypeGuard

from sqlalchemy import Connection, and_, bindparam, case, delete, not_, null, or_, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from inkgrove.core import Hash, PublicKey
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Create, Delete, InstanceMessage, SchemaId, Unset, Update, access_to_json, decode_message
from inkgrove.schema import MISFIT, LogMessage, check_blob
from inkgrove.store.db.connection import Compiled, execute_many, in_lists, pairs_as_parameters, table_of_pairs
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import blob_progress, blob_references, blobs
from inkgrove.store.logs.followers import follow
from inkgrove.store.logs.messages import InstanceKey, create_seqs_from, messages_of
from inkgrove.store.logs.positions import VERDICTS, Ingest, IngestKind, read_ingests

_AT_ONCE: Final = 500
"""How many instances are read at a time."""


class AuthoredMessage(NamedTuple):
    """A message of an instance, as far as blobs are concerned."""

    instance: Hash
    author: PublicKey
    message: InstanceMessage


class StoredMessage(NamedTuple):
    """An instance message that was just stored."""

    key: InstanceKey
    author: PublicKey
    seq_num: int
    hash: Hash
    message: InstanceMessage
    is_newest: bool
    """Whether its log is valid and nothing after it was held: the stored references are those before it."""


def blobs_in(message: InstanceMessage) -> dict[Hash, str]:
    """The blobs that a message names, each with its media type."""
    if isinstance(message, Delete) or isinstance(message.fields, Unset):
        return {}
    found = {}
    for value in message.fields.values():
        for item in value if type(value) is list else (value,):
            if type(item) is dict and (blob := check_blob(item)) is not MISFIT:
                found[blob["hash"]] = blob["type"]
    return found


@dataclass(slots=True)
class _InstanceState:
    """What the messages of an instance say of its blobs and who may see them; schema rules are not applied."""

    instance: Hash
    schema: SchemaId
    last_seq: int
    """The last message that sets something that counts here."""
    access: str | None = None
    mode: str | None = None
    expires: int | None = None
    is_deleted: bool = False
    named: dict[Hash, str] = field(default_factory=dict)
    """Blobs with the media type that the first message says which names them."""

    @classmethod
    def begin(cls, seq_num: int, entry_hash: Hash, message: Create) -> Self:
        state = cls(entry_hash, message.schema.schema_id, seq_num)
        state.apply(seq_num, message)
        return state

    def apply(self, seq_num: int, message: InstanceMessage) -> None:
        if message.schema is not None and message.schema.schema_id != self.schema:
            return  # refused in every view
        if isinstance(message, Delete):
            self.is_deleted = True
            return
        named = blobs_in(message)
        self.named = named | self.named
        if message.access is not None:
            self.mode = message.access.mode
            self.access = json.dumps(access_to_json(message.access))
        if not isinstance(message.expires, Unset):
            self.expires = message.expires.microseconds if message.expires is not None else None
        if named or _sets_visibility(message):
            self.last_seq = seq_num

    def visibility(self) -> dict[str, Any]:
        return {"access": self.access, "mode": self.mode, "expires": self.expires, "last_seq": self.last_seq}


def _sets_visibility(message: Create | Update) -> bool:
    return message.access is not None or not isinstance(message.expires, Unset)


# Keeping


def is_of_interest(message: object) -> TypeGuard[InstanceMessage]:
    """Whether a message that is stored may begin, change or end references."""
    if isinstance(message, Create):
        return bool(blobs_in(message))
    if isinstance(message, Update):
        return _sets_visibility(message) or bool(blobs_in(message))
    return isinstance(message, Delete)


def update_references(connection: Connection, stored: Iterable[StoredMessage]) -> None:
    """Bring the references up to date with messages that are of interest, in the transaction that stores them."""
    groups: dict[InstanceKey, list[StoredMessage]] = {}
    for item in sorted(stored, key=attrgetter("key", "seq_num")):
        groups.setdefault(item.key, []).append(item)
    if not groups:
        return
    known = _read_known(connection, groups)
    unclear: dict[InstanceKey, PublicKey] = {}
    clear: list[tuple[InstanceKey, PublicKey, _InstanceState]] = []
    for key, items in groups.items():
        state = known.get(key)
        first = items[0]
        if not all(item.is_newest for item in items):
            if state is not None or any(blobs_in(item.message) for item in items):
                unclear[key] = first.author
            continue
        if isinstance(first.message, Create):
            state = _InstanceState.begin(first.seq_num, first.hash, first.message)
        elif state is None:
            if any(blobs_in(item.message) for item in items):
                unclear[key] = first.author
            continue
        for item in items:
            if not isinstance(item.message, Create):
                state.apply(item.seq_num, item.message)
        clear.append((key, first.author, state))
    _write_all(connection, clear)
    rebuild_references(connection, unclear)


def rebuild_references(connection: Connection, instances: dict[InstanceKey, PublicKey]) -> None:
    """Find the references of instances, each with its author, anew from all messages that are held."""
    keys = sorted(instances)
    for start in range(0, len(keys), _AT_ONCE):
        messages = messages_of(connection, keys[start : start + _AT_ONCE])
        states = [
            (key, instances[key], state)
            for key in messages
            if (state := _fold_messages(key, messages[key])) is not None
        ]
        _write_all(connection, states)
        for key, _, state in states:
            _end_others(connection, key, state)


def _end_others(connection: Connection, key: InstanceKey, state: _InstanceState) -> None:
    """End references that no message which counts makes any more."""
    refers = blob_references.c
    is_its_own = and_(refers.log == key.log, refers.create_seq == key.create_seq)
    others = set(connection.scalars(select(refers.hash).where(is_its_own))) - state.named.keys()
    for some in in_lists(sorted(others)):
        connection.execute(delete(blob_references).where(is_its_own, refers.hash.in_(some)))


def _fold_messages(key: InstanceKey, messages: Iterable[LogMessage]) -> _InstanceState | None:
    """The state of an instance; None while its create is not held, or does not count."""
    state: _InstanceState | None = None
    for item in messages:
        message = _decode(item.payload)
        if message is None:
            continue
        if item.invalid_code is not None:
            if state is not None and isinstance(message, Delete):
                state.apply(item.seq_num, message)  # a delete counts in whatever branch of a forked log
        elif isinstance(message, Create):
            if item.seq_num == key.create_seq:
                state = _InstanceState.begin(item.seq_num, item.hash, message)
        elif state is not None:
            state.apply(item.seq_num, message)
    return state


def _decode(payload: bytes | None) -> InstanceMessage | None:
    if payload is None:
        return None
    try:
        message = decode_message(payload)
    except InkgroveError:
        return None
    return message if isinstance(message, Create | Update | Delete) else None


def _read_known(connection: Connection, keys: Collection[InstanceKey]) -> dict[InstanceKey, _InstanceState]:
    rows = _known.rows(connection, **pairs_as_parameters(connection.dialect.name, sorted(keys)))
    return {
        InstanceKey(log, create_seq): _InstanceState(
            Hash(instance), SchemaId(PublicKey(author), log_id), last_seq, access, mode, expires
        )
        for log, create_seq, instance, author, log_id, last_seq, access, mode, expires in rows
    }


def _select_known(dialect: str) -> Any:
    wanted, refers = table_of_pairs(dialect), blob_references.c
    columns = (refers.log, refers.create_seq, refers.instance, refers.schema_author, refers.schema_log_id)
    visibility = (refers.last_seq, refers.access, refers.mode, refers.expires)
    is_it = and_(refers.log == wanted.c.first, refers.create_seq == wanted.c.second)
    return select(*columns, *visibility).join_from(wanted, blob_references, is_it)


_known: Final = Compiled(lambda connection: _select_known(connection.dialect.name))
_OF_INSTANCE = and_(blob_references.c.log == bindparam("of_log"), blob_references.c.create_seq == bindparam("of_seq"))
_END: Final = delete(blob_references).where(_OF_INSTANCE)
_CHANGE: Final = (
    update(blob_references)
    .where(_OF_INSTANCE)
    .values({name: bindparam(f"new_{name}") for name in ("access", "mode", "expires", "last_seq")})
)


def _write_all(connection: Connection, states: Sequence[tuple[InstanceKey, PublicKey, _InstanceState]]) -> None:
    # Locks the rows, in one order, against a collection that is under way.
    named = {content for _, _, state in states if not state.is_deleted for content in state.named}
    for some in in_lists(sorted(named)):
        connection.execute(update(blobs).where(blobs.c.hash.in_(some)).values(unused_since=null()))
    for key, author, state in states:
        _write(connection, key, author, state)


def _write(connection: Connection, key: InstanceKey, author: PublicKey, state: _InstanceState) -> None:
    of_instance = {"of_log": key.log, "of_seq": key.create_seq}
    if state.is_deleted:
        execute_many(connection, _END, [of_instance])
        # Those of an older version of this store, which have no log yet.
        is_its_own = and_(blob_references.c.instance == state.instance, blob_references.c.author == author)
        connection.execute(delete(blob_references).where(is_its_own))
        return
    visibility = state.visibility()
    if state.named:
        named = sorted(state.named)
        same = {
            "instance": state.instance,
            "author": author,
            "log": key.log,
            "create_seq": key.create_seq,
            **visibility,
        }
        same |= {"schema_author": state.schema.author, "schema_log_id": state.schema.log_id}
        rows = [{"hash": content, "media_type": state.named[content], **same, **_UNDECIDED} for content in named]
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        statement = insert(blob_references)
        changed = {name: statement.excluded[name] for name in ("log", "create_seq", *visibility)}
        keys = ["hash", "instance", "author"]
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed), rows)
    execute_many(connection, _CHANGE, [of_instance | {f"new_{name}": value for name, value in visibility.items()}])


_UNDECIDED: Final = {"is_lent": False, "is_withheld": False, "is_decided": False}


# Lending


def put_references(
    connection: Connection,
    message: AuthoredMessage,
    lent: Iterable[Hash],
    *,
    withheld: Iterable[Hash] = (),
    anew: bool = True,
) -> None:
    """Record which blobs that a stored message names its author may lend.

    `withheld`: those that a service named which may not read them. `anew`: the message is new, and not found again.
    """
    lendable, kept_back = set(lent), set(withheld)
    rows = [
        {
            "of_hash": content,
            "of_instance": message.instance,
            "of_author": message.author,
            "lends": content in lendable,
            "withholds": content in kept_back,
        }
        for content in sorted(blobs_in(message.message))
    ]
    if rows:
        execute_many(connection, _LEND_ANEW if anew else _LEND_AGAIN, rows)


def _lend(may_change: Any) -> Any:
    refers = blob_references.c
    is_it = and_(
        refers.hash == bindparam("of_hash"),
        refers.instance == bindparam("of_instance"),
        refers.author == bindparam("of_author"),
    )
    withholds = bindparam("withholds", type_=refers.is_withheld.type)
    return (
        update(blob_references)
        .where(is_it, may_change)
        .values(
            is_lent=or_(refers.is_lent, bindparam("lends", type_=refers.is_lent.type)),
            # Who named it first has decided; what one who may read it names later is no longer withheld.
            is_withheld=case((refers.is_decided, and_(refers.is_withheld, withholds)), else_=withholds),
            is_decided=true(),
        )
    )


_LEND_ANEW: Final = _lend(true())
_LEND_AGAIN: Final = _lend(not_(blob_references.c.is_withheld))


def lend_reference(connection: Connection, content: Hash, instance: Hash, author: PublicKey) -> None:
    """Let the readers of an instance read a blob: its bytes came with the instance from its author's node."""
    is_it = (
        (blob_references.c.hash == content)
        & (blob_references.c.instance == instance)
        & (blob_references.c.author == author)
    )
    connection.execute(update(blob_references).where(is_it).values(is_lent=True))
    connection.execute(update(blobs).where(blobs.c.hash == content).values(unused_since=null()))


def follow_references(connection: Connection, put: Callable[[AuthoredMessage], None]) -> bool:
    """Rebuild the references that the next page of ingests may change; False if nothing has happened.

    `put` is called afterwards for each message on the page that names blobs or ends its instance, in their order.
    """

    def handle(ingests: list[Ingest]) -> bool:
        messages, instances = _read_affected(connection, ingests)
        rebuild_references(connection, instances)
        for message in messages:
            put(message)
        return True

    return follow(connection, blob_progress, read_ingests, handle) is not None


def _read_affected(
    connection: Connection, ingests: Iterable[Ingest]
) -> tuple[list[AuthoredMessage], dict[InstanceKey, PublicKey]]:
    """Read messages that name blobs or end instances, and whose references may be other ones now, with the author."""
    hashes = [
        item.hash for item in ingests if item.hash is not None and item.what in (IngestKind.ENTRY, IngestKind.PAYLOAD)
    ]
    creates = entries.alias("creates")
    found: dict[bytes, AuthoredMessage] = {}
    instances: dict[InstanceKey, PublicKey] = {}
    for some in in_lists(hashes):
        query = (
            select(
                entries.c.hash,
                entries.c.payload,
                entries.c.log,
                entries.c.create_seq,
                logs.c.author,
                creates.c.hash.label("instance"),
            )
            .join_from(entries, logs, logs.c.id == entries.c.log)
            .join(creates, (creates.c.log == entries.c.log) & (creates.c.seq_num == entries.c.create_seq))
            .where(entries.c.hash.in_(some), entries.c.payload.is_not(None))
            .where(entries.c.kind.in_(("create", "update", "delete")))
        )
        for row in connection.execute(query):
            payload = bytes(row.payload)
            # Decoding takes longer than looking for the three keys that every blob has and the word of a delete.
            is_likely = (b"dhash" in payload and b"dsize" in payload) or b"fdelete" in payload
            message = _decode(payload) if is_likely else None
            if message is not None:
                found[row.hash] = AuthoredMessage(Hash(row.instance), PublicKey(row.author), message)
                instances[InstanceKey(row.log, row.create_seq)] = PublicKey(row.author)
    instances |= _touched_by_verdicts(connection, ingests)
    return [found[content] for content in hashes if content in found], instances


def _touched_by_verdicts(connection: Connection, ingests: Iterable[Ingest]) -> dict[InstanceKey, PublicKey]:
    """The instances of logs that were found to be forked or to lie, or that end elsewhere than before."""
    firsts: dict[int, int] = {}
    for item in ingests:
        if item.what in VERDICTS and item.log is not None and item.seq_num is not None:
            firsts[item.log] = min(item.seq_num, firsts.get(item.log, item.seq_num))
    found: dict[InstanceKey, PublicKey] = {}
    for log, first in firsts.items():
        author = PublicKey(connection.scalar(select(logs.c.author).where(logs.c.id == log)) or b"")
        found |= {InstanceKey(log, create_seq): author for create_seq in create_seqs_from(connection, log, first)}
    return found

"""Ingests a batch of items: lock, decide, write, in one transaction (docs/protocol.md sections 2 and 5).

A few queries lock and read the state of all logs of the batch, however long they are: of each log only the sequence
numbers that the items claim something about are read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    exists,
    func,
    insert,
    null,
    or_,
    select,
    update,
)

from inkgrove.core import Hash, decode_entry, linking_to, lipmaa
from inkgrove.core.errors import InkgroveError, LogError
from inkgrove.core.limits import MAX_BRANCH_ENTRIES
from inkgrove.messages import RevokedLog, SchemaId
from inkgrove.store.db.connection import (
    Compiled,
    CompiledList,
    RetryTransaction,
    execute_many,
    in_lists,
    insert_new,
    pairs_as_parameters,
    table_of_pairs,
)
from inkgrove.store.db.log_tables import (
    VALIDITY_COLUMNS,
    branch_entries,
    encode_log_key,
    entries,
    fork_proofs,
    ingests,
    log_schemas,
    logs,
)
from inkgrove.store.db.rot_tables import ROTTED, copies
from inkgrove.store.logs.blob_references import StoredMessage, is_of_interest, update_references
from inkgrove.store.logs.branches import settle_branch
from inkgrove.store.logs.decision import (
    VALID_LOG,
    Claim,
    Decision,
    IngestStatus,
    LogIngestState,
    LogValidity,
    apply_decision,
    decide_ingest,
    make_other_branch,
)
from inkgrove.store.logs.entries import read_next_entry, verified_among
from inkgrove.store.logs.erased import OfferedMessage, find_erased_messages, without_content
from inkgrove.store.logs.messages import InstanceKey
from inkgrove.store.logs.positions import IngestKind
from inkgrove.store.logs.preparation import Batch, LogKey, PayloadContent, PreparedItem
from inkgrove.store.logs.revocations import lock_ends
from inkgrove.store.logs.schema_registry import number_schemas

lock_logs: Final = CompiledList(
    lambda names: (
        select(
            logs.c.name,
            logs.c.id,
            logs.c.height,
            logs.c.held,
            logs.c.pin,
            logs.c.is_pinned,
            logs.c.aside,
            *VALIDITY_COLUMNS,
        )
        .where(logs.c.name.in_(names))
        .order_by(logs.c.name)
        .with_for_update()
    )
)


def lock_log_states(connection: Connection, batch: Batch, *, must_be_next: bool) -> dict[LogKey, LogIngestState]:
    """Lock and read the state of every log of the batch; no other writer changes it before the transaction ends."""
    state = _lock_logs(connection, batch)
    _load_claims(connection, batch, state, must_be_next=must_be_next)
    for key, log in state.items():
        _load_branch(connection, log, batch[key])
    return state


def _lock_logs(connection: Connection, batch: Batch) -> dict[LogKey, LogIngestState]:
    names = {encode_log_key(*key): key for key in batch}
    state: dict[LogKey, LogIngestState] = {}
    # One order for all writers: rows that exist by name, then new ones by name. Nobody waits in a circle.
    for some in in_lists(sorted(names)):
        for name, number, height, held, pin, is_pinned, aside, *standing in lock_logs.rows(connection, some):
            key = names[name]
            log = LogIngestState(*key, number, height, held, LogValidity(*standing), first_height=height)
            log.pin, log.is_pinned, log.aside = Hash(pin) if pin is not None else None, bool(is_pinned), aside
            state[key] = log
    missing = {name: key for name, key in names.items() if key not in state}
    # A log begins with its first entry: nothing else finds a path, and nothing held can be contradicted.
    begun = {name: key for name, key in missing.items() if batch[key][0].signed.entry.seq_num == 1}
    if begun:
        ends = lock_ends(connection, {author for author, _ in begun.values()})
        limits = {
            name: ends[author].get(log_id, RevokedLog(log_id, 0)) if log_id and author in ends else None
            for name, (author, log_id) in begun.items()
        }
        rows = [
            {"name": name, "author": author, "log_id": log_id, "height": 0, "held": 0}
            | {"revoked_after": end.last if end is not None else None, "pin": end.hash if end is not None else None}
            for name, (author, log_id) in sorted(begun.items())
            for end in [limits[name]]
        ]
        made = connection.execute(insert_new(connection, logs).returning(logs.c.id, logs.c.name), rows).all()
        if len(made) < len(rows):
            raise RetryTransaction  # another writer has begun one of these logs meanwhile
        for row in made:
            log = state[names[row.name]] = LogIngestState(*names[row.name], row.id)
            if (end := limits[row.name]) is not None:
                log.standing, log.pin = LogValidity(revoked_after=end.last), end.hash
    return state | {key: LogIngestState(*key) for name, key in missing.items() if name not in begun}


def _load_branch(connection: Connection, log: LogIngestState, items: Sequence[PreparedItem]) -> None:
    """Read what matters where a pin or a fork lets the branches of a log differ."""
    forked_at = log.standing.forked_at
    if log.pin is not None and not log.is_pinned:
        log.wanted = _lead_to(log.pin, items)
    if log.aside:
        hashes = [item.signed.hash for item in items]
        log.beside = {
            Hash(found): bool(has_payload)
            for some in in_lists(hashes)
            for found, has_payload in _beside.rows(connection, some)
        }
    if log.is_pinned:
        log.room = MAX_BRANCH_ENTRIES - log.aside
    elif forked_at is None:
        log.room = MAX_BRANCH_ENTRIES  # a fork may show in this very batch
    else:  # also if all items lie below: one of them may move the fork down to the next ones
        (held,) = _forked_part.first(connection, log=log.id, forked_at=forked_at, limit=MAX_BRANCH_ENTRIES)
        log.room = MAX_BRANCH_ENTRIES - held


def _lead_to(pin: Hash, items: Iterable[PreparedItem]) -> frozenset[Hash]:
    """What a pin leads to among the items."""
    by_hash = {item.signed.hash: item for item in items}
    found: set[Hash] = set()
    waiting = [pin]
    while waiting:
        item = by_hash.get(waiting.pop())
        if item is not None and item.signed.hash not in found:
            found.add(item.signed.hash)
            waiting += (claimed for _, claimed in item.claims[1:])
    return frozenset(found)


_beside: Final = CompiledList(
    lambda hashes: select(branch_entries.c.hash, branch_entries.c.payload.is_not(None)).where(
        branch_entries.c.hash.in_(hashes)
    )
)
_forked_part: Final = Compiled(
    lambda _: select(func.count()).select_from(
        select(entries.c.id)
        .where(entries.c.log == bindparam("log"), entries.c.seq_num >= bindparam("forked_at"))
        .limit(bindparam("limit"))
        .subquery()
    )
)


def _load_claims(
    connection: Connection, batch: Batch, state: dict[LogKey, LogIngestState], *, must_be_next: bool
) -> None:
    by_id = {log.id: log for log in state.values() if log.first_height}
    slots = {
        (state[key].id, seq_num)
        for key, items in batch.items()
        if state[key].first_height
        for seq_num in _claimed_seq_nums(state[key], items, must_be_next=must_be_next)
    }
    for found in read_claims(connection, slots, {number: log.height for number, log in by_id.items()}):
        log = by_id[found.log]
        if found.has_payload is None:
            log.claims.setdefault(found.at, found.claim)
        else:
            log.claims[found.at] = found.claim
            log.known[found.claim.hash] = found.has_payload


class FoundClaim(NamedTuple):
    """A claim about a sequence number: by the entry held there, or by one that links to it."""

    log: int
    at: int
    claim: Claim
    has_payload: bool | None
    """None unless the entry itself is held."""


def read_claims(
    connection: Connection, slots: Collection[tuple[int, int]], heights: Mapping[int, int]
) -> Iterator[FoundClaim]:
    """Read the claims about `slots` (log, sequence number) of logs that are `heights` high."""
    if not slots:
        return
    held: set[tuple[int, int]] = set()
    for log, seq_num, found, has_payload in _read(connection, _held, slots):
        held.add((log, seq_num))
        entry_hash = Hash(found)
        yield FoundClaim(log, seq_num, Claim(entry_hash, entry_hash), bool(has_payload))
    # Entries that are not held may be claimed by others that link to them.
    missing = set(slots) - held
    witnesses = {(log, witness) for log, seq_num in missing for witness in linking_to(seq_num, heights[log])}
    for log, witness, encoded in _read(connection, _witnesses, witnesses):
        entry = decode_entry(encoded)
        for at, claimed in ((entry.seq_num - 1, entry.backlink), (lipmaa(entry.seq_num), entry.lipmaa_link)):
            if claimed is not None:
                yield FoundClaim(log, at, Claim(claimed, Hash(witness)), None)


def _claimed_seq_nums(log: LogIngestState, items: Iterable[PreparedItem], *, must_be_next: bool) -> Iterator[int]:
    """The sequence numbers that matter to the items, as far as anything can be held there."""
    height = log.first_height
    for item in items:
        yield from (at for at, _ in item.claims if at <= height)
    if must_be_next:
        yield from (height, lipmaa(height + 1))


def _read(connection: Connection, query: Compiled, slots: Collection[tuple[int, int]]) -> Sequence[Any]:
    if not slots:
        return []
    return query.rows(connection, **pairs_as_parameters(connection.dialect.name, sorted(slots)))


def _select_held(connection: Connection) -> Select[Any]:
    # What has rotted does not come back unasked: its payloads count as if they were here.
    has_rotted = exists().where(
        copies.c.log == entries.c.log,
        copies.c.create_seq == entries.c.create_seq,
        or_(*(copies.c.step == step for step in ROTTED)),
    )
    has_payload = or_(entries.c.payload.is_not(None), has_rotted)
    return _at_slots(select(entries.c.log, entries.c.seq_num, entries.c.hash, has_payload), connection)


def _select_witnesses(connection: Connection) -> Select[Any]:
    return _at_slots(select(entries.c.log, entries.c.hash, entries.c.encoded), connection)


def _at_slots(query: Select[Any], connection: Connection) -> Select[Any]:
    wanted = table_of_pairs(connection.dialect.name)
    return query.join_from(wanted, entries, and_(entries.c.log == wanted.c.first, entries.c.seq_num == wanted.c.second))


_held: Final = Compiled(_select_held)
_witnesses: Final = Compiled(_select_witnesses)

Values = dict[str, Any]

MESSAGE_COLUMNS: Final = ("kind", "schema", "schema_version", "create_seq", "ref_hash", "code", "access", "payload")


def _complete(table: Table) -> Update:
    values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in MESSAGE_COLUMNS}
    return update(table).where(table.c.hash == bindparam("of_hash")).values(values)


_COMPLETE = _complete(entries)
_COMPLETE_BESIDE = _complete(branch_entries)
_INSERT_ENTRY = insert(entries)
_INSERT_BESIDE = insert(branch_entries)
_INSERT_INGEST = insert(ingests)
_MOVE = (
    update(entries)
    .where(entries.c.id == bindparam("of_id"))
    .values(create_seq=bindparam("new_create_seq"), ref_hash=null())
)
_ADVANCE = (
    update(logs)
    .where(logs.c.id == bindparam("of_id"))
    .values(
        {name: bindparam(f"new_{name}") for name in ("height", "held", "forked_at", "lied_at", "ended_at", "aside")}
    )
)


@dataclass(slots=True)
class Writes:
    """What a batch changes, gathered decision by decision."""

    stored: list[tuple[LogIngestState, PreparedItem]] = field(default_factory=list)
    completed: list[tuple[LogIngestState, PreparedItem]] = field(default_factory=list)
    """Items that bring the payload of an entry which is held already."""
    beside: list[tuple[LogIngestState, PreparedItem]] = field(default_factory=list)
    """Entries that are kept beside the pinned branch of their log."""
    completed_beside: list[tuple[LogIngestState, PreparedItem]] = field(default_factory=list)
    proofs: list[Values] = field(default_factory=list)
    happened: list[Values] = field(default_factory=list)
    logs: dict[int, LogIngestState] = field(default_factory=dict)

    def add(self, state: LogIngestState, item: PreparedItem, decision: Decision) -> None:
        """Add a decision; the state is that before it."""
        signed, log = item.signed, state.id
        seq_num = signed.entry.seq_num
        if decision.is_beside:
            self._add_beside(state, item, decision)
            return
        if decision.stores_entry:
            self.stored.append((state, item))
            self._add_ingest(IngestKind.ENTRY, log, seq_num)
            if signed.entry.is_end_of_log and seq_num < state.height:
                self._add_ingest(IngestKind.ENDED, log, seq_num)
        elif decision.stores_payload:
            self.completed.append((state, item))
            self._add_ingest(IngestKind.PAYLOAD, log, seq_num)
        else:
            return
        self.logs[log] = state
        if decision.forked_at is not None:
            proof = {"first": decision.witness, "second": signed.hash}
            self.proofs.append({"log": log, "seq_num": decision.forked_at, **proof})
            self._add_ingest(IngestKind.FORK, log, decision.forked_at)
        if item.is_lie:
            self._add_ingest(IngestKind.LIE, log, seq_num)

    def _add_beside(self, state: LogIngestState, item: PreparedItem, decision: Decision) -> None:
        """Add a decision that changes no view."""
        if not decision.stores_payload and not decision.stores_entry:
            return
        (self.beside if decision.stores_entry else self.completed_beside).append((state, item))
        self.logs[state.id] = state
        if decision.forked_at is not None:
            proof = {"first": decision.witness, "second": item.signed.hash}
            self.proofs.append({"log": state.id, "seq_num": decision.forked_at, **proof})

    def _add_ingest(self, what: IngestKind, log: int, seq_num: int) -> None:
        self.happened.append({"what": what.value, "log": log, "seq_num": seq_num})

    def write(self, connection: Connection) -> None:
        """Write everything; nothing if nothing changes."""
        if not self.logs:
            return
        both = [*self.stored, *self.completed]
        named = {
            (state.id, item.content.schema.schema_id)
            for state, item in (*both, *self.beside, *self.completed_beside)
            if item.content is not None and item.content.schema is not None
        }
        schemas = number_schemas(connection, {schema_id for _, schema_id in named})
        targets = find_targets(
            connection,
            ((state.id, item.signed.entry.seq_num, item.signed.hash) for state, item in self.stored),
            {
                (state.id, item.content.instance)
                for state, item in both
                if item.content is not None and isinstance(item.content.instance, Hash)
            },
        )
        if self.stored:
            execute_many(connection, _INSERT_ENTRY, [
                {
                    "log": state.id,
                    "seq_num": item.signed.entry.seq_num,
                    "hash": item.signed.hash,
                    "encoded": item.signed.entry.encoded,
                    **_values_of(state, item, schemas, targets),
                }
                for state, item in self.stored
            ])  # fmt: skip
            # Only entries that fill a gap can be waited for: nobody knows the hash of an entry behind his own.
            assign_waiting_messages(
                connection,
                {
                    (state.id, item.signed.hash): item.signed.entry.seq_num
                    for state, item in self.stored
                    if item.signed.entry.seq_num < state.first_height
                },
            )
        if self.completed:
            execute_many(connection, _COMPLETE, [
                {"of_hash": item.signed.hash}
                | {f"new_{name}": value for name, value in _values_of(state, item, schemas, targets).items()}
                for state, item in self.completed
            ])  # fmt: skip
        self._write_beside(connection, schemas)
        note_schemas(connection, {(schemas[schema_id], log) for log, schema_id in named})
        if self.proofs:
            connection.execute(insert_new(connection, fork_proofs), self.proofs)
        execute_many(connection, _ADVANCE, [
            {
                "of_id": log.id,
                "new_height": log.height,
                "new_held": log.held,
                "new_forked_at": log.standing.forked_at,
                "new_lied_at": log.standing.lied_at,
                "new_ended_at": log.standing.ended_at,
                "new_aside": log.aside,
            }
            for log in self.logs.values()
        ])  # fmt: skip
        if self.happened:
            execute_many(connection, _INSERT_INGEST, self.happened)
        update_references(connection, [
            StoredMessage(
                InstanceKey(state.id, create_seq_of(state.id, seq_num, item.content, targets)),
                state.author,
                seq_num,
                item.signed.hash,
                item.content.message,
                is_newest=seq_num > state.first_height and state.standing == VALID_LOG,
            )
            for state, item in both
            if item.content is not None
            and is_of_interest(item.content.message)
            and (seq_num := item.signed.entry.seq_num)
        ])  # fmt: skip

    def _write_beside(self, connection: Connection, schemas: dict[SchemaId, int]) -> None:
        # Which entry a message is folded with is found when it joins the rows of its log.
        if self.beside:
            execute_many(connection, _INSERT_BESIDE, [
                {
                    "log": state.id,
                    "seq_num": item.signed.entry.seq_num,
                    "hash": item.signed.hash,
                    "encoded": item.signed.entry.encoded,
                    **_values_of(state, item, schemas, {}),
                }
                for state, item in self.beside
            ])  # fmt: skip
        if self.completed_beside:
            execute_many(connection, _COMPLETE_BESIDE, [
                {"of_hash": item.signed.hash}
                | {f"new_{name}": value for name, value in _values_of(state, item, schemas, {}).items()}
                for state, item in self.completed_beside
            ])  # fmt: skip

    def settle(self, connection: Connection) -> list[LogIngestState]:
        """Look again at the logs whose pin may decide otherwise by what was written; returns them."""
        settled = []
        for log in sorted(self.logs):
            state = self.logs[log]
            if state.is_pinned and not state.is_unsettled:
                linked = {
                    claimed for of, item in self.stored if of is state and state.aside for _, claimed in item.claims[1:]
                }
                is_due = any(_beside.rows(connection, some) for some in in_lists(sorted(linked)))
            else:
                is_due = state.is_pinned or state.pin is not None or state.aside > 0
            if is_due and settle_branch(connection, log):
                settled.append(state)
        return settled


Targets = dict[tuple[int, Hash], int]
"""The sequence numbers of entries that messages name, by log and hash."""


def find_targets(
    connection: Connection, stored: Iterable[tuple[int, int, Hash]], wanted: Collection[tuple[int, Hash]]
) -> Targets:
    """Find the wanted entries among those that are being stored (log, sequence number, hash) and those held."""
    if not wanted:
        return {}
    targets: Targets = {(log, entry_hash): seq_num for log, seq_num, entry_hash in stored}
    missing = {entry_hash for log, entry_hash in wanted if (log, entry_hash) not in targets}
    for some in in_lists(missing):
        for log, entry_hash, seq_num in _seq_nums.rows(connection, some):
            targets[log, Hash(entry_hash)] = seq_num
    return targets


_seq_nums: Final = CompiledList(
    lambda hashes: select(entries.c.log, entries.c.hash, entries.c.seq_num).where(entries.c.hash.in_(hashes))
)


_NOTHING: Values = dict.fromkeys(MESSAGE_COLUMNS)


def _values_of(state: LogIngestState, item: PreparedItem, schemas: dict[SchemaId, int], targets: Targets) -> Values:
    if item.content is None:
        return _NOTHING
    values = message_values(state.id, item.signed.entry.seq_num, item.content, schemas, targets)
    return dict(zip(MESSAGE_COLUMNS, (*values, item.payload), strict=True))


def message_values(
    log: int, own_seq: int, content: PayloadContent, schemas: dict[SchemaId, int], targets: Targets
) -> tuple[Any, ...]:
    """The values of `MESSAGE_COLUMNS`, all but the payload."""
    create_seq = create_seq_of(log, own_seq, content, targets)
    is_unresolved = isinstance(content.instance, Hash) and create_seq == own_seq
    ref_hash = content.instance if is_unresolved else content.continues
    schema = content.schema
    number, version = (schemas[schema.schema_id], schema.version) if schema is not None else (None, None)
    return content.kind, number, version, create_seq, ref_hash, content.code, content.access


def create_seq_of(log: int, own_seq: int, content: PayloadContent, targets: Targets) -> int:
    """The sequence number of the entry that a message is folded with: its create, else itself."""
    if isinstance(content.instance, Hash):
        return targets.get((log, content.instance), own_seq)
    # A number that is not below its own names no create, whatever else arrives.
    return own_seq if content.instance is None else min(content.instance, own_seq)


def assign_waiting_messages(connection: Connection, arrived: Targets) -> None:
    """Give messages that named an entry by its hash, before it was held, to that entry."""
    for some in in_lists(entry_hash for _, entry_hash in arrived):
        # A create names what it continues; it is of its own instance all the same.
        query = select(entries.c.id, entries.c.log, entries.c.ref_hash).where(
            entries.c.ref_hash.in_(some), entries.c.kind != "create"
        )
        moves = [
            {"of_id": row.id, "new_create_seq": arrived[row.log, Hash(row.ref_hash)]}
            for row in connection.execute(query)
            if (row.log, Hash(row.ref_hash)) in arrived
        ]
        if moves:
            execute_many(connection, _MOVE, moves)


def note_schemas(connection: Connection, named: set[tuple[int, int]]) -> None:
    """Record which schemas the messages of a log name, both by number."""
    for some in in_lists({log for _, log in named}):
        named -= set(_named_in.rows(connection, some))
    if named:
        rows = [{"schema": schema, "log": log} for schema, log in sorted(named)]
        connection.execute(insert_new(connection, log_schemas), rows)


_named_in: Final = CompiledList(
    lambda numbers: select(log_schemas.c.schema, log_schemas.c.log).where(log_schemas.c.log.in_(numbers))
)


@dataclass(frozen=True, slots=True)
class IngestReceipt:
    """The result of ingesting one item."""

    hash: Hash | None
    """None if the bytes are no entry."""
    status: IngestStatus
    error: InkgroveError | None = None
    """Why it was refused or what it is evidence of; also set if only the payload given with it is wrong."""


def ingest_batch(connection: Connection, batch: Batch, *, must_be_next: bool) -> dict[int, IngestReceipt]:
    """Decide on every item and write what changes; the receipts by the number of their items."""
    receipts: dict[int, IngestReceipt] = {}
    stale: list[PreparedItem] = []
    writes = Writes()
    states = lock_log_states(connection, batch, must_be_next=must_be_next)
    erased = find_erased_messages(
        connection,
        (
            OfferedMessage(states[key].id, item.signed.hash, item.content)
            for key, items in batch.items()
            for item in items
            if item.content is not None and not item.is_lie
        ),
    )
    for key, state in states.items():
        # What a pinned branch leads to is found from its end.
        for offered in reversed(batch[key]) if state.is_pinned else batch[key]:
            item = without_content(offered) if offered.signed.hash in erased else offered
            if must_be_next and item is not offered:
                receipts[item.number] = IngestReceipt(item.signed.hash, IngestStatus.REFUSED, item.payload_error)
                continue
            decision = decide_ingest(state, item, must_be_next=must_be_next)
            writes.add(state, item, decision)
            apply_decision(state, item, decision)
            if decision.is_stale:
                stale.append(item)
            else:
                receipts[item.number] = IngestReceipt(item.signed.hash, decision.status, decision.error)
    writes.write(connection)
    for state in writes.settle(connection):
        receipts |= _receipts_of_settled(connection, batch[state.author, state.log_id], receipts)
    for item in stale:
        receipts[item.number] = IngestReceipt(item.signed.hash, IngestStatus.REFUSED, _why_stale(connection, item))
    return receipts


def _receipts_of_settled(
    connection: Connection, items: Sequence[PreparedItem], receipts: Mapping[int, IngestReceipt]
) -> dict[int, IngestReceipt]:
    """Say of items that were kept what they are worth now that their log has been settled."""
    kept = {
        item.signed.hash: item
        for item in items
        if (receipt := receipts.get(item.number)) is not None
        and receipt.status in (IngestStatus.STORED, IngestStatus.EVIDENCE)
    }
    found = {}
    verified = verified_among(connection, list(kept))
    beside = {Hash(name) for some in in_lists(sorted(kept)) for name, _ in _beside.rows(connection, some)}
    for entry_hash, item in kept.items():
        status, error = receipts[item.number].status, receipts[item.number].error
        if entry_hash in verified:
            status, error = IngestStatus.STORED, item.payload_error
        elif entry_hash in beside:
            status, error = IngestStatus.EVIDENCE, make_other_branch(item.signed.entry.seq_num)
        found[item.number] = IngestReceipt(entry_hash, status, error)
    return found


def _why_stale(connection: Connection, item: PreparedItem) -> InkgroveError:
    entry = item.signed.entry
    try:
        following = read_next_entry(connection, entry.author, entry.log_id)
    except InkgroveError as error:
        return error
    return LogError(
        "log.stale",
        f"entry {entry.seq_num} does not follow the newest entry of its log, {following.seq_num - 1}",
        next=following,
    )

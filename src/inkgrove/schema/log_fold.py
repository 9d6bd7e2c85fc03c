"""The fold of one log: which messages belong to which instance, and what becomes of those that belong to none.

docs/protocol.md sections 5 and 6. A log is read once, in its order; every instance of it is folded on its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.messages.ids import InstanceRef, SchemaId
from inkgrove.messages.instance import Create, Delete, InstanceMessage, Update
from inkgrove.messages.message import Message, decode_message
from inkgrove.messages.outcomes import Outcome, OutcomeCode
from inkgrove.messages.schema import SchemaMeta, SchemaMigration, SchemaRevert
from inkgrove.schema.fold import Change, Definitions, InstanceFold, Ruling, fold_instance, read_update, rule


class LogMessage(NamedTuple):
    """An entry of the log with its payload, if that is held."""

    seq_num: int
    hash: Hash
    payload: bytes | None
    invalid_code: str | None = None
    """For entries in the invalid part of the log: why it is invalid."""


@dataclass(slots=True)
class LogFold:
    """The result for one log."""

    instances: list[InstanceFold] = field(default_factory=list)
    rulings: dict[Hash, tuple[SchemaId | None, Ruling]] = field(default_factory=dict)
    """Those of every message of the log, by entry hash, with the schema whose view they belong to."""
    schema_id: SchemaId | None = None
    """The schema that the log's first speaking message names: that of messages which name none themselves."""
    absent: int = 0


class LogFacts(NamedTuple):
    """What the fold of a part of a log must know of the rest of it."""

    first: Message | InkgroveError | None
    """The message of entry 1, or why it is malformed; None if its payload is not held."""
    schema_id: SchemaId | None
    """The schema that the log's first speaking message names."""


def fold_log(
    log_id: int,
    messages: Iterable[LogMessage],
    definitions: Definitions,
    is_held_elsewhere: Callable[[Hash], bool],
    facts: LogFacts | None = None,
) -> LogFold:
    """Fold the messages of one log, given in order; a schema's own log has nothing to fold.

    With `facts` the messages may be those of a few instances only, each with the entry that its messages name.
    """
    folder = _LogFolder(log_id, definitions, is_held_elsewhere)
    for item in messages:
        folder.read(item)
    return folder.finish(facts)


@dataclass(slots=True)
class _Gathered:
    seq_num: int
    create: Create
    changes: list[Change] = field(default_factory=list)


class _LogFolder:
    def __init__(self, log_id: int, definitions: Definitions, is_held_elsewhere: Callable[[Hash], bool]) -> None:
        self.log_id = log_id
        self.definitions = definitions
        self.is_held_elsewhere = is_held_elsewhere
        self.hashes: dict[int, Hash] = {}
        self.messages: dict[Hash, tuple[int, Message | None]] = {}
        """The valid part by hash; None where the payload is not held or malformed."""
        self.absent: set[Hash] = set()
        self.creates: dict[Hash, _Gathered] = {}
        self.fold = LogFold()
        self.others: dict[Hash, tuple[SchemaId | None, Ruling]] = {}
        self.waiting: list[tuple[LogMessage, Update | Delete]] = []
        self.strays: list[LogMessage] = []

    def read(self, item: LogMessage) -> None:
        message, error = None, None
        if item.payload is not None:
            try:
                message = decode_message(item.payload)
            except InkgroveError as err:
                error = err
        named = _named_schema(message)
        if item.invalid_code is not None:
            self._read_invalid(item, message, named)
            return
        self.hashes[item.seq_num] = item.hash
        self.messages[item.hash] = item.seq_num, message
        self.fold.schema_id = self.fold.schema_id or named
        if item.payload is None:
            self.absent.add(item.hash)
        elif error is not None:
            self.others[item.hash] = None, Ruling(Outcome.QUARANTINED, error.code, error.message)
        elif isinstance(message, Create | Update | Delete):
            self._read_instance_message(item, message, named)
        elif isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
            self.strays.append(item)
        elif self.log_id != 0:
            self.others[item.hash] = None, rule(OutcomeCode.WRONG_LOG)

    def _read_instance_message(self, item: LogMessage, message: InstanceMessage, named: SchemaId | None) -> None:
        if self.log_id == 0:
            self.others[item.hash] = named, rule(OutcomeCode.WRONG_LOG)
        elif isinstance(message, Create):
            self.creates[item.hash] = _Gathered(item.seq_num, message)
        else:
            self.waiting.append((item, message))

    def _read_invalid(self, item: LogMessage, message: Message | None, named: SchemaId | None) -> None:
        if item.payload is None or self.log_id == 0:
            return
        code = item.invalid_code or ""
        self.others[item.hash] = (
            named,
            Ruling(Outcome.QUARANTINED, code, "The log is invalid from an earlier entry on."),
        )
        if isinstance(message, Delete):
            self.waiting.append((item, message))

    def finish(self, facts: LogFacts | None) -> LogFold:
        """Everything is read: find the instance of each change, fold, and gather the rulings."""
        first = self.hashes.get(1)
        first_message = self.messages[first][1] if first is not None else None
        is_first_held = first is not None and first not in self.absent
        if facts is not None:
            is_first_held = facts.first is not None
            first_message = facts.first if not isinstance(facts.first, InkgroveError) else None
            self.fold.schema_id = facts.schema_id
        if self.log_id != 0 and isinstance(first_message, SchemaMeta):
            return LogFold()
        for item, message in self.waiting:
            self._place(item, message)
        for item in self.strays:
            if self.log_id == 0 or is_first_held:
                self.others[item.hash] = None, rule(OutcomeCode.WRONG_LOG)
        for instance, gathered in self.creates.items():
            folded = fold_instance(gathered.seq_num, instance, gathered.create, gathered.changes, self.definitions)
            self.fold.instances.append(folded)
            self.fold.rulings.update(folded.rulings)
        for entry_hash, (named, ruling) in self.others.items():
            schema_id = named or self.fold.schema_id
            if schema_id is None or self.definitions(schema_id) is not None:
                self.fold.rulings[entry_hash] = schema_id, ruling
        self.fold.absent = len(self.absent) if self.log_id != 0 else 0
        return self.fold

    def _place(self, item: LogMessage, message: Update | Delete) -> None:
        """Give a change to its instance, or rule on it if it has none."""
        target = self._find(message.instance)
        gathered = self.creates.get(target) if target is not None else None
        if gathered is not None and gathered.seq_num < item.seq_num:
            is_valid = item.invalid_code is None
            gathered.changes.append(Change(item.seq_num, item.hash, message, is_valid))
            if not is_valid and message.schema is None:
                self.others[item.hash] = gathered.create.schema.schema_id, self.others[item.hash][1]
            return
        if item.invalid_code is not None:
            return
        named = _named_schema(message)
        definition = self.definitions(named) if named is not None else None
        if isinstance(message, Update) and definition is not None:
            read = read_update(message, definition)
            if isinstance(read, Ruling):
                self.others[item.hash] = named, read
                return
        self.others[item.hash] = named, rule(self._why_without_create(item.seq_num, message.instance, target))

    def _find(self, reference: InstanceRef) -> Hash | None:
        """The entry of this log's valid part that a message refers to."""
        if isinstance(reference, int):
            return self.hashes.get(reference)
        return reference if reference in self.messages else None

    def _why_without_create(self, seq_num: int, reference: InstanceRef, target: Hash | None) -> OutcomeCode:
        if isinstance(reference, int) and reference >= seq_num:
            return OutcomeCode.NOT_A_CREATE
        if target is None:
            is_elsewhere = not isinstance(reference, int) and self.is_held_elsewhere(reference)
            return OutcomeCode.NOT_A_CREATE if is_elsewhere else OutcomeCode.CREATE_NOT_HELD
        is_later = self.messages[target][0] >= seq_num
        return OutcomeCode.CREATE_NOT_HELD if target in self.absent and not is_later else OutcomeCode.NOT_A_CREATE


def _named_schema(message: Message | None) -> SchemaId | None:
    if isinstance(message, Create | Update | Delete) and message.schema is not None:
        return message.schema.schema_id
    return None

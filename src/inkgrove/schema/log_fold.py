"""The fold of one log: which messages belong to which instance, and the outcomes of those that belong to none.

docs/protocol.md sections 5 and 6. A log is read once, in its order; every instance of it is folded on its own.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from inkgrove.core import Hash
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import (
    Create,
    Delete,
    InstanceMessage,
    InstanceRef,
    Message,
    Outcome,
    OutcomeCode,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    Update,
    decode_message,
)
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.fold import (
    Definitions,
    InstanceChange,
    InstanceFold,
    Ruling,
    apply_ends,
    fold_instance,
    make_ruling,
    read_update_values,
    rule_on_end,
)
from inkgrove.schema.other_logs import OtherLogs


class LogMessage(NamedTuple):
    """An entry of the log, with its payload if that is held."""

    seq_num: int
    hash: Hash
    payload: bytes | None
    invalid_code: str | None = None
    """For entries in the invalid part of the log: why it is invalid."""


@dataclass(slots=True)
class LogFold:
    """The result of folding one log: its instances and the ruling on each message."""

    instances: list[InstanceFold] = field(default_factory=list)
    rulings: dict[Hash, tuple[SchemaId | None, Ruling]] = field(default_factory=dict)
    """Those of every message of the log, by entry hash, with the schema whose view they belong to."""
    schema_id: SchemaId | None = None
    """The first schema that a message of the log names: that of messages which name none themselves."""
    absent: int = 0


class LogContext(NamedTuple):
    """What the fold of a part of a log needs to know of the rest."""

    first: Message | InkgroveError | None
    """The message of entry 1, or why it is malformed; None if its payload is not held."""
    schema_id: SchemaId | None
    """The first schema that a message of the log names."""


def fold_log(
    log_id: int,
    messages: Iterable[LogMessage],
    definitions: Definitions,
    others: OtherLogs,
    context: LogContext | None = None,
) -> LogFold:
    """Fold the messages of one log, given in order; a schema's own log has nothing to fold.

    With a `context` the messages may be those of a few instances only, each with the entry that its messages name.
    `others` are the other logs, as seen from this one.
    """
    folder = _LogFolder(log_id, definitions, others)
    for item in messages:
        folder.read(item)
    return folder.finish(context)


class _LogFolder:
    def __init__(self, log_id: int, definitions: Definitions, other_logs: OtherLogs) -> None:
        self.log_id = log_id
        self.definitions = definitions
        self.other_logs = other_logs
        self.valid: list[tuple[LogMessage, Message | None]] = []
        """The valid part; None where the payload is not held or malformed."""
        self.hashes: dict[int, Hash] = {}
        self.seq_nums: dict[Hash, int] = {}
        """Both of the valid part, made when it is read and a message refers to another."""
        self.absent: set[Hash] = set()
        self.creates: dict[Hash, tuple[int, Create]] = {}
        self.changes: dict[Hash, list[InstanceChange]] = defaultdict(list)
        self.erased: set[tuple[SchemaId, Hash]] = set()
        """The entries without payload that deletes end, with the schemas that these name."""
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
        if item.invalid_code is not None:
            self._read_invalid(item, message, _named_schema(message))
            return
        self.valid.append((item, message))
        if self.fold.schema_id is None:
            self.fold.schema_id = _named_schema(message)
        if type(message) is Create and self.log_id != 0:
            self.creates[item.hash] = item.seq_num, message
        elif item.payload is None:
            self.absent.add(item.hash)
        elif error is not None:
            self.others[item.hash] = None, Ruling(Outcome.QUARANTINED, error.code, error.message)
        elif isinstance(message, Create | Update | Delete):
            self._read_instance_message(item, message)
        elif isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
            self.strays.append(item)
        elif self.log_id != 0:
            self.others[item.hash] = None, make_ruling(OutcomeCode.WRONG_LOG)

    def _read_instance_message(self, item: LogMessage, message: InstanceMessage) -> None:
        if self.log_id == 0:
            self.others[item.hash] = _named_schema(message), make_ruling(OutcomeCode.WRONG_LOG)
        elif not isinstance(message, Create):
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

    def finish(self, context: LogContext | None) -> LogFold:
        """Find the instance of each change, fold, and gather the rulings, after everything was read."""
        first, first_message = self.valid[0] if self.valid and self.valid[0][0].seq_num == 1 else (None, None)
        is_first_held = first is not None and first.payload is not None
        if context is not None:
            is_first_held = context.first is not None
            first_message = context.first if not isinstance(context.first, InkgroveError) else None
            self.fold.schema_id = context.schema_id
        if self.log_id != 0 and isinstance(first_message, SchemaMeta):
            return LogFold()
        if self.waiting:
            for item, _ in self.valid:
                self.hashes[item.seq_num] = item.hash
                self.seq_nums[item.hash] = item.seq_num
        for item, message in self.waiting:
            self._assign(item, message)
        for item in self.strays:
            if self.log_id == 0 or is_first_held:
                self.others[item.hash] = None, make_ruling(OutcomeCode.WRONG_LOG)
        definitions, changes, rulings = self.definitions, self.changes, self.fold.rulings
        self.fold.instances = [
            fold_instance(seq_num, instance, create, changes.get(instance, ()), definitions, rulings)
            for instance, (seq_num, create) in self.creates.items()
        ]
        for fold in self.fold.instances:
            if ends := self.other_logs.ends_of(fold.instance):
                apply_ends(fold, ends, definitions)
        self.fold.instances += [InstanceFold(instance, of, is_deleted=True) for of, instance in self.erased]
        for entry_hash, (named, ruling) in self.others.items():
            schema_id = named or self.fold.schema_id
            if schema_id is None or self.definitions(schema_id) is not None:
                self.fold.rulings[entry_hash] = schema_id, ruling
        self.fold.absent = len(self.absent) if self.log_id != 0 else 0
        return self.fold

    def _assign(self, item: LogMessage, message: Update | Delete) -> None:
        """Give a change to its instance, or rule on it if it has none."""
        target = self._find(message.instance)
        if target is not None and target in self.creates and self.creates[target][0] < item.seq_num:
            is_valid = item.invalid_code is None
            self.changes[target].append(InstanceChange(item.seq_num, item.hash, message, is_valid))
            if not is_valid and message.schema is None:
                self.others[item.hash] = self.creates[target][1].schema.schema_id, self.others[item.hash][1]
            return
        named = _named_schema(message)
        is_without_payload = target in self.absent and self.seq_nums[target] < item.seq_num
        erased = (named, target) if is_without_payload and named is not None and target is not None else None
        if item.invalid_code is not None:
            if erased is not None:
                self.erased.add(erased)
            return
        definition = self.definitions(named) if named is not None else None
        if isinstance(message, Update) and definition is not None:
            read = read_update_values(message, definition)
            if isinstance(read, Ruling):
                self.others[item.hash] = named, read
                return
        if erased in self.erased:
            ruling = make_ruling(OutcomeCode.AFTER_DELETE)
        elif erased is not None and isinstance(message, Delete):
            self.erased.add(erased)
            ruling = make_ruling(OutcomeCode.ERASED)
        elif isinstance(message, Delete) and target is None and not isinstance(message.instance, int):
            ruling = self._rule_on_end(message, message.instance, definition)
        else:
            ruling = make_ruling(self._why_without_create(item.seq_num, message.instance, target))
        self.others[item.hash] = named, ruling

    def _rule_on_end(self, message: Delete, instance: Hash, definition: ViewDefinition | None) -> Ruling:
        """Rule on a delete of an instance that this log does not hold."""
        named = self.other_logs.find_entry(instance)
        if named is None:
            return make_ruling(OutcomeCode.CREATE_NOT_HELD)
        if message.schema is None or not named.may_be_ended:
            return make_ruling(OutcomeCode.NOT_A_CREATE)
        if not named.has_payload:
            return make_ruling(OutcomeCode.CREATE_NOT_HELD)
        create = named.message
        if not isinstance(create, Create) or create.schema.schema_id != message.schema.schema_id or definition is None:
            return make_ruling(OutcomeCode.NOT_A_CREATE)
        return rule_on_end(create, definition)

    def _find(self, reference: InstanceRef) -> Hash | None:
        """The entry of this log's valid part that a message refers to."""
        if isinstance(reference, int):
            return self.hashes.get(reference)
        return reference if reference in self.seq_nums else None

    def _why_without_create(self, seq_num: int, reference: InstanceRef, target: Hash | None) -> OutcomeCode:
        if isinstance(reference, int) and reference >= seq_num:
            return OutcomeCode.NOT_A_CREATE
        if target is None:
            is_elsewhere = not isinstance(reference, int) and self.other_logs.find_entry(reference) is not None
            return OutcomeCode.NOT_A_CREATE if is_elsewhere else OutcomeCode.CREATE_NOT_HELD
        is_later = self.seq_nums[target] >= seq_num
        return OutcomeCode.CREATE_NOT_HELD if target in self.absent and not is_later else OutcomeCode.NOT_A_CREATE


def _named_schema(message: Message | None) -> SchemaId | None:
    if isinstance(message, Create | Update | Delete) and message.schema is not None:
        return message.schema.schema_id
    return None

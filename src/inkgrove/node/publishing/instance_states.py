"""Folds instances that are about to be changed; one with many messages is folded further, not anew."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from inkgrove.core import Hash
from inkgrove.messages import Delete, SchemaId, Update, decode_if_valid
from inkgrove.schema import (
    InstanceChange,
    InstanceFold,
    LogContext,
    LogMessage,
    OtherLogs,
    ViewDefinition,
    fold_further,
    fold_log,
)
from inkgrove.store.db import Connection
from inkgrove.store.logs import (
    VALID_LOG,
    CreateEntry,
    InstanceKey,
    LogState,
    OtherLogsInStore,
    messages_of,
    messages_since,
    read_ends,
    read_logs,
)

COSTLY: Final = 16
"""From so many messages on it is cheaper to read new ones than to fold all of them."""

Definition = Callable[[SchemaId], ViewDefinition]


@dataclass(frozen=True, slots=True)
class InstanceState:
    """An instance as it is, and its create."""

    create: CreateEntry
    fold: InstanceFold | None
    messages: int
    definition: ViewDefinition
    """What it was folded with."""
    height: int | None
    """The height of its log when it was folded; None if messages below it may be missing."""

    @property
    def is_living(self) -> bool:
        """Whether an update of it would apply."""
        return self.fold is not None and self.fold.row is not None

    @property
    def continued_by(self) -> Hash | None:
        """The instance that has come in its place, if there is one."""
        return self.fold.continued_by if self.fold is not None else None

    @property
    def is_costly(self) -> bool:
        """Whether it is worth caching: it can be folded further, and that saves time."""
        return self.is_living and self.height is not None and self.messages >= COSTLY


def read_states(
    connection: Connection,
    creates: Mapping[Hash, CreateEntry],
    before: Mapping[Hash, InstanceState],
    definition: Definition,
) -> dict[Hash, InstanceState]:
    """Return the instances of these creates; those in `before` are folded further if that gives an equal result."""
    logs = read_logs(connection, {create.log for create in creates.values()})
    ends = read_ends(connection, creates)
    found: dict[Hash, InstanceState] = {}
    for instance, create in creates.items():
        known = before.get(instance) if instance not in ends else None
        state = _fold_further(connection, known, logs[create.log], definition) if known is not None else None
        if state is not None:
            found[instance] = state
    others = {instance: create for instance, create in creates.items() if instance not in found}
    keys = {InstanceKey(create.log, create.seq_num) for create in others.values()}
    messages = messages_of(connection, keys)
    for instance, create in others.items():
        own = messages[InstanceKey(create.log, create.seq_num)]
        other_logs = OtherLogsInStore(lambda work: work(connection), create.author, ends)
        found[instance] = _fold(instance, create, own, logs[create.log], definition, other_logs)
    return found


def _fold(
    instance: Hash,
    create: CreateEntry,
    messages: list[LogMessage],
    log: LogState,
    definition: Definition,
    other_logs: OtherLogs,
) -> InstanceState:
    fold = fold_log(create.log_id, messages, definition, other_logs, LogContext(None, create.schema))
    folded = next((item for item in fold.instances if item.instance == instance), None)
    is_all_held = _is_sound(log) and all(item.payload is not None for item in messages)
    return InstanceState(
        create,
        folded,
        len(messages),
        definition(create.schema),
        log.height if is_all_held else None,
    )


def _fold_further(
    connection: Connection, known: InstanceState, log: LogState, definition: Definition
) -> InstanceState | None:
    """Return the instance with what came since, as `_fold` would make it; None if only `_fold` can."""
    is_same = known.definition is definition(known.create.schema)
    # Every entry below is held: nothing can come but behind it, unless the log turns out not to be sound.
    if not (known.is_living and known.height is not None and is_same and _is_sound(log)):
        return None
    if log.height - known.height > known.messages:  # to read these would take longer
        return None
    key = InstanceKey(known.create.log, known.create.seq_num)
    messages, is_create_held = messages_since(connection, key, known.height, log.height)
    if not is_create_held or any(item.payload is None for item in messages):
        return None
    assert known.fold is not None
    changes = [
        InstanceChange(item.seq_num, item.hash, message)
        for item in messages
        if isinstance(message := decode_if_valid(item.payload), Update | Delete)
    ]
    return InstanceState(
        known.create,
        fold_further(known.fold, changes, definition) if changes else known.fold,
        known.messages + len(messages),
        known.definition,
        log.height,
    )


def _is_sound(log: LogState) -> bool:
    return log.is_whole and log.standing == VALID_LOG

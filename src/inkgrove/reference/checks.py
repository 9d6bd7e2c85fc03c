"""The checks of one message: its log and form, the version it names, and the create it is about.

docs/protocol.md section 2 (forks, payloads), section 3 (malformed messages), section 5, section 7 (log 0); the order is
that of the outcomes in section 6.
"""

from collections.abc import Callable, Mapping

from inkgrove.core import Hash
from inkgrove.core.errors import Forked, InkgroveError, InvalidSince
from inkgrove.messages import (
    Create,
    Delete,
    IdentityDocument,
    KeyOf,
    Outcome,
    OutcomeCode,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    Unset,
    Update,
)
from inkgrove.messages.cbor import Value
from inkgrove.reference.live_path import (
    LiveSchema,
    Values,
    carry_defaults,
    ending_migration,
    migrate_values,
    read_version,
)
from inkgrove.reference.logs import HeldMessage, Log, find_named, schema_named_by
from inkgrove.reference.results import Verdict, make_verdict, quote_instance, quote_schema
from inkgrove.reference.schemas import ReferenceVersion
from inkgrove.reference.values import ReferenceAllowance, Unfit, fit, matches

Erased = tuple[SchemaId, Hash]
"""An instance of whose create only the entry is held, and the schema that a message about it names."""

MayEnd = Callable[[HeldMessage, HeldMessage], bool]
"""Whether a delete may end the instance that an entry of another log creates (`inkgrove.reference.ends`)."""


def judge_create(create: Create, schema: LiveSchema) -> Values | Verdict:
    """Return the values of every field of the new row at the newest version, or why there is no row."""
    version = read_version(create.schema, schema)
    if isinstance(version, Verdict):
        return version
    allowance = ReferenceAllowance()
    given = _check_fields(create.fields, version, allowance)
    if isinstance(given, Verdict):
        return given
    ended = ending_migration(version, schema)
    if ended is not None:
        return make_verdict(
            OutcomeCode.ENDED_BY_MIGRATION,
            f"Version {ended.number} removed the last field, and with it all rows created at version {version.number}.",
        )
    absent: Values = {field.id: None for field in version.fields if field.id not in given}
    return migrate_values(given | absent, version, schema, allowance) | carry_defaults(version, schema)


def judge_update(update: Update, schema: LiveSchema) -> Values | Verdict:
    """Return what is left at the newest version of the values that an update writes, or why it writes nothing."""
    version = read_version(update.schema, schema)
    if isinstance(version, Verdict):
        return version
    allowance = ReferenceAllowance()
    given = _check_fields({} if isinstance(update.fields, Unset) else update.fields, version, allowance)
    if isinstance(given, Verdict):
        return given
    return migrate_values(given, version, schema, allowance)


def _check_fields(
    fields: Mapping[str, Value], version: ReferenceVersion, allowance: ReferenceAllowance
) -> Values | Verdict:
    """Return the values in the form their types have for them, or the first fault in the order of the message."""
    values: Values = {}
    for name, value in fields.items():
        named = [field for field in version.fields if field.name == name]
        if not named:
            return make_verdict(
                OutcomeCode.UNKNOWN_FIELD, f"Version {version.number} of the schema has no field {name[:80]!r}."
            )
        field = named[0]
        fitting = fit(value, field.type)
        if isinstance(fitting, Unfit):
            return make_verdict(
                OutcomeCode.WRONG_TYPE,
                f"The value of {name!r} is no {field.type}, which the field is at version {version.number}.",
            )
        if not matches(fitting, field.validation, allowance):
            return make_verdict(
                OutcomeCode.FAILED_VALIDATION,
                f"The value of {name!r} does not match {field.validation!r}, as version {version.number} demands.",
            )
        values[field.id] = fitting
    return values


def find_create(
    held: HeldMessage, log: Log, by_hash: dict[Hash, HeldMessage], may_end: MayEnd
) -> HeldMessage | Verdict:
    """Return the create that an update or delete is about, whatever its own outcome is, or why there is none."""
    assert isinstance(held.content, Update | Delete)
    instance = held.content.instance
    name = quote_instance(instance)
    not_earlier = make_verdict(
        OutcomeCode.NOT_A_CREATE, f"The instance it names, {name}, is not created before it in the same log."
    )
    if isinstance(instance, int) and instance >= held.seq_num:
        return not_earlier
    named = find_named(instance, log, by_hash)
    if named is None:
        return make_verdict(OutcomeCode.CREATE_NOT_HELD, f"The entry of the instance it names, {name}, is not held.")
    if (named.author, named.log_id) != (log.author, log.log_id):
        if not isinstance(held.content, Delete) or not may_end(held, named):
            return make_verdict(
                OutcomeCode.NOT_A_CREATE,
                f"The instance it names, {name}, is of another log, and not of the same identity and schema.",
            )
    elif named.seq_num >= held.seq_num:
        return not_earlier
    if named.content is None:
        return make_verdict(
            OutcomeCode.CREATE_NOT_HELD,
            f"The payload of entry {named.seq_num}, which should create the instance {name}, is not held.",
        )
    if not isinstance(named.content, Create):
        return make_verdict(OutcomeCode.NOT_A_CREATE, f"Entry {named.seq_num}, which it names, is not a create.")
    own, of_create = schema_named_by(held), named.content.schema.schema_id
    if own is not None and own != of_create:
        return make_verdict(
            OutcomeCode.OTHER_SCHEMA,
            f"It names schema {quote_schema(own)}, but entry {named.seq_num} created the instance with schema"
            f" {quote_schema(of_create)}.",
        )
    return named


def find_erased(held: HeldMessage, log: Log, by_hash: dict[Hash, HeldMessage]) -> Erased | None:
    """Return what an update or delete is about if only the entry of that is held, and the message names a schema."""
    assert isinstance(held.content, Update | Delete)
    named = find_named(held.content.instance, log, by_hash)
    schema = schema_named_by(held)
    if named is None or named.content is not None or schema is None:
        return None
    is_before = (named.author, named.log_id) == (log.author, log.log_id) and named.seq_num < held.seq_num
    return (schema, named.hash) if is_before else None


def judge_by_create(create: HeldMessage, of_create: Verdict | None) -> Verdict | None:
    """Return the verdict that an update or delete shares with its create; None if that is applied."""
    if of_create is None:
        return None
    code = {
        Outcome.QUARANTINED: OutcomeCode.CREATE_QUARANTINED,
        Outcome.PENDING: OutcomeCode.CREATE_PENDING,
        Outcome.OBSOLETE: OutcomeCode.CREATE_OBSOLETE,
    }[of_create.outcome]
    return make_verdict(code, f"The create, entry {create.seq_num}, is {of_create.outcome.value}: {of_create.reason}")


def has_outcome(held: HeldMessage, log: Log) -> bool:
    """Whether the entry gets an outcome at all, if its schema is registered."""
    if held.content is None or log.is_schema_log:
        return False
    if log.log_id == 0:
        return not log.is_invalid_at(held.seq_num) and not isinstance(held.content, IdentityDocument | KeyOf)
    if log.is_invalid_at(held.seq_num):
        return True
    if isinstance(held.content, SchemaMeta | SchemaMigration | SchemaRevert):
        # Without entry 1 nobody knows: the log may turn out to be a schema's.
        return 1 in log.valid and log.valid[1].content is not None
    return True


def judge_placement(held: HeldMessage, log: Log) -> Verdict | None:
    """Return what is wrong with the log or the form of a message; None for an instance message where it belongs."""
    if log.is_invalid_at(held.seq_num):
        return _judge_invalid(held, log)
    content = held.content
    if isinstance(content, InkgroveError):
        return Verdict(Outcome.QUARANTINED, content.code, f"The message is malformed: {content.message}.")
    if isinstance(content, SchemaMeta | SchemaMigration | SchemaRevert):
        problem = "log 0 is for identity messages" if log.log_id == 0 else "entry 1 of this log is not a schema-meta"
        return make_verdict(OutcomeCode.WRONG_LOG, f"It is a schema message, but {problem}.")
    if isinstance(content, IdentityDocument | KeyOf):
        return make_verdict(
            OutcomeCode.WRONG_LOG, f"It is an identity message in log {log.log_id}; those belong into log 0."
        )
    if log.log_id == 0:
        return make_verdict(OutcomeCode.WRONG_LOG, "It is an instance message, but log 0 is for identity messages.")
    return None


def _judge_invalid(held: HeldMessage, log: Log) -> Verdict:
    if log.forked_at is not None and held.seq_num >= log.forked_at:
        return Verdict(Outcome.QUARANTINED, Forked.code, f"The log is forked at entry {log.forked_at}.")
    return Verdict(
        Outcome.QUARANTINED,
        InvalidSince.code,
        f"The log is invalid from entry {log.invalid_from} on, which lies about the size of its payload.",
    )

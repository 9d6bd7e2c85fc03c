"""The checks of one instance message: against the version it names, and of the create it is about.

docs/protocol.md section 5; the order is that of the outcomes in section 6.
"""

from collections.abc import Mapping

from inkgrove.core.hashing import Hash
from inkgrove.messages.cbor import Value
from inkgrove.messages.instance import Create, Delete, Update
from inkgrove.messages.outcomes import Outcome, OutcomeCode
from inkgrove.messages.reading import Unset
from inkgrove.reference.live_path import LiveSchema, Values, carry_defaults, ending_migration, migrate, read_version
from inkgrove.reference.logs import HeldMessage, Log, find_named, schema_named_by
from inkgrove.reference.schemas import Version
from inkgrove.reference.values import Allowance, Unfit, fit, matches
from inkgrove.reference.verdict import Verdict, quote_instance, quote_schema, verdict


def judge_create(create: Create, schema: LiveSchema) -> Values | Verdict:
    """The values of every field of the new row at the newest version, or why there is no row."""
    version = read_version(create.schema, schema)
    if isinstance(version, Verdict):
        return version
    allowance = Allowance()
    given = _check_fields(create.fields, version, allowance)
    if isinstance(given, Verdict):
        return given
    ended = ending_migration(version, schema)
    if ended is not None:
        return verdict(
            OutcomeCode.ENDED_BY_MIGRATION,
            f"Version {ended.number} removed the last field, and with it all rows created at version {version.number}.",
        )
    absent: Values = {field.id: None for field in version.fields if field.id not in given}
    return migrate(given | absent, version, schema, allowance) | carry_defaults(version, schema)


def judge_update(update: Update, schema: LiveSchema) -> Values | Verdict:
    """What is left at the newest version of the values that an update writes, or why it writes nothing."""
    version = read_version(update.schema, schema)
    if isinstance(version, Verdict):
        return version
    allowance = Allowance()
    given = _check_fields({} if isinstance(update.fields, Unset) else update.fields, version, allowance)
    if isinstance(given, Verdict):
        return given
    return migrate(given, version, schema, allowance)


def _check_fields(fields: Mapping[str, Value], version: Version, allowance: Allowance) -> Values | Verdict:
    """The values in the form their types have for them, or the first fault in the order of the message."""
    values: Values = {}
    for name, value in fields.items():
        named = [field for field in version.fields if field.name == name]
        if not named:
            return verdict(
                OutcomeCode.UNKNOWN_FIELD, f"Version {version.number} of the schema has no field {name[:80]!r}."
            )
        field = named[0]
        fitting = fit(value, field.type)
        if isinstance(fitting, Unfit):
            return verdict(
                OutcomeCode.WRONG_TYPE,
                f"The value of {name!r} is no {field.type}, which the field is at version {version.number}.",
            )
        if not matches(fitting, field.validation, allowance):
            return verdict(
                OutcomeCode.FAILED_VALIDATION,
                f"The value of {name!r} does not match {field.validation!r}, as version {version.number} demands.",
            )
        values[field.id] = fitting
    return values


def find_create(held: HeldMessage, log: Log, by_hash: dict[Hash, HeldMessage]) -> HeldMessage | Verdict:
    """The create that an update or delete is about, itself whatever it may be, or why there is none."""
    assert isinstance(held.content, Update | Delete)
    instance = held.content.instance
    name = quote_instance(instance)
    not_earlier = verdict(
        OutcomeCode.NOT_A_CREATE, f"The instance it names, {name}, is not created before it in the same log."
    )
    if isinstance(instance, int) and instance >= held.seq_num:
        return not_earlier
    named = find_named(instance, log, by_hash)
    if named is None:
        return verdict(OutcomeCode.CREATE_NOT_HELD, f"The entry of the instance it names, {name}, is not held.")
    if (named.author, named.log_id) != (log.author, log.log_id) or named.seq_num >= held.seq_num:
        return not_earlier
    if named.content is None:
        return verdict(
            OutcomeCode.CREATE_NOT_HELD,
            f"The payload of entry {named.seq_num}, which should create the instance {name}, is not held.",
        )
    if not isinstance(named.content, Create):
        return verdict(OutcomeCode.NOT_A_CREATE, f"Entry {named.seq_num}, which it names, is not a create.")
    own, of_create = schema_named_by(held), named.content.schema.schema_id
    if own is not None and own != of_create:
        return verdict(
            OutcomeCode.OTHER_SCHEMA,
            f"It names schema {quote_schema(own)}, but entry {named.seq_num} created the instance with schema"
            f" {quote_schema(of_create)}.",
        )
    return named


def judge_by_create(create: HeldMessage, of_create: Verdict | None) -> Verdict | None:
    """What an update or delete shares with its create, unless that is applied (None)."""
    if of_create is None:
        return None
    code = {
        Outcome.QUARANTINED: OutcomeCode.CREATE_QUARANTINED,
        Outcome.PENDING: OutcomeCode.CREATE_PENDING,
        Outcome.OBSOLETE: OutcomeCode.CREATE_OBSOLETE,
    }[of_create.outcome]
    return verdict(code, f"The create, entry {create.seq_num}, is {of_create.outcome.value}: {of_create.reason}")

"""Whether a message that a client signed may join a log here: what would have no effect is not taken.

docs/protocol.md sections 4 to 7. A writer keeps one log for a schema and one schema in a log, changes only instances of
its own, and publishes nothing that the newest version of the schema refuses.
"""

from inkgrove.core.hashing import Hash
from inkgrove.messages.identity import IdentityDocument, KeyOf
from inkgrove.messages.ids import SchemaId, SchemaVersion
from inkgrove.messages.instance import Create, Delete, Update
from inkgrove.messages.message import Message
from inkgrove.messages.outcomes import OutcomeCode
from inkgrove.messages.schema import SchemaMessage, SchemaMeta, SchemaMigration, SchemaRevert
from inkgrove.messages.value_readers import Unset
from inkgrove.node.appending import Appender, LogEnd
from inkgrove.node.caller import Action, Caller
from inkgrove.node.errors import AuthError, PublishError
from inkgrove.node.identity_log import IDENTITY_LOG, check_document
from inkgrove.schema.migrate import Migration
from inkgrove.schema.schema import append_version
from inkgrove.store.node import find_identity


def judge(appender: Appender, caller: Caller, end: LogEnd, message: Message, entry: Hash) -> None:
    """Raise unless the message, which this entry holds, may be the next of this log."""
    if isinstance(message, IdentityDocument | KeyOf):
        _judge_identity_message(appender, caller, end, message)
    elif end.log_id == IDENTITY_LOG:
        raise PublishError(
            "publish.wrong-log", "log 0 holds identity messages only: schemas and instances use other logs"
        )
    elif isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
        _judge_schema_message(appender, caller, end, message)
    elif isinstance(message, Create):
        _judge_create(appender, caller, end, message)
        caller.used("create", message.schema.schema_id, entry)
    else:
        _judge_change(appender, caller, end, message)


# Identities


def _judge_identity_message(appender: Appender, caller: Caller, end: LogEnd, message: IdentityDocument | KeyOf) -> None:
    identity = caller.require_identity()
    if end.log_id != IDENTITY_LOG:
        raise PublishError("publish.wrong-log", "identity messages live in log 0")
    if isinstance(message, KeyOf):
        if message.identity != identity:
            raise PublishError(
                "publish.foreign-author", "the key says that it belongs to another identity", author=end.author
            )
        if end.height:
            raise PublishError(
                "publish.wrong-log", "key-of is the first entry of a further key's log 0, and the only one that counts"
            )
        return
    if not appender.require_key(end.author, identity).is_first:
        raise PublishError("publish.wrong-log", "the identity document is in log 0 of the first key")
    hosted = find_identity(appender.connection, identity)
    if hosted is None or message.fqdn != hosted.fqdn:
        raise AuthError(
            "auth.not-allowed", "this node serves the identity under another name: change that with PATCH /me"
        )
    check_document(appender.connection, end.author, message, appender.node.settings.endpoint)


# Schemas


def _judge_schema_message(appender: Appender, caller: Caller, end: LogEnd, message: SchemaMessage) -> None:
    caller.require_identity()
    if end.height and not end.is_schema_log:
        raise PublishError("publish.wrong-log", "this log holds instances: a schema has a log of its own")
    append_version(appender.schema(SchemaId(end.author, end.log_id)), message)


# Instances


def _check_log(appender: Appender, end: LogEnd, schema: SchemaId) -> None:
    """One log for a schema, one schema in a log."""
    if end.is_schema_log:
        raise PublishError("publish.wrong-log", "this log defines a schema: instances have a log of their own")
    own = appender.log_of_schema(end.author, schema)
    if end.schemas and schema not in end.schemas:
        right = own or appender.new_log(end.author)
        raise PublishError(
            "publish.mixed-schemas", "this log holds instances of another schema", next=appender.next_place(right)
        )
    if own is not None and own is not end:
        text = f"the author writes this schema to log {own.log_id}"
        raise PublishError("publish.second-log", text, next=appender.next_place(own))


def _migration(appender: Appender, version: SchemaVersion) -> Migration:
    migration = appender.require_schema(version.schema_id).migration(version.version)
    if isinstance(migration, OutcomeCode):
        raise _would_not_apply(migration)
    return migration


def _judge_create(appender: Appender, caller: Caller, end: LogEnd, message: Create) -> None:
    schema = message.schema.schema_id
    caller.require(schema, "create")
    _check_log(appender, end, schema)
    _migration(appender, message.schema).read_create(message.fields)
    if appender.definition(schema).is_ended(message.schema.version):
        raise _would_not_apply(OutcomeCode.ENDED_BY_MIGRATION)


def _judge_change(appender: Appender, caller: Caller, end: LogEnd, message: Update | Delete) -> None:
    instance = appender.instance_named(end, message.instance)
    standing = appender.standing(instance) if instance is not None else None
    if instance is None or standing is None or (standing[0].author, standing[0].log_id) != (end.author, end.log_id):
        raise PublishError(
            "publish.foreign-instance",
            "the log holds no create of this instance: only its author changes it, in the same log",
        )
    create, lives = standing
    action: Action = "update" if isinstance(message, Update) else "delete"
    caller.require(create.schema, action)
    if message.schema is not None and message.schema.schema_id != create.schema:
        raise _would_not_apply(OutcomeCode.OTHER_SCHEMA)
    if not lives:
        raise _would_not_apply(OutcomeCode.AFTER_DELETE)
    if isinstance(message, Update):
        migration = _migration(appender, message.schema)
        written = {} if isinstance(message.fields, Unset) else migration.read_update(message.fields)
        if not written and message.access is None and isinstance(message.expires, Unset):
            raise _would_not_apply(OutcomeCode.NOTHING_LEFT)
    caller.used(action, create.schema, instance)


def _would_not_apply(code: OutcomeCode) -> PublishError:
    return PublishError("publish.would-not-apply", code.meaning, outcome=code.outcome.value, reason=code.code)

"""Publishes entries that a client signed: each is verified, checked and appended, or refused on its own.

docs/protocol.md sections 2 and 4 to 7. An author keeps one log for a schema and one schema in a log, changes only
instances of its own, and publishes nothing that the newest version of the schema refuses.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from inkgrove.core import AreSigned, Hash, IdentityId, NextEntry, PublicKey
from inkgrove.core.errors import BadPattern, InkgroveError, TooManyPatterns
from inkgrove.messages import (
    Create,
    Delete,
    IdentityDocument,
    KeyOf,
    Message,
    OutcomeCode,
    SchemaId,
    SchemaMessage,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    SchemaVersion,
    Unset,
    Update,
    decode_message,
)
from inkgrove.node.errors import AuthError, OutOfScope, PublishError, RequestError
from inkgrove.node.identity.caller import Action, Caller
from inkgrove.node.identity.identities import check_signer, take_controller
from inkgrove.node.identity.identity_log import IDENTITY_LOG, check_document, read_control
from inkgrove.node.publishing.json_values import make_refusal, require_migration
from inkgrove.node.publishing.transaction import Appender, LogEnd
from inkgrove.node.publishing.writer import Finish, Reply
from inkgrove.schema import Migration, append_version, check_patterns, patterns_of
from inkgrove.signature_process import are_signed
from inkgrove.store.logs import IngestItem, PreparedItem, RejectedItem, keep_held_hashes, prepare_items
from inkgrove.store.node import OwnKey, find_identity


def require_publishable(appender: Appender, caller: Caller, end: LogEnd, message: Message, entry: Hash) -> None:
    """Raise unless the message of an entry, given by its hash, may be the next of a log."""
    if isinstance(message, IdentityDocument | KeyOf):
        _check_identity_message(appender, caller, end, message)
    elif end.log_id == IDENTITY_LOG:
        raise PublishError(
            "publish.wrong-log", "log 0 holds identity messages only: schemas and instances use other logs"
        )
    elif isinstance(message, SchemaMeta | SchemaMigration | SchemaRevert):
        _check_schema_message(appender, caller, end, message)
    elif isinstance(message, Create):
        _check_create(appender, caller, end, message)
        caller.record_use("create", message.schema.schema_id, entry)
    else:
        _check_change(appender, caller, end, message)


# Identities


def _check_identity_message(appender: Appender, caller: Caller, end: LogEnd, message: IdentityDocument | KeyOf) -> None:
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
    appender.require_key(end.author, identity)
    hosted = find_identity(appender.connection, identity)
    if hosted is None or message.fqdn != hosted.fqdn:
        raise AuthError(
            "auth.not-allowed", "this node serves the identity under another name: change that with PATCH /me"
        )
    appender.flush()
    control = read_control(appender.connection, hosted.key)
    if end.author not in (control.first_key, control.controller):
        raise PublishError(
            "publish.wrong-log", "a document is in log 0 of the first key, or of the controller it names"
        )
    check_signer(control, end.author, message)
    check_document(appender.connection, hosted.key, message, appender.node.settings.endpoint)
    take_controller(appender.connection, appender.node, identity, message, None)


# Schemas


def _check_schema_message(appender: Appender, caller: Caller, end: LogEnd, message: SchemaMessage) -> None:
    caller.require_identity()
    if end.height and not end.is_schema_log:
        raise PublishError("publish.wrong-log", "this log holds instances: a schema has a log of its own")
    append_version(appender.schema(SchemaId(end.author, end.log_id)), message)


# Instances


def _check_log(appender: Appender, end: LogEnd, schema: SchemaId) -> None:
    """One log for a schema, one schema in a log."""
    if end.is_schema_log:
        raise PublishError("publish.wrong-log", "this log defines a schema: instances have a log of their own")
    own = appender.find_log_of_schema(end.author, schema)
    if end.schemas and schema not in end.schemas:
        right = own or appender.begin_log(end.author)
        raise PublishError(
            "publish.mixed-schemas", "this log holds instances of another schema", next=appender.find_next_entry(right)
        )
    if own is not None and own is not end:
        text = f"the author writes this schema to log {own.log_id}"
        raise PublishError("publish.second-log", text, next=appender.find_next_entry(own))


def _migration(appender: Appender, version: SchemaVersion) -> Migration:
    return require_migration(appender.require_schema(version.schema_id), version.version)


def _check_create(appender: Appender, caller: Caller, end: LogEnd, message: Create) -> None:
    schema = message.schema.schema_id
    caller.require(schema, "create")
    _check_log(appender, end, schema)
    _migration(appender, message.schema).read_create(message.fields)
    if appender.definition(schema).is_ended(message.schema.version):
        raise make_refusal(OutcomeCode.ENDED_BY_MIGRATION)
    # It may have ended meanwhile, by another device: then both are rows, and nobody loses what they wrote.
    if message.continues is not None and appender.find_endable(end.author, message.continues, schema) is None:
        raise PublishError(
            "publish.foreign-instance",
            "an instance continues one of the same schema that a key of the same identity has created",
        )


def _check_change(appender: Appender, caller: Caller, end: LogEnd, message: Update | Delete) -> None:
    instance = appender.resolve_instance(end, message.instance)
    found = appender.find_create_state(instance) if instance is not None else None
    is_here = found is not None and (found[0].author, found[0].log_id) == (end.author, end.log_id)
    if instance is None or found is None or not (is_here or _is_end(appender, end, message, instance)):
        raise PublishError(
            "publish.foreign-instance",
            "the log holds no create of this instance: only its author changes it, in the same log; other keys of the"
            " identity delete it, naming its schema, or continue it",
        )
    create, is_living = found
    if not is_here:
        _check_log(appender, end, create.schema)
    action: Action = "update" if isinstance(message, Update) else "delete"
    caller.require(create.schema, action)
    if message.schema is not None and message.schema.schema_id != create.schema:
        raise make_refusal(OutcomeCode.OTHER_SCHEMA)
    if not is_living:
        raise make_refusal(OutcomeCode.AFTER_DELETE)
    if isinstance(message, Update):
        migration = _migration(appender, message.schema)
        written = {} if isinstance(message.fields, Unset) else migration.read_update(message.fields)
        if not written and message.access is None and isinstance(message.expires, Unset):
            raise make_refusal(OutcomeCode.NOTHING_LEFT)
    caller.record_use(action, create.schema, instance)


def _is_end(appender: Appender, end: LogEnd, message: Update | Delete, instance: Hash) -> bool:
    """Whether a message is a delete that may end an instance of another log."""
    if not isinstance(message, Delete) or message.schema is None:
        return False
    return appender.find_endable(end.author, instance, message.schema.schema_id) is not None


MAX_BATCH: Final = 1_000
MAX_CHANGES: Final = 1_024
"""How many fields all migrations of one request create, update and remove."""
WRITING: Final[tuple[Action, ...]] = ("create", "update", "delete")


@dataclass(frozen=True, slots=True)
class CheckedEntries:
    """Entries with payloads whose bytes, signatures and hashes have been checked."""

    prepared: Sequence[PreparedItem]
    rejected: Sequence[RejectedItem]


def check_entries(items: Collection[IngestItem], are_signed: AreSigned = are_signed) -> CheckedEntries:
    """Check entries without a transaction: bytes, signatures, hashes and payloads."""
    return CheckedEntries(*prepare_items(items, are_signed))


def _migrations(checked: CheckedEntries) -> list[SchemaMigration]:
    messages = (item.content.message for item in checked.prepared if item.content is not None)
    return [message for message in messages if isinstance(message, SchemaMigration)]


def require_few_changes(checked: CheckedEntries) -> None:
    """Raise `request.invalid` if several migrations together change too many fields for one transaction."""
    migrations = _migrations(checked)
    if len(migrations) > 1 and sum(len(message.changes) for message in migrations) > MAX_CHANGES:
        raise RequestError(
            "request.invalid",
            f"the migrations of one request change at most {MAX_CHANGES:,} fields: send them in parts",
        )


def patterns_in(checked: CheckedEntries) -> list[str]:
    """Return the patterns of all migrations among the entries."""
    return [pattern for message in _migrations(checked) for pattern in patterns_of(message)]


def compile_patterns(checked: CheckedEntries) -> None:
    """Compile the patterns of all migrations, so that the writer finds them in the cache.

    Raises `request.invalid` if several migrations have more patterns together than a version may have. Any other fault
    of a pattern is left to the receipt of its entry.
    """
    migrations = len(_migrations(checked))
    try:
        check_patterns(patterns_in(checked))
    except TooManyPatterns as error:
        if migrations > 1:
            raise RequestError(
                "request.invalid",
                f"the migrations of one request have together no more patterns than a version may have: send them in"
                f" parts ({error.message})",
            ) from error
    except BadPattern:
        return


@dataclass(slots=True)
class PublishReceipt:
    """Whether one entry was stored, known before or refused."""

    hash: Hash | None
    status: str = "stored"
    error: InkgroveError | None = None


@dataclass(frozen=True, slots=True)
class PublishEntries:
    """Entries that a client signed, each taken or refused on its own."""

    checked: CheckedEntries

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.checked.prepared)

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check every entry in the order of its log; the answer has `receipts`, in the order given."""
        receipts = {item.number: PublishReceipt(item.hash, "refused", item.error) for item in self.checked.rejected}
        prepared = sorted(self.checked.prepared, key=_order)
        known = keep_held_hashes(appender.connection, [item.signed.hash for item in prepared])
        appender.load_instances(_instances_named(prepared))
        for item in prepared:
            receipt = receipts[item.number] = PublishReceipt(item.signed.hash)
            try:
                if item.signed.hash in known:
                    _require_own(appender, caller, item)
                    receipt.status = "known"
                else:
                    _append(appender, caller, item)
                    known.add(item.signed.hash)
            except InkgroveError as error:
                # Without its frames, which hold all entries: they would stay in memory until garbage is collected.
                receipt.status, receipt.error = "refused", error.with_traceback(None)
        ordered = [receipts[number] for number in sorted(receipts)]
        return lambda: Reply(200, {"receipts": ordered})


def _order(item: PreparedItem) -> tuple[bytes, int, int]:
    entry = item.signed.entry
    return entry.author, entry.log_id, entry.seq_num


def _instances_named(prepared: Sequence[PreparedItem]) -> set[Hash]:
    own = {item.signed.hash for item in prepared}
    named = (item.content.instance for item in prepared if item.content is not None)
    return {instance for instance in named if isinstance(instance, Hash) and instance not in own}


def _require_own(appender: Appender, caller: Caller, item: PreparedItem) -> None:
    identity = caller.identity
    assert identity is not None
    appender.require_key(item.signed.entry.author, identity)


def _append(appender: Appender, caller: Caller, item: PreparedItem) -> None:
    entry = item.signed.entry
    assert caller.identity is not None
    message = item.content.message if item.content is not None else None
    if isinstance(message, KeyOf) and entry.log_id == IDENTITY_LOG and entry.author not in appender.keys:
        # The document lists the key, and the key names the identity: now it is one of its own.
        appender.require_listed(entry.author, caller.identity)
    else:
        appender.require_key(entry.author, caller.identity)
    if item.payload_error is not None:
        raise item.payload_error
    if item.payload is None:
        raise PublishError("publish.payload-needed", "an entry is published with its payload")
    if message is None:
        message = decode_message(item.payload)  # raises: it is malformed
    end = appender.find_log_end(entry.author, entry.log_id)
    appender.require_next(end, entry)
    require_publishable(appender, caller, end, message, item.signed.hash)
    appender.append_signed(caller, end, item, message)
    if isinstance(message, KeyOf):
        appender.keys[entry.author] = OwnKey(entry.author, caller.identity, None, False)


# Where to sign


@dataclass(frozen=True, slots=True)
class FindNext:
    """Asks what the next entry must carry: of the log of a schema's instances, of one log, or of a new log."""

    author: PublicKey | None = None
    schema: str | None = None
    log_id: int | None = None
    entries: ClassVar[int] = 0

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Find the log; the answer is `render_next_entry`."""
        schema = appender.resolve_schema(self.schema) if self.schema is not None else None
        identity = caller.require_identity() if schema is None else _require_writer(caller, schema)
        own = [key for key in appender.keys.values() if key.identity == identity]
        author = self.author or next(key.author for key in own if key.is_first)
        appender.require_key(author, identity)
        if schema is not None:
            appender.require_schema(schema)
            end = appender.find_log_of_schema(author, schema) or appender.begin_log(author)
        else:
            end = appender.find_log_end(author, self.log_id) if self.log_id is not None else appender.begin_log(author)
        body = render_next_entry(appender.find_next_entry(end))
        return lambda: Reply(200, body)


def _require_writer(caller: Caller, schema: SchemaId) -> IdentityId:
    """Return the identity if it may create, update or delete instances of a schema; raises `OutOfScope`."""
    for action in WRITING[:-1]:
        with suppress(OutOfScope):
            return caller.require(schema, action)
    return caller.require(schema, WRITING[-1])


def render_next_entry(following: NextEntry) -> dict[str, Any]:
    """Return the arguments for signing as JSON."""
    return {
        "author": following.author.hex(),
        "log_id": following.log_id,
        "seq_num": following.seq_num,
        "lipmaa_link": following.lipmaa_link.hex() if following.lipmaa_link is not None else None,
        "backlink": following.backlink.hex() if following.backlink is not None else None,
        "hash": following.flavour.name.lower(),
    }

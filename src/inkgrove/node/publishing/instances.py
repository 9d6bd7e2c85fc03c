"""Publishes instances by content: the node validates, signs and appends for an identity whose key it keeps.

docs/protocol.md sections 3, 5 and 8. Each class is one request; the writer runs its `plan`, which returns how the
answer is made. A copy is seen by no more people than its source, unless the caller consents (section 8.3).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.messages import (
    UNSET,
    Access,
    Create,
    Delete,
    InstanceMessage,
    SchemaId,
    SchemaVersion,
    Timestamp,
    Unset,
    Update,
    encode_salted,
    value_to_json,
)
from inkgrove.node.errors import PublishError, ViewError
from inkgrove.node.identity.caller import Action, Caller
from inkgrove.node.identity.identity_log import find_owner
from inkgrove.node.publishing.delivery_queue import may_pass_on, may_receive, mode_of, queue_passed_on, was_addressed
from inkgrove.node.publishing.held_instance import HeldInstance, find_held_instance
from inkgrove.node.publishing.instance_states import InstanceState
from inkgrove.node.publishing.json_values import (
    address_access,
    check_following,
    check_shareable,
    find_recipients,
    is_same,
    is_wider,
    parse_access,
    parse_expires,
    read_field_values,
    render_access,
)
from inkgrove.node.publishing.local_delivery import check_pending_recipients
from inkgrove.node.publishing.transaction import Appender, LogEnd
from inkgrove.node.publishing.writer import Finish, Reply
from inkgrove.schema import FoldedRow
from inkgrove.store.db import Connection
from inkgrove.store.federation import keep_queued_elsewhere, pending_of
from inkgrove.store.node import is_follower, shares_of, was_sent
from inkgrove.store.rot import lock_instance
from inkgrove.store.views import Reader, VisibleRow, find_visible_row, follow_lines

Source = Literal["show"] | None
"""`show`: the caller lets others see the copy than those who may see the source."""


def access_of_copy(
    appender: Appender,
    caller: Caller,
    source: Hash,
    access: Access | None,
    recipients: Sequence[IdentityId],
    consent: Source,
    *,
    pending_names: Collection[str],
    is_read: bool,
) -> Access | None:
    """Return the access of a copy: the one asked for, else that of its source if that is `closed`.

    Raises `publish.shows-source` if people would see somebody else's content whom its owner did not show it to, unless
    `consent` is `show`; of recipients that are not found yet (`pending_names`) nobody knows that they may. With
    `is_read` the node itself copies what a view shows of the source, which may be outdated: it raises
    `view.unknown-instance` unless the caller may see the source by its newest access. Without it, a source that the
    caller cannot see here is only named.
    """
    appender.flush()
    held = find_held_instance(appender.connection, source)
    if is_read and (held is None or held.is_deleted or not _sees(appender, caller, held)):
        raise ViewError("view.unknown-instance", f"no instance {source.hex()} is here, or it may not be seen")
    if held is None or not _sees(appender, caller, held):
        return access
    if access is None and mode_of(held.access) == "closed":
        access = Access("closed", tuple(recipients))
    if consent is None:
        _require_shown(appender, caller, held, access, recipients, pending_names)
    return access


def check_copy(
    appender: Appender,
    caller: Caller,
    row: FoldedRow,
    access: Access | None,
    recipients: Sequence[IdentityId],
    consent: Source,
    *,
    pending_names: Collection[str] = (),
) -> None:
    """Check an instance of one's own that is given this access, or sent to these recipients, as a new copy is checked.

    Raises `publish.shows-source` unless it is no copy, `consent` is `show`, or the caller cannot see its source here.
    """
    if row.copied_from is None or consent is not None:
        return
    appender.flush()
    held = find_held_instance(appender.connection, row.copied_from)
    if held is not None and _sees(appender, caller, held):
        _require_shown(appender, caller, held, access, recipients, pending_names)


def _require_shown(
    appender: Appender,
    caller: Caller,
    held: HeldInstance,
    access: Access | None,
    recipients: Sequence[IdentityId],
    pending_names: Collection[str],
) -> None:
    """Raise `publish.shows-source` if a copy would be seen by people to whom the owner did not show its source."""
    owner = find_owner(appender.connection, held.author)
    named = {*recipients, *(access.to if access is not None else ())} - {caller.identity, owner}
    if owner != caller.identity and _shows_more(appender, held, owner, mode_of(access), named, pending_names):
        raise PublishError(
            "publish.shows-source",
            "people would see it to whom the owner of the source did not show it: leave access out, name only those who"
            " may see the source, or repeat with source=show",
            instance=held.instance,
        )


def _sees(appender: Appender, caller: Caller, held: HeldInstance) -> bool:
    if caller.identity is None:
        return False
    owner = find_owner(appender.connection, held.author)
    return owner == caller.identity or _may_have(appender.connection, held, owner, caller.identity)


def _may_have(connection: Connection, held: HeldInstance, owner: IdentityId, identity: IdentityId) -> bool:
    """Whether somebody who is not the owner may see an instance by its newest access."""
    if mode_of(held.access) == "public":
        return True
    sent, follows = was_sent(connection, held.instance, identity), is_follower(connection, identity, owner)
    return may_receive(held.access, identity, was_sent=sent, is_follower=follows)


def _shows_more(
    appender: Appender,
    held: HeldInstance,
    owner: IdentityId,
    mode: str,
    named: Collection[IdentityId],
    pending_names: Collection[str],
) -> bool:
    """Whether a copy with this mode, sent to those named, is seen by others than its source of another owner."""
    before = held.access
    match mode_of(before):
        case "public":
            return False
        case _ if mode in ("relations", "public"):
            return True  # followers of the one who copies need not follow the owner
        case "closed":
            return mode == "listed" or bool(pending_names) or any(before is None or to not in before.to for to in named)
        case "relations":
            return bool(pending_names) or any(not is_follower(appender.connection, to, owner) for to in named)
        case _:
            return False


History = Literal["show"] | None


@dataclass(frozen=True, slots=True)
class CreateInstance:
    """A new instance of a schema, given as `AUTHOR/LOG` or by the name of a registered one."""

    schema: str
    fields: Mapping[str, Any]
    access: Any = None
    expires: str | None = None
    recipients: Sequence[Any] = ()
    copied_from: Hash | None = None
    source: Source = None
    pending_names: Collection[str] = ()
    """Names of further recipients that are not found yet."""
    entries: ClassVar[int] = 1

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check, sign and append it."""
        schema = appender.resolve_schema(self.schema)
        caller.require(schema, "create")
        recipients = find_recipients(appender.connection, list(self.recipients)) if self.recipients else []
        access = parse_access(appender.connection, self.access) if self.access is not None else None
        if self.copied_from is not None:
            access = access_of_copy(
                appender,
                caller,
                self.copied_from,
                access,
                recipients,
                self.source,
                pending_names=self.pending_names,
                is_read=False,
            )
        return _create(
            appender,
            caller,
            schema,
            fields=self.fields,
            access=access,
            expires=parse_expires(self.expires),
            recipients=recipients,
            copied_from=self.copied_from,
            pending_names=self.pending_names,
        )


@dataclass(frozen=True, slots=True)
class CopyInstance:
    """A copy, owned by who asks, of an instance that they can see."""

    instance: Hash
    access: Any = None
    expires: str | None = None
    recipients: Sequence[Any] = ()
    source: Source = None
    pending_names: Collection[str] = ()
    entries: ClassVar[int] = 1

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check, sign and append it."""
        source = _find_readable(appender, caller, self.instance)
        caller.require(source.schema, "create")
        recipients = find_recipients(appender.connection, list(self.recipients)) if self.recipients else []
        access = parse_access(appender.connection, self.access) if self.access is not None else None
        access = access_of_copy(
            appender,
            caller,
            self.instance,
            access,
            recipients,
            self.source,
            pending_names=self.pending_names,
            is_read=True,
        )
        names = {field.name for field in appender.require_schema(source.schema).fields}
        return _create(
            appender,
            caller,
            source.schema,
            fields={name: value_to_json(value) for name, value in source.fields.items() if name in names},
            access=access,
            expires=parse_expires(self.expires),
            recipients=recipients,
            copied_from=self.instance,
            pending_names=self.pending_names,
        )


def _create(
    appender: Appender,
    caller: Caller,
    schema: SchemaId,
    *,
    fields: Mapping[str, Any],
    access: Access | None,
    expires: Timestamp | None,
    recipients: Sequence[IdentityId],
    copied_from: Hash | None,
    pending_names: Collection[str],
) -> Finish:
    definition = appender.require_schema(schema)
    version = SchemaVersion(*schema, definition.version)
    identity = caller.require(schema, "create")
    access = address_access(access, recipients, lambda to: is_follower(appender.connection, to, identity))
    check_pending_recipients(
        appender.connection, identity, access, pending_names, access.to if access is not None else recipients
    )
    message = Create(version, read_field_values(definition, fields), access, expires, copied_from)
    author = appender.find_signing_key(identity).author
    end = appender.find_log_of_schema(author, schema) or appender.begin_log(author)
    instance = _sign(appender, caller, end, message)
    appender.share(instance, recipients, identity)
    appender.send_when_found(instance, identity, access, pending_names)
    caller.record_use("create", schema, instance)
    return _answer(201, instance, instance, end, **_missed(pending_names))


@dataclass(frozen=True, slots=True)
class ChangeInstance:
    """An update with the difference that a function makes to the document `{fields, access, expires}`."""

    instance: Hash
    change: Callable[[dict[str, Any]], Any]
    history: History = None
    source: Source = None
    entries: ClassVar[int] = 1

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check, sign and append it; nothing is appended if nothing changes."""
        own = _find_own(appender, caller, self.instance, "update")
        state, row = own.state, own.row
        definition = appender.definition(state.create.schema)
        names = [field.name for field in definition.fields]
        before: dict[str, Any] = {
            "fields": dict(zip(names, map(value_to_json, row.values), strict=True)),
            "access": render_access(row.access),
            "expires": value_to_json(row.expires),
        }
        after = self.change(before)
        if type(after) is not dict or not after.keys() <= before.keys() or type(after.get("fields", {})) is not dict:
            raise PublishError(
                "publish.bad-document", "an instance has fields (an object), access and expires, and nothing else"
            )
        end, is_same_key = _find_writing_end(appender, own)
        wanted = dict.fromkeys(names) | after.get("fields", {})
        changed = {
            name: value
            for name, value in wanted.items()
            if name not in before["fields"] or not is_same(value, before["fields"][name])
        }
        current = dict(zip(names, row.values, strict=True))
        fields = {
            name: value for name, value in read_field_values(definition, changed).items() if value != current[name]
        }
        access = self._new_access(
            appender, own, before["access"], after.get("access"), shows_history=is_same_key and self.history is None
        )
        if access is not None:
            check_copy(appender, caller, row, access, (), self.source)
        expires: Timestamp | Unset | None = parse_expires(after.get("expires"))
        if expires == row.expires:
            expires = UNSET
        caller.record_use("update", state.create.schema, row.instance)
        if not fields and access is None and isinstance(expires, Unset):
            return lambda: Reply(200, {"instance": row.instance.hex(), "changed": False})
        version = SchemaVersion(*state.create.schema, definition.version)
        if not is_same_key:
            values = read_field_values(
                definition, {name: value for name, value in wanted.items() if value is not None and name in names}
            )
            create = Create(
                version,
                values,
                access or row.access,
                row.expires if isinstance(expires, Unset) else expires,
                row.copied_from,
                continues=row.instance,
            )
            return _continue(appender, caller, own, end, create, is_narrower=access is not None)
        message = Update(version, row.instance, fields or UNSET, access, expires)
        entry = _sign(appender, caller, end, message)
        return _answer(200, row.instance, entry, end, changed=True)

    def _new_access(
        self, appender: Appender, own: "_OwnInstance", before: Any, after: Any, *, shows_history: bool
    ) -> Access | None:
        row = own.row
        if is_same(before, after):
            return None
        if after is None:
            raise PublishError("publish.bad-document", "a word on access cannot be taken back, only replaced")
        access = parse_access(appender.connection, after)
        if access == row.access:
            return None
        author = own.state.create.author
        if shows_history and is_wider(row.access, access, partial(_could_see, appender, author, row)):
            raise PublishError(
                "publish.shows-history",
                "more people would see every earlier state too: repeat with history=show, or POST /instances/{id}/copy"
                " and widen the copy",
                instance=row.instance,
            )
        return access


def _continue(
    appender: Appender, caller: Caller, own: "_OwnInstance", end: LogEnd, create: Create, *, is_narrower: bool
) -> Finish:
    """Sign a create in place of an instance that another key wrote, for those who have that one.

    If others have it elsewhere, they get a delete of it besides: it may have been passed on to people of whom this node
    knows nothing. So do they if the access is another one (`is_narrower`), and some may not have the new instance.
    """
    old, connection = own.row.instance, appender.connection
    appender.flush()
    recipients, waiting = shares_of(connection, old), pending_of(connection, old, own.identity)
    instance = _sign(appender, caller, end, create)
    if is_narrower or keep_queued_elsewhere(connection, [old]):
        _sign(appender, caller, end, Delete(old, create.schema))
    appender.share(instance, recipients, own.identity)
    names = [item.name for item in waiting if item.state == "waiting"]
    appender.send_when_found(instance, own.identity, create.access, names)
    return _answer(200, instance, instance, end, changed=True, continues=old.hex())


def _could_see(appender: Appender, author: PublicKey, row: FoldedRow, identity: IdentityId) -> bool:
    """Whether an identity, that of the author included, may see an instance by its present access."""
    appender.flush()  # it may just have been sent to them
    connection, owner = appender.connection, appender.keys[author].identity
    sent = was_addressed(connection, row.instance, identity)
    follows = is_follower(connection, identity, owner)
    return identity == owner or may_receive(row.access, identity, was_sent=sent, is_follower=follows)


@dataclass(frozen=True, slots=True)
class DeleteInstance:
    """The end of an instance."""

    instance: Hash
    entries: ClassVar[int] = 1

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Check, sign and append it."""
        own = _find_own(appender, caller, self.instance, "delete")
        end, _ = _find_writing_end(appender, own)
        schema, instance = own.state.create.schema, own.row.instance
        version = SchemaVersion(*schema, appender.definition(schema).version)
        entry = _sign(appender, caller, end, Delete(instance, version))
        caller.record_use("delete", schema, instance)
        return _answer(200, instance, entry, end)


@dataclass(frozen=True, slots=True)
class ShareInstance:
    """An instance of one's own, sent to more recipients."""

    instance: Hash
    recipients: Sequence[Any]
    pending_names: Collection[str] = ()
    source: Source = None
    entries: ClassVar[int] = 0

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Record whom it is sent to."""
        own = _find_own(appender, caller, self.instance, "update")
        row, owner, instance = own.row, own.identity, own.row.instance
        appender.require_home(owner)
        recipients = find_recipients(appender.connection, list(self.recipients))
        check_shareable(row.access, recipients, lambda to: is_follower(appender.connection, to, owner))
        check_pending_recipients(appender.connection, owner, row.access, self.pending_names, recipients)
        if mode_of(row.access) == "listed":  # any other mode has said before who sees it
            check_copy(appender, caller, row, row.access, recipients, self.source, pending_names=self.pending_names)
        appender.share(instance, recipients, owner)
        appender.send_when_found(instance, owner, row.access, self.pending_names)
        caller.record_use("share", own.state.create.schema, instance)
        return _shared(instance, recipients, self.pending_names)


@dataclass(frozen=True, slots=True)
class PassOnInstance:
    """An instance of somebody else, sent to more recipients by one who has it."""

    instance: Hash
    recipients: Sequence[Any]
    pending_names: Collection[str] = ()
    entries: ClassVar[int] = 0

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Record whom it is sent to, and queue it for other nodes."""
        appender.flush()
        connection, asking = appender.connection, caller.require_any_identity()
        lock_instance(connection, self.instance)  # else it could rot, or something of it come, before it is queued
        held = find_held_instance(connection, self.instance)
        if held is None or held.is_deleted or held.is_expired(appender.node.clock()):
            raise _unknown(self.instance)
        owner = find_owner(connection, held.author)
        if owner == asking:
            return ShareInstance(self.instance, self.recipients, self.pending_names).plan(appender, caller)
        if not _may_have(connection, held, owner, asking):
            raise _unknown(self.instance)
        # As for a copy, a service needs both: it reads the instance, and sends it for the identity.
        caller.require(held.schema, "read")
        identity = caller.require(held.schema, "create")
        appender.require_home(identity)
        if not may_pass_on(held.access):
            raise PublishError("publish.not-shareable", "the owner lets nobody pass this instance on")
        recipients = [to for to in find_recipients(connection, list(self.recipients)) if to != owner]
        check_following(held.access, recipients, lambda to: is_follower(connection, to, owner))
        check_pending_recipients(connection, identity, held.access, self.pending_names, recipients)
        appender.share_hosted(self.instance, recipients, identity)
        queue_passed_on(connection, held, identity, recipients, appender.node.clock())
        appender.send_when_found(self.instance, identity, held.access, self.pending_names)
        caller.record_use("pass-on", held.schema, self.instance)
        return _shared(self.instance, recipients, self.pending_names)


# Shared by the requests


def _sign(appender: Appender, caller: Caller, end: LogEnd, message: InstanceMessage) -> Hash:
    return appender.sign(caller, end, message, encode_salted(message, appender.node.random_bytes))


def _answer(status: int, instance: Hash, entry: Hash, end: LogEnd, **more: Any) -> Finish:
    body = {
        "instance": instance.hex(),
        "entry": entry.hex(),
        "author": end.author.hex(),
        "log_id": end.log_id,
        "seq_num": end.height,
        **more,
    }
    return lambda: Reply(status, body)


def _shared(instance: Hash, recipients: Sequence[IdentityId], pending_names: Collection[str]) -> Finish:
    body = {"instance": instance.hex(), "recipients": [to.hex() for to in recipients], **_missed(pending_names)}
    return lambda: Reply(200, body)


def _missed(pending_names: Collection[str]) -> dict[str, list[str]]:
    """Return what the answer says of recipients that are not found yet."""
    return {"not_found_yet": sorted(pending_names)} if pending_names else {}


def _unknown(instance: Hash) -> ViewError:
    return ViewError("view.unknown-instance", f"no instance {instance.hex()[:140]} is here, or it may not be seen")


def _find_seen(appender: Appender, caller: Caller, instance: Hash) -> tuple[InstanceState, FoldedRow | VisibleRow]:
    """Return an instance as the caller's identity sees it: its own as it is now, another's as the view shows it.

    Called before scopes are checked: only who may see an instance learns that a service lacks the right to it.
    """
    state = appender.instance(instance)
    if state is None:
        raise _unknown(instance)
    key = appender.keys.get(state.create.author)
    row: FoldedRow | VisibleRow | None
    if key is not None and key.identity == caller.identity:
        state = appender.last_of_line(state)
        row = state.fold.row if state.fold is not None else None
    else:
        row = _find_visible(appender, caller, state, instance)
    if row is None:
        raise _unknown(instance)
    return state, row


@dataclass(frozen=True, slots=True)
class _OwnInstance:
    """A living instance of the caller's identity: the last of the line of the one that was asked for."""

    state: InstanceState
    row: FoldedRow
    identity: IdentityId


def _find_writing_end(appender: Appender, own: _OwnInstance) -> tuple[LogEnd, bool]:
    """Return the end of the log in which an instance is changed or ended, and whether that is the one of its create.

    It is, if this node keeps the key that wrote it. Any other key of the identity has a log of its own for the schema.
    """
    create = own.state.create
    if appender.can_sign(create.author, own.identity):
        appender.require_key(create.author, own.identity)
        return appender.find_log_end(create.author, create.log_id), True
    author = appender.find_signing_key(own.identity).author
    return appender.find_log_of_schema(author, create.schema) or appender.begin_log(author), False


def _find_own(appender: Appender, caller: Caller, instance: Hash, action: Action) -> _OwnInstance:
    """Return a living instance of the caller's identity."""
    state, row = _find_seen(appender, caller, instance)
    identity = caller.require(state.create.schema, action)
    if isinstance(row, VisibleRow):
        raise PublishError(
            "publish.foreign-instance", "only the owner of an instance changes it: make a copy of your own instead"
        )
    return _OwnInstance(state, row, identity)


def _find_readable(appender: Appender, caller: Caller, instance: Hash) -> VisibleRow:
    """Return an instance that the caller may see and read."""
    state, row = _find_seen(appender, caller, instance)
    schema = state.create.schema
    caller.read_as(schema, instance)
    if isinstance(row, VisibleRow):
        return row
    names = [field.name for field in appender.definition(schema).fields]
    return VisibleRow(schema, dict(zip(names, row.values, strict=True)))


def _find_visible(appender: Appender, caller: Caller, state: InstanceState, instance: Hash) -> VisibleRow | None:
    view = appender.node.views.views().get(state.create.schema)
    if view is None:
        return None
    own = tuple(key.author for key in appender.keys.values() if key.identity == caller.identity)
    reader = Reader(caller.identity, own, appender.node.clock())

    def work(connection: Connection) -> VisibleRow | None:
        last = follow_lines(connection, view, [instance]).get(instance, instance)
        return find_visible_row(connection, view, last, reader)

    return appender.node.views.database.read(work)

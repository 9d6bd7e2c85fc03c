"""Instances as JSON: fields, access and expiry from what a request says, and back.

docs/protocol.md sections 4, 5 and 8. Timestamps are RFC 3339 text, ids hex, blobs `{hash, size, type}`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from inkgrove.core.errors import BadTimestamp
from inkgrove.core.keys import IdentityId
from inkgrove.core.limits import MAX_RECIPIENTS
from inkgrove.messages.instance import Access, AccessMode
from inkgrove.messages.outcomes import OutcomeCode
from inkgrove.messages.timestamp import Timestamp, parse_timestamp
from inkgrove.node.audience import mode_of
from inkgrove.node.errors import DeliveryError, PublishError, RequestError, UnknownIdentity
from inkgrove.schema.definition import ViewDefinition
from inkgrove.schema.migrate import Migration
from inkgrove.store.federation import RemoteIdentity, find_remote_identity
from inkgrove.store.node import HostedIdentity, find_identity, is_left

_MODES: Mapping[str, AccessMode] = {
    "self": "self",
    "closed": "closed",
    "listed": "listed",
    "relations": "relations",
    "public": "public",
}
_WIDTH = ("self", "closed", "listed", "relations", "public")


def to_json(value: Any) -> Any:
    """A value of a field as JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Timestamp):
        return str(value)
    if isinstance(value, Mapping):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(item) for item in value]
    return value


def newest_migration(definition: ViewDefinition) -> Migration:
    """How messages of the newest version are read; raises if it takes none."""
    migration = definition.migration(definition.version)
    if isinstance(migration, OutcomeCode):
        raise PublishError(
            "publish.would-not-apply", migration.meaning, outcome=migration.outcome.value, reason=migration.code
        )
    return migration


def read_fields(definition: ViewDefinition, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields in their kept form and in the order of the schema; raises an `InstanceError` as the pipeline would."""
    migration = newest_migration(definition)
    written = migration.read_update(fields)
    return {name: written[column] for column, name in enumerate(migration.columns) if column in written}


def parse_expires(text: str | None) -> Timestamp | None:
    """When an instance ends."""
    try:
        return None if text is None else parse_timestamp(text)
    except BadTimestamp as err:
        raise BadTimestamp(f"'expires': {err.message}", key="expires") from err


# Access


def render_access(access: Access | None) -> dict[str, Any] | None:
    """The word on who may see an instance, as JSON."""
    if access is None:
        return None
    if access.mode == "closed" or access.to:
        return {"mode": access.mode, "to": [to.hex() for to in access.to]}
    return {"mode": access.mode}


def parse_access(connection: Connection, value: Any) -> Access:
    """The word on who may see an instance; `to` may hold names."""
    if type(value) is not dict or not value.keys() <= {"mode", "to"}:
        raise PublishError("publish.bad-document", "access is an object with mode and, if need be, to")
    mode = _MODES.get(value["mode"]) if type(value.get("mode")) is str else None
    if mode is None:
        raise PublishError("publish.bad-document", "the mode of access is self, closed, listed, relations or public")
    if "to" in value and mode not in ("closed", "listed"):
        raise PublishError("publish.bad-document", f"access with the mode {mode} takes no `to`")
    return Access(mode, tuple(find_recipients(connection, value.get("to", []))))


def find_recipients(connection: Connection, names: Any) -> list[IdentityId]:
    """Identities by id, or by a name that is hosted here or was found elsewhere; each once, in the order given."""
    if type(names) is not list or len(names) > MAX_RECIPIENTS:
        raise PublishError("publish.bad-document", f"recipients are a list of at most {MAX_RECIPIENTS} identities")
    return list(dict.fromkeys(_find_recipient(connection, name) for name in names))


def _find_recipient(connection: Connection, name: Any) -> IdentityId:
    if type(name) is not str:
        raise RequestError("request.invalid", "a recipient is an id or a name such as jane.haiku.ink")
    if len(name) == 64:
        try:
            return IdentityId.fromhex(name)
        except ValueError:
            pass
    name = name.lower()
    found: HostedIdentity | RemoteIdentity | None = find_identity(connection, name)
    if found is None or is_left(connection, name):  # a name that leads elsewhere by now is not its former holder's
        found = find_remote_identity(connection, name) if name.isprintable() else None
    if found is None:
        raise UnknownIdentity(f"no identity {name[:80]!r} is known here", identity=name[:253])
    return found.id


def addressed(
    access: Access | None, recipients: Sequence[IdentityId], is_follower: Callable[[IdentityId], bool]
) -> Access | None:
    """The access of a new instance that is sent to some: a closed one that names nobody is for them."""
    if access is not None and access.mode == "closed" and not access.to:
        access = Access("closed", tuple(recipients))
    check_shareable(access, recipients, is_follower)
    return access


def check_following(
    access: Access | None, recipients: Sequence[IdentityId], is_follower: Callable[[IdentityId], bool]
) -> None:
    """Raise if an instance is for those who follow its owner, and a recipient is not known here to do so."""
    if mode_of(access) == "relations" and (others := [to.hex() for to in recipients if not is_follower(to)]):
        text = "the instance is for those who follow its owner, and these identities do not, as far as is known here"
        raise DeliveryError("federation.not-following", text, recipients=others)


def check_shareable(
    access: Access | None, recipients: Sequence[IdentityId], is_follower: Callable[[IdentityId], bool]
) -> None:
    """Raise unless the recipients may see an instance with this access; `is_follower`: of its owner."""
    if access is None:
        return
    check_following(access, recipients, is_follower)
    if access.mode == "self" and recipients:
        raise PublishError(
            "publish.not-shareable", "the instance is for its owner alone; change its access first, or share a copy"
        )
    if access.mode == "closed" and (left_out := [to.hex() for to in recipients if to not in access.to]):
        raise PublishError("publish.not-shareable", "the instance is closed to these identities", recipients=left_out)


def is_wider(before: Access | None, after: Access, could_see: Callable[[IdentityId], bool]) -> bool:
    """Whether an access lets somebody see an instance who could not before; `could_see` is asked of those it names."""
    old, new = mode_of(before), after.mode
    # Whoever sends a listed instance to more people means just that.
    if old == "public" or old == new == "listed":
        return False
    # `closed` is for those whom it names, and for nobody else.
    if new != "closed" and _WIDTH.index(new) > _WIDTH.index(old):
        return True
    return not all(could_see(identity) for identity in after.to)

"""Who asks: nobody known, an identity, or a service on behalf of one (docs/protocol.md section 7).

A scope is `schema:<author>/<log>:<read|create|update|delete>` or `relations:read`; names are resolved before
anything is granted, so a namesake inherits nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, parse_public_key
from inkgrove.messages.ids import SchemaId
from inkgrove.node.errors import AuthError, OutOfScope, RequestError, SignInRequired
from inkgrove.node.runtime.node import Node
from inkgrove.store.node.services import RecordedAccess, ServiceAccess, read_accesses

Action = Literal["read", "create", "update", "delete"]
ACTIONS: Final[dict[str, Action]] = {action: action for action in get_args(Action)}


class SchemaScope(NamedTuple):
    """What a service may do with instances of one schema."""

    schema: SchemaId
    action: Action

    def __str__(self) -> str:
        return f"schema:{self.schema}:{self.action}"


RELATIONS_READ: Final = "relations:read"
Scope = SchemaScope | str


def parse_scope(text: str) -> Scope:
    """A scope as it is granted and stored."""
    if text == RELATIONS_READ:
        return text
    kind, _, rest = text.partition(":")
    name, _, action = rest.rpartition(":")
    author, _, log_id = name.partition("/")
    if kind == "schema" and action in ACTIONS and log_id.isascii() and log_id.isdigit():
        try:
            return SchemaScope(SchemaId(parse_public_key(author), int(log_id)), ACTIONS[action])
        except InkgroveError:
            pass
    raise RequestError(
        "request.invalid", f"{text[:120]!r} is no scope: write schema:AUTHOR/LOG:ACTION or relations:read"
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; without an identity, anybody."""

    identity: IdentityId | None = None
    grant: int | None = None
    """The grant of the service that asks; None if the identity itself does."""
    client: str = ""
    scopes: frozenset[Scope] = frozenset()
    is_administrator: bool = False
    on_use: Callable[[str, SchemaId | None, Hash | None], None] | None = field(default=None, compare=False, repr=False)
    """Keeps a record of what a service does: see `used`."""

    def require_any_identity(self) -> IdentityId:
        """The identity that asks, itself or through a service, whatever that may do."""
        if self.identity is None:
            raise SignInRequired("sign in first: POST /sessions with name and password")
        return self.identity

    def require_identity(self) -> IdentityId:
        """The identity itself, without a service in between."""
        identity = self.require_any_identity()
        if self.grant is not None:
            raise AuthError("auth.not-allowed", "a service cannot do this, only the identity itself")
        return identity

    def require_administrator(self) -> IdentityId:
        """An administrator of this node."""
        identity = self.require_identity()
        if not self.is_administrator:
            raise AuthError("auth.not-allowed", "only the administrator of this node can do this")
        return identity

    def require(self, schema: SchemaId, action: Action) -> IdentityId:
        """The identity, which acts itself or granted this action to the service."""
        if self.identity is None:
            raise SignInRequired(f"this needs the scope {SchemaScope(schema, action)}")
        if self.grant is not None and SchemaScope(schema, action) not in self.scopes:
            raise OutOfScope(f"the service was not granted {SchemaScope(schema, action)}")
        return self.identity

    def may_read(self, schema: SchemaId) -> IdentityId | None:
        """On whose behalf rows of this schema may be read; None sees only what is public."""
        return None if self.identity is None else self.require(schema, "read")

    def read_as(self, schema: SchemaId, instance: Hash | None = None) -> IdentityId | None:
        """The same where they are read: many of them, or one instance."""
        identity = self.may_read(schema)
        self.record_use("read", schema, instance)
        return identity

    def record_use(self, action: str, schema: SchemaId | None, what: Hash | None = None) -> None:
        """What the caller did, with one instance or blob if it was one: the record of a service, if it is answered."""
        if self.on_use is not None:
            self.on_use(action, schema, what)


ANYBODY: Final = Caller()


# The record of what services did for an identity, which the identity always sees (docs/protocol.md section 7).


def record_access(node: Node, caller: Caller, action: str, schema: SchemaId | None, what: Hash | None = None) -> None:
    """Note that a service used its grant; cheap, and nothing for an identity that acts itself."""
    if caller.grant is not None:
        name = str(schema) if schema is not None else None
        node.access_log.add(ServiceAccess(caller.grant, node.clock(), action, name, what))


def list_accesses(
    node: Node, identity: IdentityId, *, client: str | None = None, before: int | None = None, limit: int = 100
) -> list[RecordedAccess]:
    """What services did, newest first; `before` is the number of the last one seen."""
    node.access_log.flush()
    return node.database.read(
        lambda connection: read_accesses(connection, identity, client=client, before=before, limit=limit)
    )

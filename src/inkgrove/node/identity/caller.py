"""The caller: nobody known, an identity, or a service on behalf of one (docs/protocol.md section 7).

A scope is `schema:<author>/<log>:<read|create|update|delete>` or `relations:read`; names are resolved before
anything is granted, so a namesake inherits nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, get_args

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import SchemaId, parse_schema_id
from inkgrove.node.errors import AuthError, OutOfScope, RequestError, SignInRequired
from inkgrove.node.runtime.node import Node
from inkgrove.store.node import RecordedAccess, ServiceAccess, read_accesses

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
    """Parse a scope as it is granted and stored; raises `request.invalid`."""
    if text == RELATIONS_READ:
        return text
    kind, _, rest = text.partition(":")
    name, _, action = rest.rpartition(":")
    schema = parse_schema_id(name)
    if kind == "schema" and action in ACTIONS and schema is not None:
        return SchemaScope(schema, ACTIONS[action])
    raise RequestError(
        "request.invalid", f"{text[:120]!r} is no scope: write schema:AUTHOR/LOG:ACTION or relations:read"
    )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request; without an identity, anybody."""

    identity: IdentityId | None = None
    grant: int | None = None
    """The grant of the service that asks; None if the identity itself does."""
    client: str = ""
    scopes: frozenset[Scope] = frozenset()
    is_administrator: bool = False
    on_use: Callable[[str, SchemaId | None, Hash | None], None] | None = field(default=None, compare=False, repr=False)
    """Records what a service does: see `record_use`."""

    @property
    def sees_all(self) -> bool:
        """Whether the caller is an administrator itself, who sees the messages of everybody."""
        return self.is_administrator and self.grant is None

    def require_any_identity(self) -> IdentityId:
        """Return the identity, whether it asks itself or through any service; raises `SignInRequired`."""
        if self.identity is None:
            raise SignInRequired("sign in first: POST /sessions with name and password")
        return self.identity

    def require_identity(self) -> IdentityId:
        """Return the identity that asks itself; raises `SignInRequired`, or `auth.not-allowed` for a service."""
        identity = self.require_any_identity()
        if self.grant is not None:
            raise AuthError("auth.not-allowed", "a service cannot do this, only the identity itself")
        return identity

    def require_administrator(self) -> IdentityId:
        """Return the identity if it is an administrator that asks itself; raises `auth.not-allowed`."""
        identity = self.require_identity()
        if not self.is_administrator:
            raise AuthError("auth.not-allowed", "only the administrator of this node can do this")
        return identity

    def require(self, schema: SchemaId, action: Action) -> IdentityId:
        """Return the identity, which asks itself or granted this action to the service; raises `OutOfScope`."""
        if self.identity is None:
            raise SignInRequired(f"this needs the scope {SchemaScope(schema, action)}")
        if self.grant is not None and SchemaScope(schema, action) not in self.scopes:
            raise OutOfScope(f"the service was not granted {SchemaScope(schema, action)}")
        return self.identity

    def may_read(self, schema: SchemaId) -> IdentityId | None:
        """Return on whose behalf rows of a schema may be read; None: only public ones. Raises `OutOfScope`."""
        return None if self.identity is None else self.require(schema, "read")

    def read_as(self, schema: SchemaId, instance: Hash | None = None) -> IdentityId | None:
        """Return what `may_read` does, and record that rows, or one instance, are read."""
        identity = self.may_read(schema)
        self.record_use("read", schema, instance)
        return identity

    def record_use(self, action: str, schema: SchemaId | None, what: Hash | None = None) -> None:
        """Record what a service did, with an instance or blob if there is one; counts once the request is answered."""
        if self.on_use is not None:
            self.on_use(action, schema, what)


ANYBODY: Final = Caller()


# The access log of services, which the identity can always read


def record_access(node: Node, caller: Caller, action: str, schema: SchemaId | None, what: Hash | None = None) -> None:
    """Add an access of a service to the access log, in memory; does nothing for an identity that asks itself."""
    if caller.grant is not None:
        name = str(schema) if schema is not None else None
        node.access_log.add(ServiceAccess(caller.grant, node.clock(), action, name, what))


def list_accesses(
    node: Node, identity: IdentityId, *, client: str | None = None, before: int | None = None, limit: int = 100
) -> list[RecordedAccess]:
    """Return what services did, newest first, before the number `before`."""
    node.access_log.flush()
    return node.database.read(
        lambda connection: read_accesses(connection, identity, client=client, before=before, limit=limit)
    )

"""Scopes as a service asks for them: by author and log, or by a name that is resolved once, before anything is granted.

docs/protocol.md section 7. What is granted is author and log, so a namesake that comes later inherits nothing.
"""

from dataclasses import dataclass, field
from typing import Final

from inkgrove.messages import SchemaId, SchemaMeta, parse_schema_id
from inkgrove.node.errors import AmbiguousName, OAuthInvalidScope, UnknownView
from inkgrove.node.identity.caller import ACTIONS, RELATIONS_READ, Action, SchemaScope, Scope
from inkgrove.node.reading.schemas import resolve_view
from inkgrove.node.runtime.node import Node

MAX_SCOPES: Final = 50


def resolve_scopes(node: Node, text: str) -> tuple[Scope, ...]:
    """The scopes of a request, each once, in a fixed order; raises for one that is unknown or ambiguous."""
    asked = text.split()
    if not asked:
        raise OAuthInvalidScope("say what the service wants to do: schema:NAME:ACTION or relations:read")
    if len(asked) > MAX_SCOPES:
        raise OAuthInvalidScope(f"at most {MAX_SCOPES} scopes can be asked for at once")
    return tuple(sorted({_resolve(node, scope) for scope in asked}, key=str))


def render_scopes(scopes: tuple[Scope, ...]) -> str:
    """Scopes as they are granted and stored."""
    return " ".join(map(str, scopes))


def _resolve(node: Node, text: str) -> Scope:
    if text == RELATIONS_READ:
        return text
    kind, _, rest = text.partition(":")
    name, _, action = rest.rpartition(":")
    if kind != "schema" or action not in ACTIONS or not name:
        raise OAuthInvalidScope(f"{text[:120]!r} is no scope: write schema:NAME:ACTION or relations:read")
    return SchemaScope(_find_schema(node, name), ACTIONS[action])


def _find_schema(node: Node, name: str) -> SchemaId:
    if "/" in name:
        schema_id = parse_schema_id(name)
        if schema_id is None:
            raise OAuthInvalidScope(f"{name[:120]!r} is not AUTHOR/LOG")
        return schema_id
    if "." in name:
        return find_schema_by_fqdn(node, name)
    try:
        return resolve_view(node, name).schema_id
    except AmbiguousName as err:
        raise OAuthInvalidScope(f"{err.message}: ask by author and log", **err.data) from err
    except UnknownView as err:
        raise OAuthInvalidScope(f"no schema is called {name[:63]!r} here") from err


def find_schema_by_fqdn(node: Node, fqdn: str) -> SchemaId:
    """The schema that an FQDN names: this node answers for the name, and the schema names it too."""
    for item in node.settings.schema_names:
        name, _, text = item.partition("=")
        schema_id = parse_schema_id(text)
        if name == fqdn.lower() and schema_id is not None:
            meta = find_schema_meta(node, schema_id)
            if meta is not None and meta.fqdn == name:
                return schema_id
    raise OAuthInvalidScope(f"no schema is named {fqdn[:120]!r} by both this node and itself")


def find_schema_meta(node: Node, schema_id: SchemaId) -> SchemaMeta | None:
    """What a schema says about itself, as far as it is held."""
    return node.schemas.read(schema_id).meta


# For the question to the identity


@dataclass(frozen=True, slots=True)
class ScopeRequest:
    """What a service wants to do with one schema."""

    schema: SchemaId
    meta: SchemaMeta | None
    actions: list[Action] = field(default_factory=list)


def group_scopes(node: Node, scopes: tuple[Scope, ...]) -> list[ScopeRequest]:
    """The schemas that scopes speak of, each with its actions."""
    found: dict[SchemaId, ScopeRequest] = {}
    for scope in scopes:
        if isinstance(scope, SchemaScope):
            request = found.setdefault(scope.schema, ScopeRequest(scope.schema, find_schema_meta(node, scope.schema)))
            request.actions.append(scope.action)
    for request in found.values():
        request.actions.sort(key=list(ACTIONS).index)
    return list(found.values())

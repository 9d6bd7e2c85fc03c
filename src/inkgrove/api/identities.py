"""Routes of identities and sign-ins."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from pydantic import BaseModel, Field, model_validator

from inkgrove.api.auth import AddressDependency, CallerDependency, HostDependency, NodeDependency, TokenDependency
from inkgrove.api.models import Fqdn, Password, SignedEntry, Strict
from inkgrove.api.problems import responses
from inkgrove.core.errors import BadKey, StaleEntry
from inkgrove.core.keys import parse_public_key
from inkgrove.federation.serving import well_known_of
from inkgrove.federation.well_known import FORMAT, PATH, render_well_known
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.reading import UNSET
from inkgrove.messages.timestamp import Timestamp
from inkgrove.node import errors, identities, sessions
from inkgrove.node.scopes import find_schema_by_fqdn

router = APIRouter(tags=["identities"])

Name = Annotated[str, Field(max_length=255, examples=["Jane"])]
Profile = Annotated[dict[str, Annotated[str, Field(max_length=10_000)]], Field(max_length=100)]


class NewIdentity(Strict):
    """An identity to be hosted; with `signed`, entry 1 of log 0, the key stays with the client."""

    fqdn: Fqdn
    password: Password
    name: Name | None = None
    profile: Profile = Field(default_factory=dict)
    signed: SignedEntry | None = None

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> "NewIdentity":
        if self.signed is not None and (self.name is not None or self.profile):
            raise ValueError("name and profile stand in the signed document")
        return self


class ChangedIdentity(Strict):
    """What is to change; null removes name or profile. With `signed`, the next entry of log 0, the client says all."""

    fqdn: Fqdn | None = None
    name: Name | None = None
    profile: Profile | None = None
    signed: SignedEntry | None = None

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> "ChangedIdentity":
        if self.signed is not None and self.model_fields_set != {"signed"}:
            raise ValueError("everything stands in the signed document")
        if "fqdn" in self.model_fields_set and self.fqdn is None:
            raise ValueError("an identity has a name on its node: give another one, or leave `fqdn` out")
        return self


class SignIn(Strict):
    """Name and password."""

    fqdn: Fqdn
    password: Password


class NewPassword(Strict):
    """The password so far, and the new one."""

    old: Password
    new: Password


class KeyAnswer(BaseModel):
    """A further key of an identity."""

    key: str
    revoked: list[tuple[int, int]] | None = None


class IdentityAnswer(BaseModel):
    """An identity and what its document says."""

    id: str
    fqdn: str
    endpoint: str
    name: str | None
    profile: dict[str, str]
    key: str
    keys: list[KeyAnswer]
    revision: int


class MeAnswer(IdentityAnswer):
    """The identity that asks, and for a service what it may do."""

    scopes: list[str] | None


class Session(BaseModel):
    """A sign-in."""

    token: str
    expires: str


class SchemaName(BaseModel):
    """The schema that an FQDN stands for."""

    author: str
    log_id: int


class NodeAnswer(BaseModel):
    """Where an identity's node is reached, its own key, and that key's word that it serves the identity there."""

    endpoint: str
    key: str
    proof: str


class OfferedEntry(BaseModel):
    """An entry of log 0, in base64."""

    entry: str
    payload: str | None = None


class Discovery(BaseModel):
    """Who is behind a name of this node: an identity with what proves it, a schema, or both."""

    inkgrove: int
    fqdn: str | None = None
    id: str | None = None
    node: NodeAnswer | None = None
    log: list[OfferedEntry] | None = None
    keys: list[OfferedEntry] | None = None
    schema_: Annotated[SchemaName | None, Field(alias="schema")] = None


def _render(identity: identities.Identity) -> dict[str, Any]:
    document = identity.document
    return {
        "id": identity.id.hex(),
        "fqdn": document.fqdn,
        "endpoint": document.endpoint,
        "name": document.name,
        "profile": dict(document.profile),
        "key": identity.key.hex(),
        "keys": [{"key": item.key.hex(), "revoked": item.revoked} for item in document.keys],
        "revision": identity.revision,
    }


_OWN = (errors.SignInRequired, errors.NotAllowed)


@router.post(
    "/identities",
    status_code=201,
    response_model=IdentityAnswer,
    responses=responses(*_OWN, errors.IdentityExists, errors.BadName, errors.WeakPassword, errors.BadDocument),
)
def create_identity(node: NodeDependency, caller: CallerDependency, body: NewIdentity) -> dict[str, Any]:
    """Host a new identity; the node keeps its key unless the client signs for itself."""
    if node.settings.registration != "open":
        caller.require_administrator()
    if body.signed is not None:
        return _render(identities.adopt_identity(node, body.fqdn, body.password, body.signed.read()))
    return _render(identities.create_identity(node, body.fqdn, body.password, name=body.name, profile=body.profile))


@router.get("/identities/{name}", response_model=IdentityAnswer, responses=responses(errors.UnknownIdentity))
def show_identity(node: NodeDependency, name: str) -> dict[str, Any]:
    """The document of a hosted identity, by name or id."""
    return _render(identities.show_identity(node, identities.parse_identity_name(name)))


@router.get("/me", response_model=MeAnswer, responses=responses(errors.SignInRequired))
def show_me(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """The identity that asks, or on whose behalf a service does."""
    if caller.identity is None:
        raise errors.SignInRequired("sign in first: POST /sessions with name and password")
    scopes = None if caller.grant is None else sorted(map(str, caller.scopes))
    return {**_render(identities.show_identity(node, caller.identity)), "scopes": scopes}


@router.patch(
    "/me",
    response_model=IdentityAnswer,
    responses=responses(*_OWN, errors.IdentityExists, StaleEntry, errors.BadDocument, errors.NoKeyHere),
)
def change_me(node: NodeDependency, caller: CallerDependency, body: ChangedIdentity) -> dict[str, Any]:
    """Publish a new document, if it says something new; a client that holds the key sends it signed."""
    identity = caller.require_identity()
    if body.signed is not None:
        return _render(identities.take_document(node, identity, body.signed.read()))
    changed = identities.change_identity(
        node,
        identity,
        fqdn=UNSET if body.fqdn is None else body.fqdn,
        name=body.name if "name" in body.model_fields_set else UNSET,
        profile=(body.profile or {}) if "profile" in body.model_fields_set else UNSET,
    )
    return _render(changed)


@router.post(
    "/me/keys",
    status_code=201,
    response_model=IdentityAnswer,
    responses=responses(*_OWN, StaleEntry, errors.BadDocument, errors.NoKeyHere),
)
def add_key(node: NodeDependency, caller: CallerDependency, body: SignedEntry) -> dict[str, Any]:
    """Let a further key count: entry 1 of its log 0, `key-of`, which it signed itself."""
    return _render(identities.add_key(node, caller.require_identity(), body.read()))


@router.delete(
    "/me/keys/{key}", response_model=IdentityAnswer, responses=responses(*_OWN, errors.UnknownIdentity, BadKey)
)
def revoke_key(node: NodeDependency, caller: CallerDependency, key: str) -> dict[str, Any]:
    """Revoke a further key; what is held of its logs now still counts."""
    identity = caller.require_identity()
    return _render(identities.revoke_key(node, identity, parse_public_key(key)))


@router.post("/me/password", status_code=204, responses=responses(*_OWN, errors.WeakPassword, errors.TooManyAttempts))
def change_password(
    node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: NewPassword
) -> Response:
    """Set a new password; every sign-in ends."""
    identity = caller.require_identity()
    name = identities.show_identity(node, identity).document.fqdn
    sessions.check_password(node, name, body.old, address)
    sessions.change_password(node, identity, body.new)
    return Response(status_code=204)


@router.post(
    "/sessions",
    status_code=201,
    response_model=Session,
    responses=responses(errors.BadPassword, errors.TooManyAttempts),
)
def sign_in(node: NodeDependency, address: AddressDependency, body: Annotated[SignIn, Body()]) -> dict[str, Any]:
    """Sign in with a password; the token is that of the identity itself."""
    token, expires = sessions.sign_in(node, body.fqdn, body.password, address)
    return {"token": token, "expires": str(Timestamp(expires))}


@router.delete("/sessions/current", status_code=204, responses=responses(*_OWN))
def sign_out(node: NodeDependency, caller: CallerDependency, token: TokenDependency) -> Response:
    """End this sign-in."""
    caller.require_identity()
    if token is not None:
        sessions.sign_out(node, token)
    return Response(status_code=204)


@router.get(
    PATH,
    response_model=Discovery,
    response_model_exclude_none=True,
    responses=responses(errors.UnknownIdentity),
)
def discover(node: NodeDependency, host: HostDependency) -> dict[str, Any]:
    """Who is behind the name that the request was sent to: an identity with what proves it, a schema, or both."""
    try:
        schema: SchemaId | None = find_schema_by_fqdn(node, host)
    except errors.OAuthInvalidScope:
        schema = None
    named = {"schema": {"author": schema.author.hex(), "log_id": schema.log_id}} if schema is not None else {}
    try:
        return {**render_well_known(well_known_of(node, host)), **named}
    except errors.UnknownIdentity:
        if not named:
            raise
    return {"inkgrove": FORMAT, **named}

"""Routes of services: registration, tokens, metadata (RFC 8414), and what identities see of services."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from inkgrove.api.http.auth import AddressDependency, CallerDependency, NodeDependency, get_host
from inkgrove.api.http.formats import FormDependency, form_body
from inkgrove.api.http.problems import responses
from inkgrove.api.oauth.server import Answer, OAuthRequest, OAuthServer, check_parameters, error_named
from inkgrove.messages import Timestamp
from inkgrove.node.identity import caller as accesses
from inkgrove.node.identity import count_registration
from inkgrove.node.runtime import Node
from inkgrove.node.services import grants as services
from inkgrove.store.node import find_identity

router = APIRouter(tags=["services"])
_ID = "^[0-9a-f]{32}$"
ClientId = Annotated[str, Path(pattern=_ID)]


class NewClientBody(BaseModel):
    """A service; what is not listed here is passed over, as RFC 7591 wants."""

    client_name: Annotated[str, Field(max_length=200, examples=["Slothmail for the web"])]
    redirect_uris: Annotated[list[str], Field(max_length=20, examples=[["https://mail.example/back"]])]
    token_endpoint_auth_method: Literal["none"] = "none"  # noqa: S105


class ClientDocument(BaseModel):
    """A service as it is registered; it is public and has no secret."""

    client_id: str
    client_id_issued_at: int
    client_name: str
    redirect_uris: list[str]
    grant_types: list[str] = ["authorization_code", "refresh_token"]
    response_types: list[str] = ["code"]
    token_endpoint_auth_method: Literal["none"] = "none"  # noqa: S105


class TokenDocument(BaseModel):
    """What a service gets."""

    token_type: Literal["Bearer"]
    access_token: str
    refresh_token: str
    expires_in: int
    scope: str


class GrantDocument(BaseModel):
    """One time that an identity agreed."""

    scopes: list[str]
    since: str
    last_used: str | None


class ServiceDocument(BaseModel):
    """A service and what it was granted."""

    client: str
    name: str
    grants: list[GrantDocument]


class ServicesDocument(BaseModel):
    """All services that can act for an identity now."""

    services: list[ServiceDocument]


class AccessEventDocument(BaseModel):
    """One thing that a service did: with one instance or blob, or with many instances of a schema."""

    id: int
    client: str
    name: str
    at: str
    action: str
    schema_: Annotated[str | None, Field(alias="schema")]
    instance: str | None
    blob: str | None


class AccessesDocument(BaseModel):
    """What services did, newest first; `next` is the `before` of the next page."""

    accesses: list[AccessEventDocument]
    next: int | None


_SIGNED_IN = responses("auth.required", "auth.not-allowed")
_NO_STORE = {"Cache-Control": "no-store"}


def _send(answer: Answer) -> Response:
    status, body, _ = answer
    if status == 200:
        return JSONResponse(body, status, _NO_STORE)
    raise error_named(body["error"], body.get("error_description", ""))


_FORM = ("request.too-large", "request.unsupported-media-type")


@router.post(
    "/oauth/register",
    status_code=201,
    response_model=ClientDocument,
    responses=responses("oauth.invalid-redirect-uri", "oauth.invalid-client-metadata", "auth.too-many-attempts"),
)
def register(node: NodeDependency, address: AddressDependency, body: NewClientBody) -> ClientDocument:
    """Register a service (RFC 7591); anybody may, and nobody gains anything by it."""
    count_registration(node, address)
    client = services.register_client(node, body.client_name, body.redirect_uris)
    return ClientDocument(
        client_id=client.id,
        client_id_issued_at=client.created // 1_000_000,
        client_name=client.name,
        redirect_uris=list(client.redirect_uris),
    )


@router.post(
    "/oauth/token",
    response_model=TokenDocument,
    responses=responses("oauth.invalid-grant", "oauth.invalid-client", "oauth.invalid-request", *_FORM),
    openapi_extra=form_body(
        {"grant_type": "`authorization_code` or `refresh_token`.", "client_id": "The service."},
        {
            "code": "The code.",
            "redirect_uri": "As it was when the code was asked for.",
            "code_verifier": "What the code challenge was made of.",
            "refresh_token": "Instead of a code, to get new tokens.",
        },
    ),
)
def give_tokens(node: NodeDependency, form: FormDependency) -> Response:
    """Tokens for a code, or for a refresh token, each of which is good for one use."""
    return _run(node, form, lambda server, request: server.create_token_response(request))


@router.post(
    "/oauth/revoke",
    status_code=200,
    responses=responses("oauth.invalid-client", "oauth.invalid-request", *_FORM),
    openapi_extra=form_body(
        {"token": "The token to give back.", "client_id": "The service."},
        {"token_type_hint": "`access_token` or `refresh_token`."},
    ),
)
def revoke(node: NodeDependency, form: FormDependency) -> Response:
    """Give a token back (RFC 7009); with a refresh token the whole grant ends."""
    return _run(node, form, lambda server, request: server.create_endpoint_response("revocation", request))


def _run(node: Node, form: dict[str, str], respond: Any) -> Response:
    check_parameters(form)
    answer: Answer = respond(OAuthServer(node), OAuthRequest("POST", form))
    return _send(answer)


@router.get("/.well-known/oauth-authorization-server")
def describe(node: NodeDependency, request: Request) -> dict[str, Any]:
    """What a service needs to know about this authorisation server (RFC 8414)."""
    issuer = issuer_of(node, request)
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/oauth/authorize",
        "token_endpoint": f"{issuer}/oauth/token",
        "registration_endpoint": f"{issuer}/oauth/register",
        "revocation_endpoint": f"{issuer}/oauth/revoke",
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
        "revocation_endpoint_auth_methods_supported": ["none"],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }


# What the identity sees


@router.get("/me/services", response_model=ServicesDocument, responses=_SIGNED_IN)
def list_services(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """The services that can act for the identity now."""
    found: dict[str, dict[str, Any]] = {}
    for grant in services.list_services(node, caller.require_identity()):
        service = found.setdefault(grant.client, {"client": grant.client, "name": grant.name, "grants": []})
        last_used = None if grant.last_used is None else str(Timestamp(grant.last_used))
        since = str(Timestamp(grant.created))
        service["grants"].append({"scopes": grant.scopes.split(), "since": since, "last_used": last_used})
    return {"services": list(found.values())}


@router.delete(
    "/me/services/{client}",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "oauth.unknown-service"),
)
def end_service(node: NodeDependency, caller: CallerDependency, client: ClientId) -> Response:
    """Take back all that was granted to a service; its tokens end at once."""
    services.end_service(node, caller.require_identity(), client)
    return Response(status_code=204)


@router.get("/me/accesses", response_model=AccessesDocument, responses=_SIGNED_IN)
def list_accesses(
    node: NodeDependency,
    caller: CallerDependency,
    client: Annotated[str | None, Query(pattern=_ID)] = None,
    before: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """What services did for the identity."""
    found = accesses.list_accesses(node, caller.require_identity(), client=client, before=before, limit=limit)
    rows = [
        {
            "id": access.id,
            "client": access.client,
            "name": access.name,
            "at": str(Timestamp(access.at)),
            "action": access.action,
            "schema": access.schema,
            "instance": access.instance.hex() if access.instance is not None else None,
            "blob": access.blob.hex() if access.blob is not None else None,
        }
        for access in found
    ]
    return {"accesses": rows, "next": found[-1].id if len(found) == limit else None}


def issuer_of(node: Node, request: Request) -> str:
    """Where the identity whose name was asked is reached here, else the address that was asked.

    Its document is not asked: one that came in from elsewhere may name another node.
    """
    fqdn = get_host(request)
    if node.database.read(lambda connection: find_identity(connection, fqdn)) is not None:
        return node.settings.endpoint.format(fqdn=fqdn).rstrip("/")
    return f"{request.url.scheme}://{request.url.netloc}"

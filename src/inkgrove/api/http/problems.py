"""The one table from errors to HTTP answers: RFC 9457 problem details with the stable code."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from inkgrove.core import errors as core
from inkgrove.core.errors import InkgroveError
from inkgrove.core.next_entry import NextEntry
from inkgrove.federation import errors as federation
from inkgrove.node import errors as node
from inkgrove.node.entries import render_place

MEDIA_TYPE: Final = "application/problem+json"
log = structlog.get_logger("inkgrove.http")

STATUS: Final[dict[type[InkgroveError], int]] = {
    # A class's own status, else that of its family, else 422: understood and refused.
    core.StoreError: 503,
    core.StaleEntry: 409,
    core.UnknownSchema: 404,
    core.BadFilter: 400,
    core.TooManyQueries: 503,
    core.NoSuchCopy: 404,
    core.NotRotted: 409,
    node.SignInRequired: 401,
    node.BadToken: 401,
    node.BadPassword: 401,
    node.TooManyAttempts: 429,
    node.Busy: 503,
    node.ForeignOrigin: 403,
    node.OutOfScope: 403,
    node.NotAllowed: 403,
    node.IdentityExists: 409,
    node.ForeignName: 403,
    node.NameElsewhere: 409,
    node.ReservedName: 403,
    node.NameLeft: 409,
    node.TooManyNames: 429,
    node.UnprovedKey: 403,
    node.LivesElsewhere: 409,
    node.UnknownHome: 409,
    node.UnknownIdentity: 404,
    node.VaultLocked: 503,
    node.VaultKeyMissing: 503,
    node.NotRequested: 409,
    node.UnknownRelation: 404,
    node.OAuthError: 400,
    node.UnknownService: 404,
    node.UnknownView: 404,
    node.AmbiguousName: 409,
    node.UnknownInstance: 404,
    node.UnknownLog: 404,
    node.ForeignAuthor: 403,
    node.RevokedKey: 403,
    node.ForeignInstance: 403,
    node.SecondLog: 409,
    node.MixedSchemas: 409,
    node.UnknownSchemaLog: 404,
    node.ShowsHistory: 409,
    node.ShowsSource: 409,
    node.BadPatch: 400,
    node.PatchFailed: 409,
    node.Closing: 503,
    node.Restored: 503,
    node.HomeInUse: 503,
    node.QuotaExceeded: 403,
    node.LowDisk: 507,
    node.BadCursor: 400,
    node.Behind: 503,
    node.TooManyListeners: 503,
    node.RequestError: 400,
    node.NoSuchRoute: 404,
    node.MethodNotAllowed: 405,
    node.RequestTooLarge: 413,
    node.UnsupportedMediaType: 415,
    federation.FederationError: 502,
    federation.BadUrl: 422,
    federation.BadResolve: 500,
    federation.PeerTimeout: 504,
    federation.NoIdentityThere: 404,
    federation.NotGivenAgain: 404,
    federation.SignatureMissing: 401,
    federation.SignatureIncomplete: 401,
    federation.BadRequestSignature: 401,
    federation.BadDigest: 400,
    federation.StaleRequest: 401,
    federation.FutureRequest: 401,
    federation.ReplayedRequest: 409,
    federation.MisdirectedRequest: 421,
    federation.SenderUnproved: 403,
    federation.SenderUnreachable: 503,
    federation.QuotaUsedUp: 429,
    node.RequestBoxFull: 429,
    node.NoSuchRequest: 404,
    node.CannotBeNamed: 409,
    node.TooManyPending: 429,
    node.UnknownSender: 404,
    node.SenderBlocked: 409,
    federation.UnknownRecipient: 404,
    federation.BadMove: 422,
    federation.NoSender: 409,
    federation.UnknownPeer: 404,
    federation.ImportFailed: 500,
    node.RequestTooSlow: 408,
    node.TooManyConnections: 503,
    node.TooMuchAtOnce: 503,
    node.HeadTooLarge: 431,
    node.InternalError: 500,
    node.UnknownBlob: 404,
    node.BlobTooLarge: 413,
    node.BadRange: 416,
}
_CHALLENGE: Final = 'Bearer realm="inkgrove"'
_TOKEN_ERRORS: Final[dict[type[InkgroveError], str]] = {
    node.BadToken: "invalid_token",
    node.OutOfScope: "insufficient_scope",
}
"""What RFC 6750 section 3.1 calls them."""


def status_of(error: InkgroveError | type[InkgroveError]) -> int:
    """The HTTP status of an error."""
    kind = error if isinstance(error, type) else type(error)
    return next((STATUS[parent] for parent in kind.__mro__ if parent in STATUS), 422)


class RequestProblem(HTTPException):
    """A refusal while the body is being read; the framework lets only exceptions of its own through there."""

    def __init__(self, error: InkgroveError) -> None:
        super().__init__(status_of(error), error.public_message)
        self.error = error


def responses(*kinds: type[InkgroveError]) -> dict[int | str, dict[str, Any]]:
    """What a route documents of its responses: `@router.get(..., responses=responses(UnknownView, AmbiguousName))`.

    What any route can answer is added by itself (`api/http/openapi.py`): 400, 401, 408, 413, 415, 500, 503.
    """
    found: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status = status_of(kind)
        answer = found.setdefault(status, {"description": "", "content": {}})
        sentence = (kind.__doc__ or "").strip()
        answer["description"] = f"{answer['description']} `{kind.code}`: {sentence}".strip()
        # As RFC 6749 has it, these are plain JSON.
        media_type = "application/json" if issubclass(kind, node.OAuthError) else MEDIA_TYPE
        content = answer["content"].setdefault(media_type, {"schema": _SCHEMA, "examples": {}})
        content["examples"][kind.code] = {
            "value": {
                "type": f"urn:inkgrove:error:{kind.code}",
                "title": sentence,
                "status": status,
                "code": kind.code,
                "detail": sentence,
            }
        }
    return found


_SCHEMA: Final = {"$ref": "#/components/schemas/Problem"}
PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "title": "Problem",
    "description": "RFC 9457 problem details. `code` never changes its meaning; some codes bring further members.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": ["urn:inkgrove:error:auth.required"]},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {"type": "string", "pattern": "^[a-z]+[.][a-z-]+$"},
        "detail": {"type": "string"},
    },
    "additionalProperties": True,
}


def problem_facts(error: InkgroveError) -> dict[str, Any]:
    """The members of the answer; what is for the operator alone stays out of it (`note_internal` logs it)."""
    data = {name: value for name, value in error.data.items() if name == "retry_after" or not error.is_internal}
    return {
        "type": f"urn:inkgrove:error:{error.code}",
        "title": (type(error).__doc__ or "").strip(),
        "status": status_of(error),
        "code": error.code,
        "detail": error.public_message,
        **{name: _plain(value) for name, value in data.items() if name not in _OWN},
    }


def note_internal(error: InkgroveError) -> None:
    """Log what the answer does not show, under the id of the request."""
    if error.is_internal:
        log.warning("refused", code=error.code, reason=error.message)


def problem(error: InkgroveError) -> JSONResponse:
    """The answer that says what was refused and why."""
    note_internal(error)
    status = status_of(error)
    headers = {"Connection": "close"} if status == 408 else {}
    token_error = _TOKEN_ERRORS.get(type(error))
    if status == 401 or token_error is not None:
        headers["WWW-Authenticate"] = _CHALLENGE + (f', error="{token_error}"' if token_error is not None else "")
    if isinstance(retry_after := error.data.get("retry_after"), int):
        headers["Retry-After"] = str(retry_after)
    content = problem_facts(error)
    if isinstance(error, node.OAuthError):
        # As RFC 6749 section 5.2 wants it, with our words beside.
        content |= {"error": error.name(), "error_description": error.public_message}
        return JSONResponse(content, status, {**headers, "Cache-Control": "no-store"})
    return JSONResponse(content, status, headers, MEDIA_TYPE)


_KINDS: Final = {
    404: node.NoSuchRoute,
    405: node.MethodNotAllowed,
    413: node.RequestTooLarge,
    415: node.UnsupportedMediaType,
}
_OWN: Final = frozenset({"type", "title", "status", "code", "detail"})


def _plain(value: object) -> Any:
    """Data of an error as JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, NextEntry):
        return render_place(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


def malformed(mistakes: Sequence[Mapping[str, Any]]) -> node.BadRequest:
    """The error for what does not have the form that a route documents; mistakes as pydantic tells them."""
    places = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in mistakes[:20]]
    detail = "; ".join(f"{place['where']}: {place['what']}" for place in places[:3])
    return node.BadRequest(detail, places=places)


async def on_error(_request: Request, error: Exception) -> JSONResponse:
    """Everything that Inkgrove refuses on purpose."""
    assert isinstance(error, InkgroveError)
    return problem(error)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """What the framework itself refuses."""
    assert isinstance(error, HTTPException)
    if isinstance(error, RequestProblem):
        return problem(error.error)
    kind = _KINDS.get(error.status_code, node.BadRequest)
    words = {
        404: f"nothing is at {request.url.path[:120]}; GET /openapi.json lists what there is",
        405: f"{request.method} is not for {request.url.path[:120]}; the Allow header says what is",
    }
    answer = problem(kind(words.get(error.status_code, str(error.detail))))
    answer.headers.update(error.headers or {})
    if error.status_code == 405:
        answer.headers["Allow"] = ", ".join(allowed_methods(request.app.router.routes, request.scope))
    return answer


PROBED = ("GET", "POST", "PUT", "PATCH", "DELETE")


def allowed_methods(routes: list[BaseRoute], scope: Scope) -> list[str]:
    """The methods that some route has at this address; none if there is nothing."""
    probe = {key: scope[key] for key in ("type", "path", "root_path", "headers") if key in scope}
    found = [m for m in PROBED if any(route.matches({**probe, "method": m})[0] is Match.FULL for route in routes)]
    if not found:
        return []
    return [*found, *(["HEAD"] if "GET" in found else []), "OPTIONS"]

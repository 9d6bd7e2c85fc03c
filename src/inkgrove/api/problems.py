"""The one table from errors to HTTP answers: RFC 9457 problem details with the stable code."""

import json
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from inkgrove.core import errors as core
from inkgrove.core.errors import InkgroveError
from inkgrove.node import errors as node

MEDIA_TYPE: Final = "application/problem+json"

STATUS: Final[dict[type[InkgroveError], int]] = {
    # A class's own status, else that of its family, else 422: understood and refused.
    core.StoreError: 503,
    core.StaleEntry: 409,
    core.UnknownSchema: 404,
    core.BadFilter: 400,
    node.SignInRequired: 401,
    node.BadToken: 401,
    node.BadPassword: 401,
    node.TooManyAttempts: 429,
    node.ForeignOrigin: 403,
    node.OutOfScope: 403,
    node.NotAllowed: 403,
    node.IdentityExists: 409,
    node.UnknownIdentity: 404,
    node.VaultLocked: 503,
    node.NotRequested: 409,
    node.UnknownRelation: 404,
    node.OAuthError: 400,
    node.UnknownService: 404,
    node.UnknownView: 404,
    node.AmbiguousName: 409,
    node.UnknownInstance: 404,
    node.RequestError: 400,
    node.NoSuchRoute: 404,
    node.MethodNotAllowed: 405,
    node.RequestTooLarge: 413,
    node.UnsupportedMediaType: 415,
}
_CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="inkgrove"'}


def status_of(error: InkgroveError | type[InkgroveError]) -> int:
    """The HTTP status of an error."""
    kind = error if isinstance(error, type) else type(error)
    return next((STATUS[parent] for parent in kind.__mro__ if parent in STATUS), 422)


def refusals(*errors: type[InkgroveError]) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route for what it refuses, by status."""
    by_status: dict[int, list[type[InkgroveError]]] = {}
    for error in (*errors, node.BadRequest):
        by_status.setdefault(status_of(error), []).append(error)
    return {
        status: {
            "description": " / ".join(f"`{kind.code}`: {kind.__doc__}" for kind in kinds),
            "content": {MEDIA_TYPE: {"schema": _SCHEMA, "example": _example(kinds[0], status)}},
        }
        for status, kinds in sorted(by_status.items())
    }


_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
    },
}


def _example(kind: type[InkgroveError], status: int) -> dict[str, Any]:
    title = (kind.__doc__ or "").strip()
    kind_of_problem = f"urn:inkgrove:error:{kind.code}"
    return {"type": kind_of_problem, "title": title, "status": status, "code": kind.code, "detail": title}


def problem(error: InkgroveError) -> JSONResponse:
    """The answer that says what was refused and why."""
    status = status_of(error)
    content: dict[str, Any] = {
        "type": f"urn:inkgrove:error:{error.code}",
        "title": (type(error).__doc__ or "").strip(),
        "status": status,
        "code": error.code,
        "detail": error.message,
        **{name: _plain(value) for name, value in error.data.items() if name not in _OWN},
    }
    headers = dict(_CHALLENGE) if status == 401 else {}
    if isinstance(retry_after := error.data.get("retry_after"), int):
        headers["Retry-After"] = str(retry_after)
    if isinstance(error, node.OAuthError):
        # As RFC 6749 section 5.2 wants it, with our words beside.
        content |= {"error": error.name(), "error_description": error.message}
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
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


async def on_error(_request: Request, error: Exception) -> JSONResponse:
    """Everything that Inkgrove refuses on purpose."""
    assert isinstance(error, InkgroveError)
    return problem(error)


async def on_validation_error(_request: Request, error: Exception) -> JSONResponse:
    """What does not have the form that the route documents."""
    assert isinstance(error, RequestValidationError)
    places = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in error.errors()[:20]]
    detail = "; ".join(f"{place['where']}: {place['what']}" for place in places[:3])
    return problem(node.BadRequest(detail, places=json.loads(json.dumps(places, default=str))))


async def on_http_error(_request: Request, error: Exception) -> JSONResponse:
    """What the framework itself refuses."""
    assert isinstance(error, HTTPException)
    kind = _KINDS.get(error.status_code, node.BadRequest)
    answer = problem(kind(str(error.detail)))
    answer.headers.update(error.headers or {})
    return answer

"""From errors to HTTP answers: RFC 9457 problem details with the stable code, its status and its sentence."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from inkgrove.core import NextEntry
from inkgrove.core.errors import CODES, InkgroveError, make_error
from inkgrove.node import errors as node
from inkgrove.node.publishing import render_next_entry

MEDIA_TYPE: Final = "application/problem+json"
log = structlog.get_logger("inkgrove.http")

_CHALLENGE: Final = 'Bearer realm="inkgrove"'
_TOKEN_ERRORS: Final[dict[str, str]] = {
    "auth.bad-token": "invalid_token",
    "auth.out-of-scope": "insufficient_scope",
}
"""What RFC 6750 section 3.1 calls them."""


def status_of(error: InkgroveError) -> int:
    """The HTTP status of an error."""
    return error.about.status


class RequestProblem(HTTPException):
    """A refusal while the body is being read; the framework lets only exceptions of its own through there."""

    def __init__(self, error: InkgroveError) -> None:
        super().__init__(status_of(error), error.public_message)
        self.error = error


def responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """What a route documents of its responses: `responses=responses("view.unknown", "view.ambiguous-name")`.

    What any route can answer is added by itself (`api/http/openapi.py`): 400, 401, 408, 413, 415, 500, 503.
    """
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status, sentence = CODES[code].status, CODES[code].sentence
        answer = found.setdefault(status, {"description": "", "content": {}})
        answer["description"] = f"{answer['description']} `{code}`: {sentence}".strip()
        # As RFC 6749 has it, these are plain JSON.
        media_type = "application/json" if code.startswith("oauth.") else MEDIA_TYPE
        content = answer["content"].setdefault(media_type, {"schema": _SCHEMA, "examples": {}})
        content["examples"][code] = {
            "value": {
                "type": f"urn:inkgrove:error:{code}",
                "title": sentence,
                "status": status,
                "code": code,
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
        "title": error.about.sentence,
        "status": status_of(error),
        "code": error.code,
        "detail": error.public_message,
        **{name: _plain(value) for name, value in data.items() if name not in _OWN},
    }


def note_internal(error: InkgroveError) -> None:
    """Log what the answer does not show, under the id of the request."""
    if error.is_internal:
        log.warning("refused", code=error.code, reason=error.message)


def forget_frames(error: BaseException) -> None:
    """Let go of the frames that an answered error went through, and of those of its causes.

    A future or a closure that one of these frames holds may refer to the error in turn: all that the frames hold, such
    as a past of 16 MB, would stay until garbage is collected, which is seldom (`serving.tune_garbage_collection`).
    """
    seen: BaseException | None = error
    while seen is not None and seen.__traceback__ is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


def problem(error: InkgroveError) -> JSONResponse:
    """The answer that says what was refused and why; the error's traceback is gone then."""
    forget_frames(error)
    note_internal(error)
    status = status_of(error)
    headers = {"Connection": "close"} if status == 408 else {}
    token_error = _TOKEN_ERRORS.get(error.code)
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


_BY_STATUS: Final = {
    404: "request.no-such-route",
    405: "request.method-not-allowed",
    413: "request.too-large",
    415: "request.unsupported-media-type",
}
_OWN: Final = frozenset({"type", "title", "status", "code", "detail"})


def _plain(value: object) -> Any:
    """Data of an error as JSON."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, NextEntry):
        return render_next_entry(value)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str | dict) else str(value)


def malformed(mistakes: Sequence[Mapping[str, Any]]) -> node.RequestError:
    """The error for what does not have the form that a route documents; mistakes as pydantic tells them."""
    places = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in mistakes[:20]]
    detail = "; ".join(f"{place['where']}: {place['what']}" for place in places[:3])
    return node.RequestError("request.invalid", detail, places=places)


async def on_error(_request: Request, error: Exception) -> JSONResponse:
    """Everything that Inkgrove refuses on purpose."""
    assert isinstance(error, InkgroveError)
    return problem(error)


async def on_http_error(request: Request, error: Exception) -> JSONResponse:
    """What the framework itself refuses."""
    assert isinstance(error, HTTPException)
    if isinstance(error, RequestProblem):
        return problem(error.error)
    code = _BY_STATUS.get(error.status_code, "request.invalid")
    words = {
        404: f"nothing is at {request.url.path[:120]}; GET /openapi.json lists what there is",
        405: f"{request.method} is not for {request.url.path[:120]}; the Allow header says what is",
    }
    answer = problem(make_error(code, words.get(error.status_code, str(error.detail))))
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

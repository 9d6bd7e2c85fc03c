"""The OpenAPI document: what the framework writes, completed with what holds for every route.

A route documents its own responses with `problems.responses(...)`. Here each gets those that any request can meet: a
malformed one, a bad token, a body that is too large, too slow or of another type, a store that cannot be reached.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from inkgrove.api.http.auth import changes_what_moves, get_caller, give_reader
from inkgrove.api.http.bodies import media_types_of
from inkgrove.api.http.dispatch import takes_known_parameters_only
from inkgrove.api.http.formats import is_json
from inkgrove.api.http.problems import PROBLEM_SCHEMA, responses

_ABOUT: Final = """An Inkgrove node over HTTP: identities, services, publishing, reading, blobs.

Refusals are RFC 9457 problem details with a stable `code`. HEAD works wherever GET does. Every answer carries
`X-Request-Id`, the client's own if it sent one."""
_SECURITY_SCHEMES: Final[dict[str, Any]] = {
    "session": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token of `POST /sessions`: the identity itself, which may do everything of its own.",
    },
    "service": {
        "type": "oauth2",
        "description": "A service that an identity has authorised; its scopes say what it may do.",
        "flows": {
            "authorizationCode": {
                "authorizationUrl": "/oauth/authorize",
                "tokenUrl": "/oauth/token",
                "refreshUrl": "/oauth/token",
                "scopes": {
                    "schema:AUTHOR/LOG:ACTION": "Read, create, update or delete instances of one schema.",
                    "relations:read": "See whom the identity follows and who follows it.",
                },
            }
        },
    },
}


def set_openapi(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Let the application serve the completed document, made when it is first asked for."""

    def make() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _make(app, [route for router in routers for route in router.routes])
        return app.openapi_schema

    app.openapi = make  # type: ignore[method-assign]


def _make(app: FastAPI, routes: list[BaseRoute]) -> dict[str, Any]:
    document: dict[str, Any] = get_openapi(
        title=app.title, version=app.version, description=_ABOUT, routes=app.routes, separate_input_output_schemas=False
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    # The framework's own form of responses, which is never sent here.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    components["securitySchemes"] = _SECURITY_SCHEMES
    for path, method, route in _operations(routes):
        operation = document["paths"][path][method]
        _complete(operation, method.upper(), route)
    return document


def _operations(routes: list[BaseRoute]) -> Iterator[tuple[str, str, APIRoute]]:
    for route in routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            yield from ((route.path_format, method.lower(), route) for method in route.methods or ())


def _complete(operation: dict[str, Any], method: str, route: APIRoute) -> None:
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422", "")):
        del answers["422"]
    taken = media_types_of(route)
    common = ["request.bad-address", "request.head-too-large", "request.internal", "store.unavailable"]
    if operation.get("parameters") or taken:
        common.append("request.invalid")
    if takes_known_parameters_only(route):
        common.append("request.unknown-parameter")
    if taken:
        common += [
            "request.too-slow",
            "request.too-large",
            "request.unsupported-media-type",
            "request.too-much-at-once",
        ]
        common.append("auth.required")  # for what is large
    if any(is_json(media_type) for media_type in taken):
        common += ["request.bad-json", "request.too-complex"]
    if _asks_who(route.dependant):
        common.append("auth.bad-token")
        if changes_what_moves(method, route.path):
            common.append("identity.leaving")
        # Without a token: anybody. Which routes need one, and whose, says their 401 and 403.
        operation["security"] = [{}, {"session": []}, {"service": []}]
    for status, answer in responses(*common).items():
        _add(answers, str(status), answer)
    operation["responses"] = dict(sorted(answers.items()))


def _add(answers: dict[str, Any], status: str, answer: dict[str, Any]) -> None:
    mine = answers.setdefault(status, answer)
    if mine is answer:
        return
    for media_type, content in answer["content"].items():
        there = mine.setdefault("content", {}).setdefault(media_type, {"schema": content["schema"]})
        told = there.get("examples", {})
        new = {code: example for code, example in content["examples"].items() if code not in told}
        there["examples"] = {**told, **new}
        mine["description"] = " ".join(
            [mine["description"], *(f"`{code}`: {example['value']['title']}" for code, example in new.items())]
        )


def _asks_who(dependant: Dependant) -> bool:
    return dependant.call in (get_caller, give_reader) or any(_asks_who(inner) for inner in dependant.dependencies)

"""Refuses what a route does not know in the query of an address: a mistyped filter must not show everything."""

from collections.abc import Iterator
from typing import Final

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from inkgrove.node.errors import UnknownParameter

_OPEN: Final = ("/oauth/", "/.well-known/", "/federation/")
"""RFC 6749 section 3.1 wants unknown parameters ignored; and another node may be newer than this one."""


def takes_known_parameters_only(route: APIRoute) -> bool:
    """Whether a route refuses parameters that it does not document; pages for people do not."""
    return route.include_in_schema and not route.path.startswith(_OPEN)


async def check_parameters(request: Request) -> None:
    """A dependency of every route: refuse a query with a parameter that the route does not document."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute) or not takes_known_parameters_only(route):
        return
    known = [*_names(route.dependant), *_documented(route)]
    for name in request.query_params:
        if name not in known:
            there = f"there are: {', '.join(known)}" if known else "there are none"
            raise UnknownParameter(f"{name[:80]!r} is no parameter of this address; {there}", parameter=name[:80])


def _documented(route: APIRoute) -> Iterator[str]:
    """Parameters that the route reads itself."""
    for parameter in (route.openapi_extra or {}).get("parameters", []):
        if parameter["in"] == "query":
            yield parameter["name"]


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)

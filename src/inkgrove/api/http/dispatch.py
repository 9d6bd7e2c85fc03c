"""Finds the route of a request, reads what the signature of its handler declares, calls it and makes the answer.

FastAPI reads the signatures once, when the application is made, and documents them. Its own way through a request costs
more than the read or the signature that is asked for, and most of that serves what no route here uses. So requests are
answered here, from what FastAPI has read (`APIRoute.dependant`): a parameter is declared once, in a signature.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from inspect import iscoroutinefunction
from typing import Any, Final, cast

from fastapi import APIRouter, Request, Response
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.encoders import jsonable_encoder
from fastapi.params import Param
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from inkgrove.api.http.bodies import VALUES, media_types_of
from inkgrove.api.http.formats import FEW_VALUES, first_headers, media_type_in, read_json
from inkgrove.api.http.problems import RequestProblem, malformed, problem
from inkgrove.core.errors import InkgroveError
from inkgrove.node.errors import RequestError

_OPEN: Final = ("/oauth/", "/.well-known/", "/federation/")
"""RFC 6749 section 3.1 wants unknown parameters ignored; and another node may be newer than this one."""
_ABSENT: Final = object()
_Mistakes = list[dict[str, Any]]
_Given = Mapping[str, Any] | QueryParams | Headers


class Dispatcher:
    """Middleware, the innermost: answers requests to the routes of some routers, passes all others on."""

    def __init__(self, app: ASGIApp, routers: Iterable[APIRouter]) -> None:
        self._app = app
        self._operations: dict[tuple[str, str], list[_Operation]] = {}
        for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
            operation = _Operation(route)
            for method in route.methods or ():
                self._operations.setdefault((method, _first_segment(route.path)), []).append(operation)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on what no route takes: the framework says that it is a 404 or a 405."""
        operation = self._find(scope) if scope["type"] == "http" else None
        if operation is None:
            await self._app(scope, receive, send)
            return
        try:
            answer = await operation.answer(Request(scope, receive, send))
        except InkgroveError as error:
            answer = problem(error)
        except RequestProblem as refused:  # while the body was being read
            answer = problem(refused.error)
        await answer(scope, receive, send)

    def _find(self, scope: Scope) -> "_Operation | None":
        path = scope["path"]
        for operation in self._operations.get((scope["method"], _first_segment(path)), ()):
            match = operation.route.path_regex.match(path)
            if match is not None:
                convert = operation.route.param_convertors
                scope["route"] = operation.route
                scope["path_params"] = {name: convert[name].convert(text) for name, text in match.groupdict().items()}
                return operation
        return None


def _first_segment(path: str) -> str:
    return path[1:].partition("/")[0]


def takes_known_parameters_only(route: APIRoute) -> bool:
    """Whether a route refuses parameters that it does not document: a mistyped filter must not show everything."""
    return route.include_in_schema and not route.path.startswith(_OPEN)


class _Operation:
    """A route, compiled: what is checked before its handler is called, and what is made of what that returns."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        self._handler = _Call(route.dependant)
        self._known = list(self._handler.query_names()) if takes_known_parameters_only(route) else None
        self._media_types = media_types_of(route)
        self._reads_json = route.body_field is not None

    async def answer(self, request: Request) -> Response:
        """The answer to a request; raises what is wrong with it, in the order in which things are read."""
        scope = request.scope
        # A body is read to its end before anything is refused: the client may still be sending it.
        content = await request.body() if self._reads_json else b""
        if scope["query_string"] and self._known is not None:
            self._check_parameters(request.query_params)
        if self._media_types:
            self._check_body(scope)
        body = read_json(content) if content else _ABSENT
        mistakes: _Mistakes = []
        values = await self._handler.read(request, body, mistakes)
        if mistakes:
            raise malformed(mistakes)
        answer: Response = await self._handler.run(values, self._render)
        return answer

    def _check_parameters(self, given: QueryParams) -> None:
        known = self._known or []
        for name in given:
            if name not in known:
                there = f"there are: {', '.join(known)}" if known else "there are none"
                raise RequestError(
                    "request.unknown-parameter",
                    f"{name[:80]!r} is no parameter of this address; {there}",
                    parameter=name[:80],
                )

    def _check_body(self, scope: Scope) -> None:
        """Raise for a body of a type that the route does not document, or with too many values.

        A body that is compared with a model costs an error for each value that does not fit, so it has few.
        """
        headers = first_headers(scope)
        if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
            return
        if self._reads_json and scope.get(VALUES, 0) > FEW_VALUES:
            raise RequestError(
                "request.too-complex",
                f"the body has more than {FEW_VALUES:,} values, which is more than this route takes",
            )
        given = media_type_in(headers)
        if given not in self._media_types and "*/*" not in self._media_types:
            taken = " or ".join(sorted(self._media_types))
            raise RequestError(
                "request.unsupported-media-type", f"the body is {given[:80] or 'of no type'}; this takes {taken}"
            )

    def _render(self, returned: Any) -> Response:
        """What a handler returned as JSON, in the form of the route's answer model."""
        if isinstance(returned, Response):
            return returned
        status, field = self.route.status_code or 200, self.route.response_field
        if field is None:
            return JSONResponse(jsonable_encoder(returned), status)
        value, mistakes = field.validate(returned, {}, loc=("response",))
        if mistakes:
            raise TypeError(f"{self.route.path} returned what its answer model does not take: {mistakes}")
        content = field.serialize_json(value, exclude_none=self.route.response_model_exclude_none)
        return Response(content, status, media_type="application/json")


class _Call:
    """A handler, or a dependency of one, and where each of its arguments comes from.

    A plain function runs in a thread, a coroutine on the loop.
    """

    def __init__(self, dependant: Dependant) -> None:
        assert dependant.call is not None
        self._function, self._name = dependant.call, dependant.name
        self._is_async = iscoroutinefunction(dependant.call)
        self._request_name = dependant.request_param_name
        self._inner = [_Call(inner) for inner in dependant.dependencies]
        self._path = [_Parameter(field) for field in dependant.path_params]
        self._query = [_Parameter(field) for field in dependant.query_params]
        self._headers = [_Parameter(field) for field in dependant.header_params]
        self._body = [_Parameter(field) for field in dependant.body_params]
        needed = (self._inner, self._path, self._query, self._headers, self._body)
        self._takes_request_only = self._is_async and self._request_name is not None and not any(needed)

    def query_names(self) -> Iterator[str]:
        """The parameters that may stand in the query of the address."""
        yield from (parameter.alias for parameter in self._query)
        for inner in self._inner:
            yield from inner.query_names()

    async def read(self, request: Request, body: Any, mistakes: _Mistakes) -> dict[str, Any]:
        """The arguments; what does not have the form that is declared is added to `mistakes`."""
        values: dict[str, Any] = {}
        for inner in self._inner:
            if inner._takes_request_only:
                values[cast(str, inner._name)] = await inner._function(request)
                continue
            found = len(mistakes)
            given = await inner.read(request, body, mistakes)
            if len(mistakes) == found:
                values[cast(str, inner._name)] = await inner.run(given, _as_it_is)
        for parameter in self._path:
            parameter.read(request.path_params, values, mistakes)
        if self._query:
            query: _Given = request.query_params if request.scope["query_string"] else _NOTHING
            for parameter in self._query:
                parameter.read(query, values, mistakes)
        for parameter in self._headers:
            parameter.read(request.headers, values, mistakes)
        for parameter in self._body:
            parameter.take(body, values, mistakes, ("body",))
        if self._request_name is not None:
            values[self._request_name] = request
        return values

    async def run(self, values: dict[str, Any], render: Callable[[Any], Any]) -> Any:
        """Call the function; `render` makes the result of what it returns, where it ran."""
        if self._is_async:
            return render(await cast(Awaitable[Any], self._function(**values)))
        return await run_in_threadpool(lambda: render(self._function(**values)))


_NOTHING: Final[Mapping[str, Any]] = {}


def _as_it_is(value: Any) -> Any:
    return value


class _Parameter:
    """A parameter of a signature: where it stands in a request, and what it may be."""

    def __init__(self, field: ModelField) -> None:
        info = field.field_info
        self.alias, self._name, self._validate = field.alias, field.name, field.validate
        self._default: Any = _ABSENT if info.is_required() else field.default
        self._is_list = isinstance(self._default, list)
        self._where = (info.in_.value, field.alias) if isinstance(info, Param) else ("body",)

    def read(self, given: _Given, values: dict[str, Any], mistakes: _Mistakes) -> None:
        """Take the value out of what was given under its name."""
        if self._is_list and isinstance(given, QueryParams):
            value: Any = given.getlist(self.alias) or _ABSENT
        else:
            value = given.get(self.alias, _ABSENT)
        self.take(value, values, mistakes, self._where)

    def take(self, value: Any, values: dict[str, Any], mistakes: _Mistakes, where: tuple[str, ...]) -> None:
        """Add a value, or the default if there is none, to `values`, or what is wrong with it to `mistakes`."""
        if value is not _ABSENT:
            values[self._name], found = self._validate(value, values, loc=where)
            mistakes += found
        elif self._default is _ABSENT:
            mistakes.append({"loc": where, "msg": "Field required"})
        else:
            values[self._name] = list(self._default) if self._is_list else self._default

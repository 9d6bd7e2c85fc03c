"""What the routes that publish share: bodies read leanly, jobs handed to the writer, its answers as JSON."""

import asyncio
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from fastapi import Request, Response
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.answers import json_answer
from inkgrove.api.http.auth import get_node, token_of
from inkgrove.api.http.formats import first_headers, media_type_of
from inkgrove.api.http.limits import read_in_thread
from inkgrove.api.routes.federation import federation_of
from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.core.limits import MAX_RECIPIENTS
from inkgrove.federation.names_found import NO_WORD
from inkgrove.node.dry_run import try_out
from inkgrove.node.errors import (
    BadInstanceDocument,
    BadRequest,
    SignInRequired,
    UnknownIdentity,
    UnknownInstance,
    UnsupportedMediaType,
)
from inkgrove.node.name_rules import find_own, rules_of
from inkgrove.node.node import Node
from inkgrove.node.sessions import authenticate
from inkgrove.node.writer import Job, Reply, Work, Writer

_Body = TypeVar("_Body", bound=BaseModel)
_MOST_MISTAKES = 2000


def body_of(model: type[BaseModel], *media_types: str) -> dict[str, Any]:
    """What a route documents of a body that it reads itself: the framework's way costs more than the signature."""
    schema = model.model_json_schema(ref_template="{model}")
    parts = schema.pop("$defs", {})
    schema = _inlined(schema, parts)
    content = {media_type: {"schema": schema} for media_type in media_types or ("application/json",)}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    """A schema that stands by itself."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(parts[schema["$ref"]], parts)
        return {name: _inlined(part, parts) for name, part in schema.items()}
    return [_inlined(part, parts) for part in schema] if isinstance(schema, list) else schema


async def read_body(request: Request, model: type[_Body]) -> _Body:
    """The body of a request in the form that the route documents."""
    if media_type_of(request) != "application/json":
        raise UnsupportedMediaType("the body is application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as err:
        if err.error_count() > _MOST_MISTAKES:  # to describe them takes far longer than to find them
            raise BadRequest(
                f"the body has {err.error_count():,} mistakes: see the form that the route takes"
            ) from None
        places = [{"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in err.errors()[:20]]
        detail = "; ".join(f"{place['where']}: {place['what']}" for place in places[:3])
        raise BadRequest(detail, places=places) from err


def read_json(body: bytes) -> Any:
    """Any JSON value."""
    try:
        return json.loads(body)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except ValueError as err:
        raise BadRequest("the body is not JSON") from err


def instance_of(text: str) -> Hash:
    """The instance in an address; what is no id is no instance."""
    try:
        return parse_hash(text)
    except InkgroveError as err:
        raise UnknownInstance(f"{text[:80]!r} is no id of an instance") from err


def writer_of(request: Request) -> Writer:
    """The writer of the node that the application serves."""
    return cast(Writer, request.app.state.writer)


def require_token(request: Request) -> str:
    """The token of a request that publishes."""
    token = token_of(request, get_node(request))
    if token is None:
        raise SignInRequired("publishing needs a token: sign in, or authorise a service")
    return token


DRY_RUN: Final[dict[str, Any]] = {
    "name": "dry_run",
    "in": "query",
    "required": False,
    "schema": {"type": "boolean", "default": False},
    "description": "Say what would be published, or why it would be refused; nothing is signed or stored.",
}
"""What a route that can be tried documents; read by `publish`, for the framework's way costs every request."""


class Finding(BaseModel):
    """What a version would do to the data of one field."""

    field: str
    effect: Literal["adds", "keeps", "may-lose", "loses"]
    reason: str


class Trial(BaseModel):
    """What would be published, after `dry_run=true`."""

    dry_run: Literal[True]
    changed: Annotated[bool, Field(description="Whether an entry would be appended.")]
    author: str | None = None
    log_id: int | None = None
    seq_num: int | None = None
    bytes: int | None = None
    schema_: Annotated[str | None, Field(alias="schema")] = None
    version: int | None = None
    fields: dict[str, Any] | list[str] | None = None
    only_adds: bool | None = None
    findings: list[Finding] | None = None
    materialised: bool | None = None
    view_version: int | None = None
    waits_for: list[str] | None = None
    not_found_yet: list[str] | None = None


TRIED: Final[dict[int | str, dict[str, Any]]] = {200: {"model": Trial, "description": "With `dry_run=true`."}}
"""What a route that answers 201 documents besides."""


async def publish(request: Request, work: Work) -> Response:
    """Let the writer do the work; its answer comes when everything is on disk.

    With `dry_run=true`, which only routes know that document it, nothing is done, and the answer says what would be.
    """
    if request.scope["query_string"] and _is_trial(request):
        node, schemas = get_node(request), request.app.state.schemas
        return json_answer(await read_in_thread(try_out, node, schemas, require_token(request), work), 200, {})
    given = first_headers(request.scope).get(b"idempotency-key")
    if given is None:
        job = Job(require_token(request), work)
    else:
        key = given.decode("latin-1")
        if not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
            raise BadRequest("an Idempotency-Key has 1 to 255 printable ASCII characters")
        job = Job(require_token(request), work, key, await _whole_request(request))
    reply = await writer_of(request).ask(job)
    federation_of(request).outbox.wake()
    return answer(reply)


def _is_trial(request: Request) -> bool:
    given = request.query_params.getlist("dry_run")
    if given not in ([], ["true"], ["false"]):
        raise BadRequest("dry_run is true or false")
    return given == ["true"]


async def _whole_request(request: Request) -> bytes:
    target = f"{request.method} {request.url.path}?{request.url.query}\n{media_type_of(request)}\n"
    return target.encode() + await request.body()


def answer(reply: Reply) -> Response:
    """A reply of the writer as an HTTP answer."""
    headers = {}
    if reply.status == 201 and "instance" in reply.body:
        headers["Location"] = f"/instances/{reply.body['instance']}"
    return json_answer(reply.body, reply.status, headers)


_ID_LENGTH = 64


def names_in(value: Any) -> list[str]:
    """Every text in a value of JSON: what may be the name of a recipient."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [name for item in value.values() for name in names_in(item)]
    return [name for item in value for name in names_in(item)] if isinstance(value, list) else []


async def find_elsewhere(request: Request, names: Iterable[str]) -> None:
    """See to it that names of other nodes are known here; raises for one that is not found, and for too many."""
    for name, error in (await _look_up(request, names)).items():
        raise _not_found(name, error) from error


async def find_or_wait(request: Request, names: Iterable[str]) -> frozenset[str]:
    """The same; the names whose nodes cannot be asked at the moment are returned, in lower case.

    A name that certainly leads to nobody is an error: its host says so, or the host is this node.
    """
    missed = await _look_up(request, names)
    for name, error in missed.items():
        if not isinstance(error, NO_WORD) or rules_of(get_node(request).settings).is_ours(name):
            raise _not_found(name, error) from error
    return frozenset(missed)


def without(names: Sequence[str], later: Collection[str]) -> list[str]:
    """The names that are not to be waited for."""
    return [name for name in names if name.lower() not in later]


async def _look_up(request: Request, names: Iterable[str]) -> dict[str, InkgroveError]:
    """Look up names of other nodes, side by side; those that were not found, with why."""
    wanted = {name.lower() for name in names if len(name) != _ID_LENGTH and "." in name}
    if not wanted:
        return {}
    if len(wanted) > MAX_RECIPIENTS:
        raise BadInstanceDocument(f"recipients are a list of at most {MAX_RECIPIENTS} identities")
    node, token = get_node(request), require_token(request)
    # Nobody makes this node look up names without a token.
    missing = await run_in_threadpool(_not_hosted, node, token, wanted)
    found = await asyncio.gather(*(_find(request, name) for name in missing))
    return {name: error for name, error in zip(missing, found, strict=True) if error is not None}


def _not_hosted(node: Node, token: str, names: set[str]) -> list[str]:
    authenticate(node, token)
    return node.database.read(lambda c: [name for name in sorted(names) if find_own(c, node, name) is None])


async def _find(request: Request, name: str) -> InkgroveError | None:
    try:
        await federation_of(request).discovery.find(name)
    except InkgroveError as err:
        return err
    return None


def _not_found(name: str, error: InkgroveError) -> UnknownIdentity:
    text = f"no identity {name[:80]!r} is hosted here, and none was found there: {error.public_message}"
    return UnknownIdentity(text, identity=name[:253], reason=error.code)

"""What the routes that publish share: bodies read leanly, jobs handed to the writer, its answers as JSON."""

import json
from typing import Any, TypeVar, cast

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, ValidationError

from inkgrove.api.answers import json_answer
from inkgrove.api.auth import get_node, token_of
from inkgrove.api.bodies import first_headers, media_type_of
from inkgrove.api.federation import federation_of
from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.node.errors import BadRequest, SignInRequired, UnknownInstance, UnsupportedMediaType
from inkgrove.node.writer import Job, Reply, Work, Writer

_Body = TypeVar("_Body", bound=BaseModel)


class Strict(BaseModel):
    """A body with the listed keys only."""

    model_config = ConfigDict(extra="forbid")


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


async def publish(request: Request, work: Work) -> Response:
    """Let the writer do the work; its answer comes when everything is on disk."""
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


async def _whole_request(request: Request) -> bytes:
    target = f"{request.method} {request.url.path}?{request.url.query}\n{media_type_of(request)}\n"
    return target.encode() + await request.body()


def answer(reply: Reply) -> Response:
    """A reply of the writer as an HTTP answer."""
    headers = {}
    if reply.status == 201 and "instance" in reply.body:
        headers["Location"] = f"/instances/{reply.body['instance']}"
    return json_answer(reply.body, reply.status, headers)

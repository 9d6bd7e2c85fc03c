"""What the routes that publish share: reading bodies, finding recipients by name, handing work to the writer."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, cast

from fastapi import Depends, Header, Query, Request, Response
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.answers import json_answer
from inkgrove.api.http.auth import get_node, token_of
from inkgrove.api.http.formats import media_type_of
from inkgrove.api.http.limits import read_in_thread
from inkgrove.api.http.problems import malformed
from inkgrove.api.routes.federation import federation_of
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_RECIPIENTS
from inkgrove.federation.sharing import UNANSWERED
from inkgrove.node.errors import PublishError, RequestError, SignInRequired, UnknownIdentity
from inkgrove.node.identity import authenticate, find_own_name_holder, rules_of
from inkgrove.node.publishing import Publication, PublishJob, Reply, Writer, preview_publication
from inkgrove.node.runtime import Node

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
        raise RequestError("request.unsupported-media-type", "the body is application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as err:
        if err.error_count() > _MOST_MISTAKES:  # to describe them takes far longer than to find them
            raise RequestError(
                "request.invalid", f"the body has {err.error_count():,} mistakes: see the form that the route takes"
            ) from None
        raise malformed(err.errors()) from err


def writer_of(request: Request) -> Writer:
    """The writer of the node that the application serves."""
    return cast(Writer, request.app.state.writer)


def require_token(request: Request) -> str:
    """The token of a request that publishes."""
    token = token_of(request, get_node(request))
    if token is None:
        raise SignInRequired("publishing needs a token: sign in, or authorise a service")
    return token


def _true_or_false(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("dry_run is true or false")
    return text == "true"


DryRun = Annotated[
    bool,
    Query(description="Say what would be published, or why it would be refused; nothing is signed or stored."),
    BeforeValidator(_true_or_false),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same key with the same request gets the same answer, and nothing is done twice.",
        json_schema_extra={"minLength": 1, "maxLength": 255},
    ),
]


class FindingDocument(BaseModel):
    """What a version would do to the data of one field."""

    field: str
    effect: Literal["adds", "keeps", "may-lose", "loses"]
    reason: str


class TrialDocument(BaseModel):
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
    findings: list[FindingDocument] | None = None
    materialised: bool | None = None
    view_version: int | None = None
    waits_for: list[str] | None = None
    not_found_yet: list[str] | None = None


TRIED: Final[dict[int | str, dict[str, Any]]] = {200: {"model": TrialDocument, "description": "With `dry_run=true`."}}
"""What a route that answers 201 documents besides."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes what a request wants: for good, once for each idempotency key, or only as a trial."""

    request: Request
    key: str | None
    is_dry_run: bool = False

    async def publish(self, work: Publication) -> Response:
        """Let the writer do the work; its answer comes when everything is on disk.

        In a dry run nothing is done, and the answer says what would be.
        """
        request, key = self.request, self.key
        if (
            key is not None
            and not self.is_dry_run
            and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable())
        ):
            raise RequestError("request.invalid", "an Idempotency-Key has 1 to 255 printable ASCII characters")
        token = require_token(request)
        if self.is_dry_run:
            return json_answer(await read_in_thread(preview_publication, get_node(request), token, work), 200, {})
        job = PublishJob(token, work) if key is None else PublishJob(token, work, key, await _whole_request(request))
        reply = await writer_of(request).submit(job)
        federation_of(request).outbox.wake()
        return answer(reply)


async def give_publisher(request: Request, key: IdempotencyKey = None) -> Publisher:
    """For routes that always publish."""
    return Publisher(request, key)


async def give_trying_publisher(request: Request, key: IdempotencyKey = None, dry_run: DryRun = False) -> Publisher:
    """For routes that can be tried without publishing."""
    if request.scope["query_string"] and len(request.query_params.getlist("dry_run")) > 1:
        raise RequestError("request.invalid", "dry_run is true or false")
    return Publisher(request, key, dry_run)


PublisherDependency = Annotated[Publisher, Depends(give_publisher)]
TryingPublisherDependency = Annotated[Publisher, Depends(give_trying_publisher)]


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
    """See to it that names of other nodes are known here; return those whose nodes cannot be asked now, in lower case.

    A name that certainly leads to nobody is an error: its host says so, or the host is this node.
    """
    missed = await _look_up(request, names)
    for name, error in missed.items():
        if not isinstance(error, UNANSWERED) or rules_of(get_node(request).settings).is_under_own_domain(name):
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
        raise PublishError("publish.bad-document", f"recipients are a list of at most {MAX_RECIPIENTS} identities")
    node, token = get_node(request), require_token(request)
    # Nobody makes this node look up names without a token.
    missing = await run_in_threadpool(_not_hosted, node, token, wanted)
    found = await asyncio.gather(*(_find(request, name) for name in missing))
    return {name: error for name, error in zip(missing, found, strict=True) if error is not None}


def _not_hosted(node: Node, token: str, names: set[str]) -> list[str]:
    authenticate(node, token)
    return node.database.read(lambda c: [name for name in sorted(names) if find_own_name_holder(c, node, name) is None])


async def _find(request: Request, name: str) -> InkgroveError | None:
    try:
        await federation_of(request).discovery.find(name)
    except InkgroveError as err:
        return err
    return None


def _not_found(name: str, error: InkgroveError) -> UnknownIdentity:
    text = f"no identity {name[:80]!r} is hosted here, and none was found there: {error.public_message}"
    return UnknownIdentity(text, identity=name[:253], reason=error.code)

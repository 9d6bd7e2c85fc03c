"""Routes of schemas: published by content, shown with their versions."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from inkgrove.api.http.answers import json_answer, make_large
from inkgrove.api.http.auth import get_node
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.models import StrictModel
from inkgrove.api.routes.publishing import TRIED, TryingPublisherDependency, body_of, read_body, require_token
from inkgrove.core import errors as core
from inkgrove.core import parse_public_key
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import SchemaId, SchemaMeta
from inkgrove.node.errors import PublishError
from inkgrove.node.identity import authenticate
from inkgrove.node.publishing import AddVersion, CreateSchema, parse_schema_message, render_schema
from inkgrove.node.runtime import Node
from inkgrove.schema import append_version
from inkgrove.store.node import keys_of

router = APIRouter(tags=["schemas"])


class NewSchemaBody(StrictModel):
    """What a schema says about itself; its fields come with the first migration."""

    name: Annotated[str, Field(max_length=63, examples=["slothmail"])]
    description: str | None = None
    homepage: str | None = None
    license: str | None = None
    contact: str | None = None
    fqdn: Annotated[str, Field(max_length=253, examples=["slothmail.schema.ink"])] | None = None


class NewVersionBody(BaseModel):
    """A schema message: `fields` of a migration, `target` of a revert, or `name` and the like."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"fields": [{"subject": {"action": "create", "type": "text"}}]},
                {"target": 3},
                {"name": "slothmail", "description": "Mail for the patient"},
            ]
        },
    )


class PublishedVersionDocument(BaseModel):
    """The version that was appended."""

    schema_: Annotated[str, Field(alias="schema")]
    version: int
    entry: str
    author: str
    log_id: int
    seq_num: int
    position: str


_REFUSED = (
    "auth.required",
    "auth.bad-token",
    "auth.not-allowed",
    "identity.no-key-here",
    "identity.vault-locked",
    "publish.key-reused",
    "publish.closing",
    "quota.exceeded",
    "storage.low-disk",
    "request.invalid",
    "message.bad-name",
    "message.bad-value",
    "message.too-large",
    "store.unavailable",
)


@router.post(
    "/schemas",
    status_code=201,
    response_model=PublishedVersionDocument,
    responses=TRIED | responses(*_REFUSED),
    openapi_extra=body_of(NewSchemaBody),
)
async def create_schema(request: Request, publisher: TryingPublisherDependency) -> Response:
    """Begin a schema: its first version, in a log of its own."""
    body = await read_body(request, NewSchemaBody)
    message = parse_schema_message(body.model_dump(exclude_none=True))
    assert isinstance(message, SchemaMeta)
    return await publisher.publish(CreateSchema(message))


@router.post(
    "/schemas/{author}/{log_id}/versions",
    status_code=201,
    response_model=PublishedVersionDocument,
    responses=TRIED
    | responses(
        *_REFUSED,
        *(item.name for item in core.SchemaError.codes),
        "publish.unknown-schema",
        "publish.foreign-author",
        "publish.revoked-key",
        "request.too-much-at-once",
        "log.ended",
        "log.forked",
    ),
    openapi_extra=body_of(NewVersionBody),
)
async def add_version(
    request: Request, publisher: TryingPublisherDependency, author: str, log_id: Annotated[int, Path(ge=1, lt=2**63)]
) -> Response:
    """Add a version to a schema of one's own; an invalid one is refused and nothing is signed."""
    body = await read_body(request, NewVersionBody)
    work = AddVersion(_schema_id(author, log_id), parse_schema_message(body.model_extra or {}))
    await make_large(request, _compile_first, get_node(request), require_token(request), work)
    return await publisher.publish(work)


def _compile_first(node: Node, token: str, work: AddVersion) -> Response:
    """Compile the patterns of a version and of those before it, in one of the few threads for what takes long.

    So the one writer of the node, for whom all others wait, finds them compiled. The answer is empty. Raises what is
    wrong with the token or the rights of the caller, before anything is compiled, and whatever is wrong with the
    version.
    """
    identity = authenticate(node, token).require_identity()
    authors = node.database.read(lambda connection: keys_of(connection, identity))
    before = node.schemas.read(work.schema)
    # Of a schema of somebody else nothing is compiled: `publish` says what is wrong.
    if work.schema.author in authors and before.versions and before.stopped_by is None:
        append_version(before, work.message)
    return Response()


@router.get(
    "/schemas/{author}/{log_id}",
    response_class=JSONResponse,
    responses=responses("publish.unknown-schema", "request.invalid", "request.too-much-at-once"),
)
async def show_schema(request: Request, author: str, log_id: Annotated[int, Path(ge=1, lt=2**63)]) -> Response:
    """A schema with its known versions and their fields."""
    return await make_large(request, _show_schema, get_node(request), _schema_id(author, log_id))


def _show_schema(node: Node, schema_id: SchemaId) -> Response:
    schema = node.schemas.read(schema_id)
    if not schema.versions:
        raise PublishError("publish.unknown-schema", f"no schema is held at {schema.id}", schema=str(schema.id))
    return json_answer(render_schema(schema))


def _schema_id(author: str, log_id: int) -> SchemaId:
    try:
        return SchemaId(parse_public_key(author), log_id)
    except InkgroveError as err:
        raise PublishError("publish.unknown-schema", f"{author[:80]!r} is no author") from err

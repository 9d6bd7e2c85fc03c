"""Routes that publish instances by content: the node signs for the identity."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from inkgrove.api.bodies import media_type_of, parsed_body
from inkgrove.api.problems import responses
from inkgrove.api.publishing import DRY_RUN, TRIED, Strict, Trial, body_of, instance_of, publish, read_body
from inkgrove.api.recipients import find_elsewhere, find_or_wait, names_in, without
from inkgrove.core import errors as core
from inkgrove.core.errors import InkgroveError
from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.node import errors
from inkgrove.node.errors import BadRequest, UnsupportedMediaType
from inkgrove.node.patch import apply_patch, check_operations, merge_patch
from inkgrove.node.publish import ChangeInstance, CopyInstance, CreateInstance, DeleteInstance, ShareInstance

router = APIRouter(tags=["publishing"])

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_INSTANCE = "0040" + "5f1d" * 32
_AUTHOR = "8f" * 32
IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "The same key with the same request gets the same answer, and nothing is done twice.",
}


class AccessBody(Strict):
    """Who may see an instance."""

    mode: Annotated[Literal["self", "closed", "listed", "relations", "public"], Field(examples=["listed"])]
    to: Annotated[list[str], Field(max_length=1024)] | None = None

    def plain(self) -> dict[str, Any]:
        """As the document of an instance has it."""
        return self.model_dump(exclude_none=True)


Fields = Annotated[
    dict[str, Any], Field(max_length=256, examples=[{"subject": "Hello", "body": "Up here all is well"}])
]
Expires = Annotated[str, Field(max_length=64, examples=["2030-01-01T00:00:00Z"])]
Recipients = Annotated[list[str], Field(max_length=1024, examples=[["john.haiku.ink"]])]


class NewInstance(Strict):
    """An instance to be created."""

    schema_: Annotated[str, Field(alias="schema", max_length=140, examples=[f"{_AUTHOR}/1"])]
    fields: Fields = Field(default_factory=dict)
    access: AccessBody | None = None
    expires: Expires | None = None
    recipients: Recipients = Field(default_factory=list)
    copied_from: Annotated[str, Field(max_length=132)] | None = None


class WholeInstance(Strict):
    """All fields of an instance: what is left out becomes null; without access, that stays."""

    fields: Fields
    access: AccessBody | None = None
    expires: Expires | None = None


class NewCopy(Strict):
    """What the copy has of its own."""

    access: AccessBody | None = None
    expires: Expires | None = None
    recipients: Recipients = Field(default_factory=list)


class NewRecipients(Strict):
    """Whom an instance is sent to."""

    recipients: Annotated[list[str], Field(min_length=1, max_length=1024, examples=[["john.haiku.ink"]])]


class Published(BaseModel):
    """What was appended, and the position that `at_least` takes."""

    instance: Annotated[str, Field(examples=[_INSTANCE])]
    entry: Annotated[str, Field(examples=[_INSTANCE])] | None = None
    author: Annotated[str, Field(examples=[_AUTHOR])] | None = None
    log_id: int | None = None
    seq_num: int | None = None
    changed: bool | None = None
    not_found_yet: Annotated[
        list[str] | None, Field(description="Recipients whose nodes cannot be asked who they are; it is tried again.")
    ] = None
    position: Annotated[str, Field(examples=["pVxH0Zr7c1"])]


class Shared(BaseModel):
    """Whom an instance is now sent to as well, by id."""

    instance: str
    recipients: list[str]
    not_found_yet: list[str] | None = None
    position: str


REFUSED = (
    errors.SignInRequired,
    errors.BadToken,
    errors.OutOfScope,
    errors.NoKeyHere,
    errors.VaultLocked,
    errors.KeyReused,
    errors.Closing,
    errors.QuotaExceeded,
    errors.LowDisk,
    errors.BadRequest,
    core.StoreUnavailable,
    core.LogEnded,
    core.Forked,
)
_CONTENT = (core.UnknownField, core.WrongType, core.FailedValidation, core.PayloadTooLarge, errors.WouldNotApply)
ADDRESSED = (
    errors.UnknownIdentity,
    errors.BadInstanceDocument,
    errors.NotShareable,
    errors.NotFollowing,
    errors.CannotBeNamed,
    errors.TooManyPending,
)
_CHANGED = (errors.UnknownInstance, errors.ForeignInstance, errors.RevokedKey)
_SCHEMA = (errors.UnknownView, errors.AmbiguousName, errors.UnknownSchemaLog)

Source = Annotated[
    Literal["show"] | None, Query(description="Say `show` to let others see the copy than may see its source.")
]


@router.post(
    "/instances",
    status_code=201,
    response_model=Published,
    responses=TRIED | responses(*REFUSED, *_CONTENT, *ADDRESSED, *_SCHEMA, errors.ShowsSource),
    openapi_extra={**body_of(NewInstance), "parameters": [IDEMPOTENCY, DRY_RUN]},
)
async def create_instance(request: Request, source: Source = None) -> Response:
    """Create an instance: the node checks it against the newest version of the schema, signs and stores it."""
    body = await read_body(request, NewInstance)
    later = await find_or_wait(request, [*body.recipients, *_named(body.access)])
    access, to = _access_without(body.access, later), without(body.recipients, later)
    named = _source(body.copied_from)
    work = CreateInstance(body.schema_, body.fields, access, body.expires, to, named, source, later)
    return await publish(request, work)


def _access_without(access: AccessBody | None, later: Collection[str]) -> dict[str, Any] | None:
    """The word on access as it can be signed: without names of whom nobody knows the ids yet."""
    if access is None:
        return None
    return access.plain() | ({"to": without(access.to, later)} if access.to is not None else {})


def _named(access: AccessBody | None) -> list[str]:
    return access.to or [] if access is not None else []


def _source(text: str | None) -> Hash | None:
    try:
        return parse_hash(text) if text is not None else None
    except InkgroveError as err:
        raise BadRequest(f"copied_from: {err.message}") from err


History = Annotated[
    Literal["show"] | None, Query(description="Say `show` to let new readers see every earlier state too.")
]


@router.patch(
    "/instances/{instance}",
    response_model=Published | Trial,
    responses=responses(
        *REFUSED,
        *_CONTENT,
        *ADDRESSED,
        *_CHANGED,
        errors.BadPatch,
        errors.PatchFailed,
        errors.ShowsHistory,
        errors.UnsupportedMediaType,
    ),
    openapi_extra={
        "parameters": [IDEMPOTENCY, DRY_RUN],
        "requestBody": {
            "required": True,
            "content": {
                JSON_PATCH: {
                    "schema": {"type": "array", "maxItems": 1000, "items": {"type": "object"}},
                    "example": [{"op": "replace", "path": "/fields/subject", "value": "Hello again"}],
                },
                MERGE_PATCH: {"schema": {"type": "object"}, "example": {"fields": {"subject": "Hello again"}}},
            },
        },
    },
)
async def patch_instance(request: Request, instance: str, history: History = None) -> Response:
    """Change an instance by JSON Patch or merge patch over `{fields, access, expires}`: one signed update."""
    media_type = media_type_of(request)
    if media_type not in (JSON_PATCH, MERGE_PATCH):
        raise UnsupportedMediaType(f"a patch is {JSON_PATCH} or {MERGE_PATCH}")
    if not await request.body():
        raise BadRequest("the body is not JSON")
    patch = parsed_body(request)
    if media_type == JSON_PATCH:
        check_operations(patch)  # before anything is done for each of them
    await find_elsewhere(request, _named_in_patch(patch))
    apply = apply_patch if media_type == JSON_PATCH else merge_patch
    work = ChangeInstance(instance_of(instance), lambda document: apply(document, patch), history)
    return await publish(request, work)


def _named_in_patch(patch: Any) -> list[str]:
    """What may be names of recipients: whatever the patch says about access."""
    if isinstance(patch, dict):
        return names_in(patch.get("access"))
    steps = patch if isinstance(patch, list) else []
    return [
        name
        for step in steps
        if isinstance(step, dict) and str(step.get("path")).startswith("/access")
        for name in names_in(step.get("value"))
    ]


@router.put(
    "/instances/{instance}",
    response_model=Published | Trial,
    responses=responses(*REFUSED, *_CONTENT, *ADDRESSED, *_CHANGED, errors.ShowsHistory),
    openapi_extra={**body_of(WholeInstance), "parameters": [IDEMPOTENCY, DRY_RUN]},
)
async def replace_instance(request: Request, instance: str, history: History = None) -> Response:
    """Give an instance new values for all its fields; one signed update with what changes."""
    body = await read_body(request, WholeInstance)
    await find_elsewhere(request, _named(body.access))
    access = body.access.plain() if body.access is not None else None

    def replace(document: dict[str, Any]) -> dict[str, Any]:
        return {"fields": body.fields, "access": access or document["access"], "expires": body.expires}

    return await publish(request, ChangeInstance(instance_of(instance), replace, history))


@router.delete(
    "/instances/{instance}",
    response_model=Published | Trial,
    responses=responses(*REFUSED, *_CHANGED),
    openapi_extra={"parameters": [IDEMPOTENCY, DRY_RUN]},
)
async def delete_instance(request: Request, instance: str) -> Response:
    """End an instance; its entries stay."""
    return await publish(request, DeleteInstance(instance_of(instance)))


@router.post(
    "/instances/{instance}/copy",
    status_code=201,
    response_model=Published,
    responses=responses(
        *REFUSED, *_CONTENT, *ADDRESSED, errors.UnknownInstance, errors.UnknownSchemaLog, errors.ShowsSource
    ),
    openapi_extra={**body_of(NewCopy), "parameters": [IDEMPOTENCY]},
)
async def copy_instance(request: Request, instance: str, source: Source = None) -> Response:
    """Make a copy of an instance that one can see; the copy is one's own and names its source."""
    body = await read_body(request, NewCopy)
    later = await find_or_wait(request, [*body.recipients, *_named(body.access)])
    access, to = _access_without(body.access, later), without(body.recipients, later)
    return await publish(request, CopyInstance(instance_of(instance), access, body.expires, to, source, later))


@router.post(
    "/instances/{instance}/share",
    response_model=Shared,
    responses=responses(*REFUSED, *ADDRESSED, *_CHANGED),
    openapi_extra={**body_of(NewRecipients), "parameters": [IDEMPOTENCY]},
)
async def share_instance(request: Request, instance: str) -> Response:
    """Send an instance of one's own to more identities, by id or by name, wherever they are hosted."""
    body = await read_body(request, NewRecipients)
    later = await find_or_wait(request, body.recipients)
    return await publish(request, ShareInstance(instance_of(instance), without(body.recipients, later), later))

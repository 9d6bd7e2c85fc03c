"""Routes that publish instances by content, for which the node signs; sharing, passing on, and states of delivery."""

from collections.abc import Collection
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from inkgrove.api.http.answers import json_answer, make_large
from inkgrove.api.http.auth import AddressDependency, CallerDependency, NodeDependency
from inkgrove.api.http.bodies import parsed_body
from inkgrove.api.http.formats import media_type_of
from inkgrove.api.http.limits import PASSWORDS
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.models import Password, StrictModel
from inkgrove.api.routes.publishing import (
    TRIED,
    PublisherDependency,
    TrialDocument,
    TryingPublisherDependency,
    body_of,
    find_elsewhere,
    find_or_wait,
    names_in,
    read_body,
    without,
)
from inkgrove.core import Hash, parse_hash
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Timestamp
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import Caller, sessions
from inkgrove.node.publishing import (
    ChangeInstance,
    CopyInstance,
    CreateInstance,
    DeleteInstance,
    PassOnInstance,
    ShareInstance,
    apply_patch,
    check_operations,
    erase_own_instance,
    merge_patch,
    read_deliveries,
)
from inkgrove.node.reading import parse_instance
from inkgrove.node.runtime import Node

router = APIRouter(tags=["publishing"])

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_INSTANCE = "0040" + "5f1d" * 32
_AUTHOR = "8f" * 32


class AccessBody(StrictModel):
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


class NewInstanceBody(StrictModel):
    """An instance to be created."""

    schema_: Annotated[str, Field(alias="schema", max_length=140, examples=[f"{_AUTHOR}/1"])]
    fields: Fields = Field(default_factory=dict)
    access: AccessBody | None = None
    expires: Expires | None = None
    recipients: Recipients = Field(default_factory=list)
    copied_from: Annotated[str, Field(max_length=132)] | None = None


class WholeInstanceBody(StrictModel):
    """All fields of an instance: what is left out becomes null; without access, that stays."""

    fields: Fields
    access: AccessBody | None = None
    expires: Expires | None = None


class NewCopyBody(StrictModel):
    """What the copy has of its own."""

    access: AccessBody | None = None
    expires: Expires | None = None
    recipients: Recipients = Field(default_factory=list)


class RecipientsBody(StrictModel):
    """Whom an instance is sent to."""

    recipients: Annotated[list[str], Field(min_length=1, max_length=1024, examples=[["john.haiku.ink"]])]


class PublishedDocument(BaseModel):
    """What was appended, and the position that `at_least` takes."""

    instance: Annotated[str, Field(examples=[_INSTANCE])]
    entry: Annotated[str, Field(examples=[_INSTANCE])] | None = None
    author: Annotated[str, Field(examples=[_AUTHOR])] | None = None
    log_id: int | None = None
    seq_num: int | None = None
    changed: bool | None = None
    continues: Annotated[
        str | None,
        Field(
            description="The instance in whose place this one has come: another key of the identity had written it.",
        ),
    ] = None
    not_found_yet: Annotated[
        list[str] | None, Field(description="Recipients whose nodes cannot be asked who they are; it is tried again.")
    ] = None
    position: Annotated[str, Field(examples=["pVxH0Zr7c1"])]


class SharedDocument(BaseModel):
    """Whom an instance is now sent to as well, by id."""

    instance: str
    recipients: list[str]
    not_found_yet: list[str] | None = None
    position: str


REFUSED = (
    "auth.required",
    "auth.bad-token",
    "auth.out-of-scope",
    "identity.no-key-here",
    "identity.vault-locked",
    "publish.key-reused",
    "publish.closing",
    "quota.exceeded",
    "storage.low-disk",
    "request.invalid",
    "store.unavailable",
    "log.ended",
    "log.forked",
)
_CONTENT = (
    "instance.unknown-field",
    "instance.wrong-type",
    "instance.failed-validation",
    "message.too-large",
    "publish.would-not-apply",
)
ADDRESSED = (
    "identity.unknown",
    "publish.bad-document",
    "publish.not-shareable",
    "federation.not-following",
    "federation.cannot-be-named",
    "federation.too-many-not-found",
)
_CHANGED = ("view.unknown-instance", "publish.foreign-instance", "publish.revoked-key")
_SCHEMA = ("view.unknown", "view.ambiguous-name", "publish.unknown-schema")

Source = Annotated[
    Literal["show"] | None, Query(description="Say `show` to let others see the copy than may see its source.")
]


@router.post(
    "/instances",
    status_code=201,
    response_model=PublishedDocument,
    responses=TRIED | responses(*REFUSED, *_CONTENT, *ADDRESSED, *_SCHEMA, "publish.shows-source"),
    openapi_extra=body_of(NewInstanceBody),
)
async def create_instance(request: Request, publisher: TryingPublisherDependency, source: Source = None) -> Response:
    """Create an instance: the node checks it against the newest version of the schema, signs and stores it."""
    body = await read_body(request, NewInstanceBody)
    later = await find_or_wait(request, [*body.recipients, *_named(body.access)])
    access, to = _access_without(body.access, later), without(body.recipients, later)
    named = _source(body.copied_from)
    work = CreateInstance(body.schema_, body.fields, access, body.expires, to, named, source, later)
    return await publisher.publish(work)


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
        raise RequestError("request.invalid", f"copied_from: {err.message}") from err


History = Annotated[
    Literal["show"] | None, Query(description="Say `show` to let new readers see every earlier state too.")
]


@router.patch(
    "/instances/{instance}",
    response_model=PublishedDocument | TrialDocument,
    responses=responses(
        *REFUSED,
        *_CONTENT,
        *ADDRESSED,
        *_CHANGED,
        "publish.bad-patch",
        "publish.patch-failed",
        "publish.shows-history",
        "publish.shows-source",
        "request.unsupported-media-type",
    ),
    openapi_extra={
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
async def patch_instance(
    request: Request,
    publisher: TryingPublisherDependency,
    instance: str,
    history: History = None,
    source: Source = None,
) -> Response:
    """Change an instance by JSON Patch or merge patch over `{fields, access, expires}`: one signed update.

    If this node does not keep the key that wrote it, another key of the identity continues it by a new instance.
    """
    media_type = media_type_of(request)
    if media_type not in (JSON_PATCH, MERGE_PATCH):
        raise RequestError("request.unsupported-media-type", f"a patch is {JSON_PATCH} or {MERGE_PATCH}")
    if not await request.body():
        raise RequestError("request.invalid", "the body is not JSON")
    patch = parsed_body(request)
    if media_type == JSON_PATCH:
        check_operations(patch)  # before anything is done for each of them
    await find_elsewhere(request, _named_in_patch(patch))
    apply = apply_patch if media_type == JSON_PATCH else merge_patch
    work = ChangeInstance(parse_instance(instance), lambda document: apply(document, patch), history, source)
    return await publisher.publish(work)


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
    response_model=PublishedDocument | TrialDocument,
    responses=responses(*REFUSED, *_CONTENT, *ADDRESSED, *_CHANGED, "publish.shows-history", "publish.shows-source"),
    openapi_extra=body_of(WholeInstanceBody),
)
async def replace_instance(
    request: Request,
    publisher: TryingPublisherDependency,
    instance: str,
    history: History = None,
    source: Source = None,
) -> Response:
    """Give an instance new values for all its fields; one signed update with what changes."""
    body = await read_body(request, WholeInstanceBody)
    await find_elsewhere(request, _named(body.access))
    access = body.access.plain() if body.access is not None else None

    def replace(document: dict[str, Any]) -> dict[str, Any]:
        return {"fields": body.fields, "access": access or document["access"], "expires": body.expires}

    return await publisher.publish(ChangeInstance(parse_instance(instance), replace, history, source))


@router.delete(
    "/instances/{instance}",
    response_model=PublishedDocument | TrialDocument,
    responses=responses(*REFUSED, *_CHANGED),
)
async def delete_instance(publisher: TryingPublisherDependency, instance: str) -> Response:
    """End an instance: it is hidden at once and its content erased after a grace; its entries stay."""
    return await publisher.publish(DeleteInstance(parse_instance(instance)))


class EraseBody(StrictModel):
    """The password of who asks, once more: what is erased cannot be had back."""

    password: Password


class ErasedDocument(BaseModel):
    """Whether the content of an instance is gone from this node."""

    instance: Annotated[str, Field(examples=[_INSTANCE])]
    erased: Annotated[bool, Field(description="False: other work was under way; it is erased next.")]


@router.post(
    "/instances/{instance}/erase",
    response_model=ErasedDocument,
    responses=responses(
        "auth.required",
        "auth.bad-token",
        "auth.not-allowed",
        "auth.bad-password",
        "auth.too-many-attempts",
        "auth.busy",
        "view.unknown-instance",
        "publish.not-deleted",
        "store.unavailable",
    ),
)
async def erase_instance(
    node: NodeDependency, caller: CallerDependency, address: AddressDependency, instance: str, body: EraseBody
) -> dict[str, Any]:
    """Erase the content of an instance of one's own that was deleted, without waiting for the grace to end."""
    identity, name = caller.require_identity(), parse_instance(instance)

    def work() -> bool:
        sessions.check_own_password(node, identity, body.password, address)
        return erase_own_instance(node, caller, name)

    return {"instance": name.hex(), "erased": await PASSWORDS.run(address, work)}


@router.post(
    "/instances/{instance}/copy",
    status_code=201,
    response_model=PublishedDocument,
    responses=responses(
        *REFUSED, *_CONTENT, *ADDRESSED, "view.unknown-instance", "publish.unknown-schema", "publish.shows-source"
    ),
    openapi_extra=body_of(NewCopyBody),
)
async def copy_instance(
    request: Request, publisher: PublisherDependency, instance: str, source: Source = None
) -> Response:
    """Make a copy of an instance that one can see; the copy is one's own and names its source."""
    body = await read_body(request, NewCopyBody)
    later = await find_or_wait(request, [*body.recipients, *_named(body.access)])
    access, to = _access_without(body.access, later), without(body.recipients, later)
    return await publisher.publish(CopyInstance(parse_instance(instance), access, body.expires, to, source, later))


@router.post(
    "/instances/{instance}/share",
    response_model=SharedDocument,
    responses=responses(*REFUSED, *ADDRESSED, *_CHANGED, "publish.shows-source"),
    openapi_extra=body_of(RecipientsBody),
)
async def share_instance(
    request: Request, publisher: PublisherDependency, instance: str, source: Source = None
) -> Response:
    """Send an instance of one's own to more identities, by id or by name, wherever they are hosted."""
    body = await read_body(request, RecipientsBody)
    later = await find_or_wait(request, body.recipients)
    to = without(body.recipients, later)
    return await publisher.publish(ShareInstance(parse_instance(instance), to, later, source))


sharing_router = APIRouter(tags=["sharing"])


class DeliveryDocument(BaseModel):
    """How far an instance has come with one recipient, on this node or elsewhere."""

    recipient: Annotated[str | None, Field(description="None while nobody knows who has the name.")]
    fqdn: str | None
    state: Literal["waiting", "delivered", "held", "refused", "given-up"]
    wanted: Annotated[int, Field(description="The newest message that the recipient is to have.")]
    delivered: Annotated[int, Field(description="The newest that they have, as their node said; 0: none.")]
    code: Annotated[
        str | None,
        Field(
            description="Why it was refused or given up: an error code, or `http.STATUS` of a refused request.",
            examples=["federation.blocked"],
        ),
    ]
    changed: str


class DeliveriesDocument(BaseModel):
    """What has been sent of an instance by who asks."""

    instance: str
    deliveries: list[DeliveryDocument]


@sharing_router.post(
    "/instances/{instance}/pass-on",
    response_model=SharedDocument,
    responses=responses(*REFUSED, *ADDRESSED, "view.unknown-instance"),
    openapi_extra=body_of(RecipientsBody),
)
async def pass_on_instance(request: Request, publisher: PublisherDependency, instance: str) -> Response:
    """Send an instance that one has received to others, unchanged; a service needs the scopes `read` and `create`."""
    body = await read_body(request, RecipientsBody)
    later = await find_or_wait(request, body.recipients)
    return await publisher.publish(PassOnInstance(parse_instance(instance), without(body.recipients, later), later))


@sharing_router.get(
    "/instances/{instance}/deliveries",
    response_class=JSONResponse,
    responses={
        200: {"model": DeliveriesDocument},
        **responses("auth.required", "auth.out-of-scope", "view.unknown-instance", "request.too-much-at-once"),
    },
)
async def list_deliveries(request: Request, node: NodeDependency, caller: CallerDependency, instance: str) -> Response:
    """How far an instance has come with everyone it was sent to; followers only for services with `relations:read`."""
    return await make_large(request, _deliveries, node, caller, parse_instance(instance))


def _deliveries(node: Node, caller: Caller, entry: Hash) -> Response:
    rows = [
        {
            "recipient": state.recipient.hex() or None,
            "fqdn": fqdn,
            "state": state.state,
            "wanted": state.wanted,
            "delivered": state.delivered,
            "code": state.code,
            "changed": str(Timestamp(state.changed)),
        }
        for state, fqdn in read_deliveries(node, caller, entry)
    ]
    return json_answer({"instance": entry.hex(), "deliveries": rows})

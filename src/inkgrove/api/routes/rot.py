"""Routes of rot: summaries of views, keeping a copy, fetching one again; and the other side of that between nodes."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.answers import make_large
from inkgrove.api.http.auth import CallerDependency, NodeDependency
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.federation import BINARY, SIGNED, admit, federation_of, make_within_quota
from inkgrove.api.routes.instance_reads import InstancePath
from inkgrove.api.routes.models import EXPENSIVE, READING, SchemaPath, view_routes
from inkgrove.core import Hash
from inkgrove.federation.sharing import COPIES_PATH, RefetchContext, answer_refetch, refetch_copy
from inkgrove.messages import DELIVERY_MEDIA_TYPE
from inkgrove.node.identity import Caller
from inkgrove.node.reading import parse_instance, pin_instance, render_position, summarise, unpin_instance
from inkgrove.node.runtime import Node
from inkgrove.store.federation import RemoteIdentity
from inkgrove.store.logs import newest_offset
from inkgrove.store.rot import add_summaries, summary_document

router = APIRouter(tags=["rot"])


class FieldSummaryDocument(BaseModel):
    """What is known of the values of a field."""

    count: Annotated[int, Field(description="Values that are not null.", examples=[12])]
    sum: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    quantiles: Annotated[dict[str, float] | None, Field(examples=[{"0.25": 1.0, "0.50": 3.0, "0.75": 4.0}])] = None
    rank_error: Annotated[float | None, Field(description="Quantiles are off by at most this share of ranks.")] = None
    distinct: Annotated[int | None, Field(description="Different values; of numbers not counted.")] = None
    distinct_error: Annotated[float | None, Field(description="By which share `distinct` may be off.")] = None


class PartDocument(BaseModel):
    """A summary of some rows."""

    count: Annotated[int, Field(examples=[12])]
    fields: dict[str, FieldSummaryDocument]


class CookedDocument(PartDocument):
    """A summary of rows that are no longer here."""

    bytes: Annotated[int, Field(description="That they took.", examples=[20480])]
    months: Annotated[list[str], Field(description="In which they came.", examples=[["2026-10"]])]


class SummaryDocument(BaseModel):
    """A view in numbers."""

    name: Annotated[str | None, Field(examples=["slothmail"])]
    version: Annotated[int, Field(examples=[4])]
    exact: Annotated[PartDocument, Field(description="Over the rows that the caller may see.")]
    cooked: Annotated[CookedDocument, Field(description="Over what has rotted and the caller could see then.")]
    together: Annotated[PartDocument, Field(description="What can be added up of both.")]


class FetchedDocument(BaseModel):
    """A copy that is whole again."""

    instance: Annotated[str, Field(examples=["0040" + "7ac3" * 32])]
    position: Annotated[str, Field(description="For `at_least`: when the view has seen it.", examples=["pVxH0Zr7c1"])]


_SUMMARY: Final[dict[str, Any]] = {
    "response_class": JSONResponse,
    "responses": {200: {"model": SummaryDocument}, **READING, **responses(*EXPENSIVE, "request.too-much-at-once")},
}


@view_routes(router, "/summary", **_SUMMARY)
async def show_summary(
    request: Request, node: NodeDependency, caller: CallerDependency, schema: SchemaPath
) -> Response:
    """Counts, sums and sketches of a view: exact over what is here, cooked over what has rotted, each marked."""
    return await make_large(request, _summary, node, caller, schema)


def _summary(node: Node, caller: Caller, name: str) -> JSONResponse:
    found = summarise(node, caller, name)
    cooked = {
        **summary_document(found.cooked),
        "bytes": found.cooked.bytes,
        "months": list(found.cooked.months),
    }
    return JSONResponse(
        {
            "name": found.view.name,
            "version": found.view.version,
            "exact": summary_document(found.exact),
            "cooked": cooked,
            "together": summary_document(add_summaries(found.exact, found.cooked)),
        }
    )


@router.put(
    "/instances/{instance}/keep",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "view.unknown-instance", "auth.out-of-scope"),
)
def keep_copy(node: NodeDependency, caller: CallerDependency, instance: InstancePath) -> Response:
    """Keep an instance that the caller may see: rot does not touch it, unless its owner lets it expire."""
    pin_instance(node, caller, parse_instance(instance))
    return Response(status_code=204)


@router.delete(
    "/instances/{instance}/keep",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "view.unknown-instance"),
)
def let_copy_go(node: NodeDependency, caller: CallerDependency, instance: InstancePath) -> Response:
    """Keep it no longer."""
    unpin_instance(node, caller, parse_instance(instance))
    return Response(status_code=204)


def fetching_of(request: Request, node: Node) -> RefetchContext:
    """What this node asks others with."""
    federation = federation_of(request)
    return RefetchContext(node, federation.transport, federation.discovery)


@router.post(
    "/instances/{instance}/fetch",
    response_class=JSONResponse,
    responses={
        200: {"model": FetchedDocument},
        **responses(
            "auth.required",
            "auth.not-allowed",
            "view.unknown-instance",
            "rot.no-such-copy",
            "rot.not-rotted",
            "parcel.bad",
            "federation.not-given-again",
            "federation.no-identity-there",
            "federation.bad-answer",
            "federation.timeout",
        ),
    },
)
async def fetch_copy(
    request: Request, node: NodeDependency, caller: CallerDependency, instance: InstancePath
) -> JSONResponse:
    """Bring back a copy that has rotted, whole, from the node of its owner, which decides whether it gives it."""
    identity = caller.require_identity()
    name = parse_instance(instance)
    await refetch_copy(fetching_of(request, node), identity, name)
    offset = await run_in_threadpool(node.store.read, newest_offset)
    return JSONResponse({"instance": name.hex(), "position": render_position(node.vault, offset)})


@router.get(
    COPIES_PATH + "/{instance}",
    response_class=Response,
    responses={
        200: {"description": "A delivery with one parcel", "content": {DELIVERY_MEDIA_TYPE: BINARY}},
        **responses(*SIGNED, "view.unknown-instance", "request.too-much-at-once"),
    },
)
async def give_copy(request: Request, node: NodeDependency, instance: InstancePath) -> Response:
    """Give another node an instance again, whole, in the name of an identity that may have it."""
    sender = await admit(request, b"")
    return await make_within_quota(request, sender.node_key, _copy, node, sender, parse_instance(instance))


def _copy(node: Node, sender: RemoteIdentity, instance: Hash) -> Response:
    return Response(answer_refetch(node, sender, instance), media_type=DELIVERY_MEDIA_TYPE)

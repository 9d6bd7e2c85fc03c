"""Routes for those who run a node: alive, ready, metrics."""

from ipaddress import ip_address
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from inkgrove.api.http.auth import NodeDependency
from inkgrove.api.http.connections import FORWARDING
from inkgrove.api.http.problems import responses
from inkgrove.api.http.telemetry import CONTENT_TYPE, Metrics
from inkgrove.node.errors import AuthError
from inkgrove.node.reading import read_lag
from inkgrove.node.runtime import Node

router = APIRouter(tags=["operation"])


class AliveDocument(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class ReadyDocument(BaseModel):
    """The stores can be reached, and entries are signed."""

    status: Literal["ready"] = "ready"
    view_lag: Annotated[
        int | None,
        Field(ge=0, description="What is not in the views yet; for this machine, and who may read /metrics."),
    ]


@router.get("/healthz")
async def show_health() -> AliveDocument:
    """Whether the process is alive."""
    return AliveDocument()


@router.get("/readyz", responses=responses("publish.restored"))
def show_readiness(request: Request, node: NodeDependency) -> ReadyDocument:
    """Whether the stores can be reached and entries are signed, and how far the views are behind."""
    node.signing.require_current()
    lag = read_lag(node)  # asked in any case: the views must be there
    return ReadyDocument(view_lag=lag if _is_local(request) or _may_count(request, node) else None)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **responses("auth.not-allowed"),
    },
)
def show_metrics(request: Request, node: NodeDependency) -> Response:
    """Numbers for Prometheus; the setting `node.metrics` says for whom."""
    if not _may_count(request, node):
        raise AuthError("auth.not-allowed", "metrics are not for you here: see the setting node.metrics")
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return Response(metrics.render(), media_type=CONTENT_TYPE)


def _may_count(request: Request, node: Node) -> bool:
    """Whether who asks may know how much the whole node does."""
    allowed = node.settings.metrics
    return allowed == "open" or (allowed == "local" and _is_local(request))


def _is_local(request: Request) -> bool:
    """Whether this machine asks by itself; a proxy on it asks for others."""
    if any(name in FORWARDING for name, _ in request.scope["headers"]):
        return False
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False

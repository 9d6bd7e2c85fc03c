"""Routes for those who run a node: alive, ready, metrics."""

from ipaddress import ip_address
from typing import Annotated, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from inkgrove.api.auth import NodeDependency
from inkgrove.api.metrics import CONTENT_TYPE, Metrics
from inkgrove.api.problems import responses
from inkgrove.node.errors import NotAllowed
from inkgrove.node.state import read_lag

router = APIRouter(tags=["operation"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """The stores can be reached."""

    status: Literal["ready"] = "ready"
    view_lag: Annotated[int, Field(ge=0, description="Positions of the store that are not in the views yet.")]


@router.get("/healthz")
async def show_health() -> Alive:
    """Whether the process is alive."""
    return Alive()


@router.get("/readyz")
def show_readiness(node: NodeDependency) -> Ready:
    """Whether the stores can be reached, and how far the views are behind."""
    return Ready(view_lag=read_lag(node))


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **responses(NotAllowed),
    },
)
def show_metrics(request: Request, node: NodeDependency) -> Response:
    """Numbers for Prometheus; the setting `node.metrics` says for whom."""
    allowed = node.settings.metrics
    if allowed == "off" or (allowed == "local" and not _is_local(request)):
        raise NotAllowed("metrics are not for you here: see the setting node.metrics")
    metrics = request.app.state.metrics
    assert isinstance(metrics, Metrics)
    return Response(metrics.render(), media_type=CONTENT_TYPE)


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ip_address(request.client.host).is_loopback
    except ValueError:
        return False

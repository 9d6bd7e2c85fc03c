"""The first page: the state of the node, its views, and how far the pipeline is."""

from fastapi import APIRouter, Response

from inkgrove.api.http.answers import make_large
from inkgrove.node.identity import list_hosted_identities
from inkgrove.node.reading import list_views, read_pipeline_state, read_state
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
async def show_home(visit: VisitDependency) -> Response:
    """Show the first page; administrators see identities and the state of the store too."""
    return await make_large(visit.request, _home, visit)


def _home(visit: Visit) -> Response:
    node, caller = visit.node, visit.caller
    listed, freshness = list_views(node, caller, with_count=True)
    facts = {
        "views": sorted(listed, key=lambda item: (item.view.name or "~", str(item.view.schema_id))),
        "is_current": freshness.is_current,
        "pipeline": read_pipeline_state(node),
        "state": read_state(node) if caller.is_administrator else None,
        "identities": list_hosted_identities(node) if caller.is_administrator else None,
        "settings": node.settings,
        "behind": node.signing.read_behind_state(),
    }
    return visit.show("home.html", facts)

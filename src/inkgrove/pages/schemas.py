"""The pages of schemas: versions as a timeline, what each migration did, the outcomes of messages."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from inkgrove.api.http.answers import make_large
from inkgrove.core.errors import QueryTooExpensive
from inkgrove.messages import Outcome, SchemaId, parse_schema_id
from inkgrove.node.errors import PublishError
from inkgrove.node.identity import name_of_author, names_of_authors
from inkgrove.node.reading import count_fallbacks, list_outcomes
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency
from inkgrove.pages.wording import steps_of, title_of_version
from inkgrove.schema import Schema
from inkgrove.store.views import View

router = APIRouter(route_class=PageRoute, include_in_schema=False)
TROUBLED = (Outcome.QUARANTINED, Outcome.PENDING, Outcome.OBSOLETE)


ROWS: Final = 25
_SHOWN: Final = 300
"""How many characters of a description the list shows."""


@router.get("/pages/schemas")
async def show_schemas(visit: VisitDependency, page: Annotated[int, Query(ge=1, le=1_000_000)] = 1) -> Response:
    """List the schemas that have a view here, by name, `ROWS` on a page."""
    return await make_large(visit.request, _schemas, visit, page)


def _schemas(visit: Visit, page: int) -> Response:
    node = visit.node
    views = sorted(node.views.views().values(), key=lambda view: (view.name or "~", view.schema_id))
    some = views[(page - 1) * ROWS : page * ROWS]
    owners = names_of_authors(node, {view.schema_id.author for view in some})
    found = []
    for view in some:
        schema = node.schemas.read(view.schema_id)
        about = (schema.meta.description if schema.meta else None) or ""
        found.append(
            {
                "id": view.schema_id,
                "name": (schema.meta.name if schema.meta else None) or view.name,
                "description": about if len(about) <= _SHOWN else about[:_SHOWN] + " …",
                "versions": len(schema.versions),
                "fields": len(view.fields),
                "owner": owners.get(view.schema_id.author),
                "stopped": view.stopped,
            }
        )
    facts = {
        "schemas": found,
        "first_page": "/pages/schemas" if page > 1 else None,
        "next_page": f"/pages/schemas?page={page + 1}" if len(views) > page * ROWS else None,
    }
    return visit.show("schemas.html", facts)


@router.get("/pages/schemas/{author}/{log_id:int}")
async def show_schema(
    visit: VisitDependency,
    author: str,
    log_id: int,
    only: Outcome = Outcome.QUARANTINED,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """Show a schema with its versions and the messages that were not applied."""
    return await make_large(visit.request, _schema, visit, author, log_id, only, cursor)


def _schema(visit: Visit, author: str, log_id: int, only: Outcome, cursor: str | None) -> Response:
    schema_id = parse_schema_id(f"{author}/{log_id}")
    schema = visit.node.schemas.read(schema_id) if schema_id is not None else None
    if schema_id is None or schema is None or not schema.versions:
        raise PublishError("publish.unknown-schema", f"no schema is held at {author[:64]}/{log_id}")
    view = visit.node.views.views().get(schema_id)
    facts: dict[str, Any] = {
        "schema": schema,
        "id": schema_id,
        "name": schema.meta.name if schema.meta else "A schema without a name",
        "owner": name_of_author(visit.node, schema_id.author),
        "view": view,
        "address": f"/pages/schemas/{author}/{log_id}",
        "only": only.value,
        "kinds": [kind.value for kind in TROUBLED],
        "fallbacks": None,
        "is_expensive": False,
        "outcomes": None,
    }
    if view is not None and view.is_built:
        facts |= _of_view(visit, schema_id, only, cursor)
    facts["versions"] = _timeline(schema, view, facts["fallbacks"])
    return visit.show("schema.html", facts)


def _of_view(visit: Visit, schema_id: SchemaId, only: Outcome, cursor: str | None) -> dict[str, Any]:
    name = str(schema_id)
    try:
        outcomes = list_outcomes(visit.node, visit.caller, name, only=only, cursor=cursor, limit=20)
        return {"outcomes": outcomes, "fallbacks": count_fallbacks(visit.node, visit.caller, name)}
    except QueryTooExpensive:
        return {"is_expensive": True}


def _timeline(schema: Schema, view: View | None, fallbacks: Any) -> list[dict[str, Any]]:
    newest = view.version if view is not None and view.version else len(schema.versions)
    live = set(schema.live_path(min(newest, len(schema.versions))))
    return [
        {
            "number": version.number,
            "parent": version.parent,
            "title": title_of_version(version),
            "steps": steps_of(version),
            "is_live": version.number in live,
            "is_newest": version.number == newest,
            "fields": version.fields,
            "fell_back": 0 if fallbacks is None else fallbacks.by_version.get(version.number, 0),
        }
        for version in reversed(schema.versions)
    ]

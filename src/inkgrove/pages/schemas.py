"""Schemas: versions as a timeline, what each migration did, what became of messages."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from inkgrove.messages.ids import SchemaId
from inkgrove.messages.outcomes import Outcome
from inkgrove.node.errors import UnknownSchemaLog
from inkgrove.node.fallbacks import count_fallbacks
from inkgrove.node.names import name_of_author
from inkgrove.node.outcomes import read_outcomes
from inkgrove.node.query import schemas_of
from inkgrove.node.schemas import parse_schema_id
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency
from inkgrove.pages.words import steps_of, title_of_version
from inkgrove.schema.schema import Schema
from inkgrove.store.view_store import View

router = APIRouter(route_class=PageRoute, include_in_schema=False)
TROUBLED = (Outcome.QUARANTINED, Outcome.PENDING, Outcome.OBSOLETE)


@router.get("/pages/schemas")
def show_schemas(visit: VisitDependency) -> Response:
    """Every schema that has a view here."""
    node = visit.node
    found = []
    for schema_id, view in node.views.views().items():
        schema = schemas_of(node).read(schema_id)
        found.append(
            {
                "id": schema_id,
                "name": (schema.meta.name if schema.meta else None) or view.name,
                "description": schema.meta.description if schema.meta else None,
                "versions": len(schema.versions),
                "fields": len(view.fields),
                "owner": name_of_author(node, schema_id.author),
                "stopped": view.stopped,
            }
        )
    return visit.show("schemas.html", {"schemas": sorted(found, key=lambda item: item["name"] or "~")})


@router.get("/pages/schemas/{author}/{log_id:int}")
def show_schema(
    visit: VisitDependency,
    author: str,
    log_id: int,
    only: Outcome = Outcome.QUARANTINED,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """A schema with its versions and the messages that did not come through."""
    schema_id = parse_schema_id(f"{author}/{log_id}")
    schema = schemas_of(visit.node).read(schema_id) if schema_id is not None else None
    if schema_id is None or schema is None or not schema.versions:
        raise UnknownSchemaLog(f"no schema is held at {author[:64]}/{log_id}")
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
        "outcomes": None,
    }
    if view is not None and view.is_built:
        facts |= _of_view(visit, schema_id, only, cursor)
    facts["versions"] = _timeline(schema, view, facts["fallbacks"])
    return visit.show("schema.html", facts)


def _of_view(visit: Visit, schema_id: SchemaId, only: Outcome, cursor: str | None) -> dict[str, Any]:
    name = str(schema_id)
    outcomes = read_outcomes(visit.node, visit.caller, name, only=only, cursor=cursor, limit=20)
    return {"outcomes": outcomes, "fallbacks": count_fallbacks(visit.node, visit.caller, name)}


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

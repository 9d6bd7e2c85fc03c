"""The page of a view: its rows as a table, filtered, sorted, page by page, live."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Response

from inkgrove.api.http.answers import make_large
from inkgrove.api.http.problems import status_of
from inkgrove.core.errors import BadFilter, QueryTooExpensive
from inkgrove.node.errors import BadCursor
from inkgrove.node.identity import names_of_authors
from inkgrove.node.reading import ViewPage, ViewQuery, query_view
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency
from inkgrove.schema import is_array

router = APIRouter(route_class=PageRoute, include_in_schema=False)
ROWS: Final = 25
_OPERATORS: Final = {
    "contains": "contains",
    "eq": "is",
    "ne": "is not",
    "gt": "is more than",
    "gte": "is at least",
    "lt": "is less than",
    "lte": "is at most",
    "is-null": "is missing (true or false)",
}
Text = Annotated[str, Query(max_length=2000)]
Cursor = Annotated[str | None, Query(max_length=20_000)]


@dataclass(frozen=True, slots=True)
class ViewForm:
    """The form above the table, as the query of the address has it."""

    field: Text = ""
    operator: Text = "contains"
    value: Text = ""
    sort: Text = ""
    cursor: Cursor = None


FormOfView = Annotated[ViewForm, Depends()]


@router.get("/pages/views/{schema}")
async def show_view(visit: VisitDependency, schema: str, form: FormOfView) -> Response:
    """Show the view of the one schema that has this name."""
    return await make_large(visit.request, _view, visit, schema, form)


@router.get("/pages/views/{author}/{log_id:int}")
async def show_view_of_schema(visit: VisitDependency, author: str, log_id: int, form: FormOfView) -> Response:
    """Show the view of a schema."""
    return await make_large(visit.request, _view, visit, f"{author}/{log_id}", form)


def _view(visit: Visit, schema: str, form: ViewForm) -> Response:
    chosen = {"field": form.field, "operator": form.operator, "value": form.value, "sort": form.sort}
    where = (
        [f"{form.field}:{form.operator}:{form.value}"] if form.field and (form.value or form.operator == "eq") else []
    )
    plain = ViewQuery(limit=ROWS, with_count=True, is_count_optional=True)
    question = replace(plain, where=where, sort=[form.sort] if form.sort else [], cursor=form.cursor)
    alarm, status = None, 200
    try:
        answer = query_view(visit.node, visit.caller, schema, question)
    except (BadFilter, BadCursor, QueryTooExpensive) as error:
        if question == plain:
            raise
        # The form again, with what was typed and why it does not work.
        alarm, status = error.public_message, status_of(error)
        answer = query_view(visit.node, visit.caller, schema, replace(plain, with_count=status == 400))
        chosen["sort"] = ""
    return visit.show("view.html", _facts(visit, answer, chosen, alarm, is_first=form.cursor is None), status=status)


def _facts(
    visit: Visit, answer: ViewPage, chosen: dict[str, str], alarm: str | None, *, is_first: bool
) -> dict[str, Any]:
    view = answer.view
    address = f"/pages/views/{view.schema_id}"
    kept = {name: text for name, text in chosen.items() if text and (name == "sort" or chosen["field"])}

    def link(**changes: str | None) -> str:
        query = {name: text for name, text in {**kept, **changes}.items() if text}
        return f"{address}?{urlencode(query)}" if query else address

    columns = [
        {
            "name": name,
            "type": kind,
            "is_sortable": kind != "blob" and not is_array(kind),
            "order": {name: "ascending", f"-{name}": "descending"}.get(chosen["sort"]),
            "link": link(sort=f"-{name}" if chosen["sort"] == name else name),
        }
        for name, kind in view.fields
    ]
    return {
        "view": view,
        "schema_id": view.schema_id,
        "address": address,
        "columns": columns,
        "rows": answer.rows,
        "count_all": answer.count,
        "names": names_of_authors(visit.node, list({row.author for row in answer.rows})),
        "next_page": None if answer.cursor is None else link(cursor=answer.cursor),
        "first_page": None if is_first else link(),
        "without_filter": link(field=None, operator=None, value=None),
        "chosen": chosen,
        "is_filtered": bool(chosen["field"]),
        "operators": _OPERATORS,
        "alarm": alarm,
        "changes": f"/views/{view.schema_id}/changes",
    }

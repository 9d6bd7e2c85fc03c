"""Routes of views: the list, pages of rows, outcomes, and for the administrator what is materialised."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from inkgrove.api.http.answers import json_answer, make_large
from inkgrove.api.http.auth import CallerDependency, NodeDependency, ReaderDependency
from inkgrove.api.http.limits import read_in_thread
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.changes import catch_up, get_watch
from inkgrove.api.routes.models import (
    EXPENSIVE,
    READING,
    AtLeast,
    AuthorPath,
    LogPath,
    OutcomesDocument,
    PageDocument,
    RegisteredDocument,
    SchemaPath,
    ViewsDocument,
    view_routes,
)
from inkgrove.messages import Outcome, SchemaId, parse_schema_id
from inkgrove.node.errors import UnknownView
from inkgrove.node.identity import Caller
from inkgrove.node.reading import (
    MAX_PAGE,
    Related,
    ViewPage,
    ViewQuery,
    list_outcomes,
    list_views,
    query_view,
    render_position,
    row_document,
)
from inkgrove.node.runtime import Node
from inkgrove.store.logs import newest_offset, register_schema, unregister_schema
from inkgrove.store.views import ViewRow

router = APIRouter(tags=["views"])

_MOST_WHERES: Final = 50
_MANY_ROWS: Final = 200
Where = Annotated[
    list[str],
    Query(
        description="`FIELD:OPERATOR:VALUE`, repeatable: eq, ne, lt, lte, gt, gte, in, contains, is-null.",
        max_length=_MOST_WHERES,
        examples=[["created:gte:2020-01-01T00:00:00Z"]],
    ),
]
Names = Annotated[str, Query(max_length=20_000)]


@router.get(
    "/views",
    response_class=JSONResponse,
    responses={200: {"model": ViewsDocument}, **responses("request.too-much-at-once")},
)
async def show_views(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    count: Annotated[bool, Query(description="Count the rows that may be seen.")] = False,
) -> Response:
    """Every view of the node: what it holds, and how far all of them have come."""
    return await make_large(request, _list, node, caller, count)


def _list(node: Node, caller: Caller, count: bool) -> Response:
    listed, freshness = list_views(node, caller, with_count=count)
    found = [
        {
            "schema": _schema(item.view.schema_id),
            "name": item.view.name,
            "version": item.view.version,
            "is_built": item.view.is_built,
            "fields": [{"name": name, "type": kind} for name, kind in item.view.fields],
            "waits_for": [_schema(schema_id) for schema_id in item.view.waits_for],
            "stopped": item.view.stopped,
            "rows": item.rows,
        }
        for item in listed
    ]
    how_far = {
        "is_current": freshness.is_current,
        "position": freshness.position,
        "behind": freshness.lag,
    }
    return JSONResponse({"views": found, "freshness": how_far})


def _schema(schema_id: SchemaId) -> dict[str, Any]:
    return {"author": schema_id.author.hex(), "log_id": schema_id.log_id}


async def get_question(
    where: Where = [],  # noqa: B006  it is copied
    sort: Annotated[Names | None, Query(description="Columns, `-` descends.", examples=["-created,subject"])] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    cursor: Annotated[str | None, Query(description="`cursor` of the page before.", max_length=20_000)] = None,
    fields: Annotated[Names | None, Query(description="Fields to show.", examples=["subject,created"])] = None,
    expand: Annotated[Names | None, Query(description="Relations to follow.", examples=["recipient"])] = None,
    count: Annotated[bool, Query(description="Count all rows that match.")] = False,
) -> ViewQuery:
    """What is asked of a view."""
    return ViewQuery(
        where=where,
        sort=_split(sort),
        limit=limit,
        cursor=cursor,
        fields=None if fields is None else _split(fields),
        expand=_split(expand),
        with_count=count,
    )


QuestionDependency = Annotated[ViewQuery, Depends(get_question)]
_PAGE: Final[dict[str, Any]] = {
    "response_class": JSONResponse,
    "responses": {
        200: {"model": PageDocument},
        **READING,
        **responses("input.bad-filter", "view.bad-cursor", "view.behind", *EXPENSIVE, "request.too-much-at-once"),
    },
}


@view_routes(router, "", **_PAGE)
async def show_view(
    request: Request,
    node: NodeDependency,
    reader: ReaderDependency,
    schema: SchemaPath,
    question: QuestionDependency,
    at_least: AtLeast = None,
) -> Response:
    """A page of the rows that the caller may see."""
    await catch_up(request, node, reader, at_least)
    if question.expand or question.limit > _MANY_ROWS:
        return await make_large(request, _page, node, reader, schema, question)
    return await read_in_thread(_page, node, reader, schema, question)


def _split(text: str | None) -> list[str]:
    return [] if not text else text.split(",")


def _page(node: Node, reader: str | None, name: str, question: ViewQuery) -> Response:
    answer = query_view(node, reader, name, question, at_once=not node.views.database.is_postgresql)
    return json_answer(
        {
            "schema": _schema(answer.view.schema_id),
            "name": answer.view.name,
            "version": answer.view.version,
            "rows": _rows(answer),
            "cursor": answer.cursor,
            "count": answer.count,
            "changes": answer.changes,
        }
    )


def _rows(answer: ViewPage) -> list[dict[str, Any]]:
    documents = [row_document(row, answer.owners[row.author]) for row in answer.rows]
    if answer.expansion is not None:
        for document, related in zip(documents, answer.expansion.related, strict=True):
            document["expanded"] = {field: _expand(found, answer) for field, found in related.items()}
        if answer.expansion.left_out:
            documents[0]["left_out"] = answer.expansion.left_out
    return documents


def _expand(found: Related, answer: ViewPage) -> Any:
    if isinstance(found, ViewRow):
        return row_document(found, answer.owners[found.author])
    return None if found is None else [_expand(item, answer) for item in found]


_OUTCOMES: Final[dict[str, Any]] = {
    "response_class": JSONResponse,
    "responses": {
        200: {"model": OutcomesDocument},
        **READING,
        **responses("view.bad-cursor", "view.behind", *EXPENSIVE, "request.too-much-at-once"),
    },
}
Only = Annotated[Outcome | None, Query(description="This outcome only.")]


@view_routes(router, "/outcomes", **_OUTCOMES)
async def show_outcomes(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    schema: SchemaPath,
    only: Only = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    at_least: AtLeast = None,
) -> Response:
    """What became of messages: of the caller's own all, of others' those whose row may be seen."""
    await get_watch(request).catch_up(at_least)

    def work() -> Response:
        return json_answer(list_outcomes(node, caller, schema, only=only, cursor=cursor, limit=limit))

    return await make_large(request, work)


@router.put(
    "/views/{author}/{log_id:int}",
    response_class=JSONResponse,
    responses={200: {"model": RegisteredDocument}, **responses("auth.required", "auth.not-allowed", "view.unknown")},
)
def index_schema(node: NodeDependency, caller: CallerDependency, author: AuthorPath, log_id: LogPath) -> JSONResponse:
    """Materialise a schema; its view is built by the pipeline. For the administrator."""
    caller.require_administrator()
    schema_id = _parse(author, log_id)
    is_new = node.store.write(register_schema, schema_id)
    position = render_position(node.vault, node.store.read(newest_offset))
    return JSONResponse({"schema": _schema(schema_id), "is_new": is_new, "position": position})


@router.delete(
    "/views/{author}/{log_id:int}",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "view.unknown"),
)
def unindex_schema(node: NodeDependency, caller: CallerDependency, author: AuthorPath, log_id: LogPath) -> Response:
    """Materialise a schema no more; its view goes, its messages stay. For the administrator."""
    caller.require_administrator()
    if not node.store.write(unregister_schema, _parse(author, log_id)):
        raise UnknownView(f"{author[:64]}/{log_id} is not materialised here")
    return Response(status_code=204)


def _parse(author: str, log_id: int) -> SchemaId:
    schema_id = parse_schema_id(f"{author}/{log_id}")
    if schema_id is None:
        raise UnknownView(f"{author[:64]!r}/{log_id} names no schema: write AUTHOR/LOG")
    return schema_id

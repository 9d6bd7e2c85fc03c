"""Routes that read single instances: as they are, as they were, their history and their proof."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import JSONResponse

from inkgrove.api.http.answers import json_answer, make_large
from inkgrove.api.http.auth import CallerDependency, NodeDependency, ReaderDependency
from inkgrove.api.http.limits import read_in_thread
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.changes import catch_up
from inkgrove.api.routes.models import AtLeast, HistoryDocument, InstanceDocument
from inkgrove.core import Hash
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import PROOF_MEDIA_TYPE, Delete, access_to_json, encode_proof, render_proof, value_to_json
from inkgrove.node.identity import Caller, authenticate
from inkgrove.node.reading import (
    HistoryMessage,
    parse_instance,
    prove_instance,
    read_history,
    row_document,
    show_instance,
    show_instance_at,
    written_fields,
)
from inkgrove.node.runtime import Node
from inkgrove.store.views import Owner, View, ViewRow

router = APIRouter(tags=["instances"])

InstancePath = Annotated[str, PathParameter(description="The instance's id in hex.", examples=["0040" + "7ac3" * 32])]
_REFUSALS: Final = responses(
    "view.unknown-instance", "auth.out-of-scope", "view.past-too-long", "request.too-much-at-once"
)


@router.get(
    "/instances/{instance}",
    response_class=JSONResponse,
    responses={200: {"model": InstanceDocument}, **_REFUSALS, **responses("view.behind")},
)
async def show(
    request: Request,
    node: NodeDependency,
    reader: ReaderDependency,
    instance: InstancePath,
    as_of: Annotated[
        int | None,
        Query(description="As it was after this entry of its log.", ge=1, le=MAX_STORED_INTEGER, examples=[7]),
    ] = None,
    at_least: AtLeast = None,
) -> Response:
    """An instance with the entry behind each of its values; of one that was continued, the last of its line."""
    await catch_up(request, node, reader, at_least)
    if as_of is not None:
        return await make_large(request, _show_then, node, reader, instance, as_of)
    if node.views.database.is_postgresql:
        return await read_in_thread(_show_now, node, reader, instance)
    # A look into some indexes of a file: a thread takes longer to wake up.
    named = parse_instance(instance)
    return _answer(named, *show_instance(node, reader, named, at_once=True))


def _show_then(node: Node, token: str | None, instance: str, as_of: int) -> Response:
    named = parse_instance(instance)
    return _answer(named, *show_instance_at(node, authenticate(node, token), named, as_of))


def _show_now(node: Node, token: str | None, instance: str) -> Response:
    named = parse_instance(instance)
    return _answer(named, *show_instance(node, token, named))


def _answer(named: Hash, view: View, row: ViewRow, owner: Owner) -> Response:
    return json_answer(
        {
            "schema": {"author": view.schema_id.author.hex(), "log_id": view.schema_id.log_id},
            "version": view.version,
            **row_document(row, owner),
            "provenance": row.field_seq_nums,
            **({"continues": named.hex()} if row.instance != named else {}),
        }
    )


@router.get(
    "/instances/{instance}/history",
    response_class=JSONResponse,
    responses={200: {"model": HistoryDocument}, **_REFUSALS},
)
async def show_history(
    request: Request, node: NodeDependency, caller: CallerDependency, instance: InstancePath
) -> Response:
    """Every message of an instance in the order of its log, in the words of its own version, and its outcome.

    For its owner also those of the instances that it has come in place of, oldest first.
    """
    return await make_large(request, _history, node, caller, parse_instance(instance))


def _history(node: Node, caller: Caller, instance: Hash) -> Response:
    events = [_event(event) for event in read_history(node, caller, instance)]
    return json_answer({"instance": instance.hex(), "history": events})


def _event(event: HistoryMessage) -> dict[str, Any]:
    message, ruling = event.message, event.ruling
    access = None if message is None or isinstance(message, Delete) else message.access
    return {
        "seq_num": event.seq_num,
        "hash": event.hash.hex(),
        "kind": None if message is None else type(message).__name__.lower(),
        "version": None if message is None or message.schema is None else message.schema.version,
        "fields": {} if message is None else value_to_json(written_fields(message)),
        "access": None if access is None else access_to_json(access),
        "outcome": None if ruling is None else ruling.outcome.value,
        "code": None if ruling is None else ruling.code,
        "reason": None if ruling is None else ruling.reason,
        "instance": event.instance.hex(),
    }


@router.get(
    "/instances/{instance}/proof",
    response_class=Response,
    responses={
        200: {
            "description": "A file for `inkgrove proof verify`",
            "content": {
                PROOF_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
                "application/json": {"schema": {"type": "object"}},
            },
        },
        **_REFUSALS,
    },
)
async def show_proof(
    request: Request, node: NodeDependency, caller: CallerDependency, instance: InstancePath
) -> Response:
    """The entries of an instance with payloads, and without payloads those that prove them; CBOR, or JSON if asked."""
    is_json = "application/json" in request.headers.get("accept", "")
    return await make_large(request, _proof, node, caller, parse_instance(instance), is_json)


def _proof(node: Node, caller: Caller, name: Hash, is_json: bool) -> Response:
    proof = prove_instance(node, caller, name)
    suffix = "json" if is_json else "proof"
    headers = {
        "Content-Disposition": f'attachment; filename="{name.hex()[4:20]}.{suffix}"',
        "Vary": "Accept, Authorization, Cookie",
    }
    data = render_proof(proof) if is_json else encode_proof(proof)
    return Response(data, 200, headers, "application/json" if is_json else PROOF_MEDIA_TYPE)

"""Routes that publish by entry: the client signs, the node verifies."""

import asyncio
from base64 import b64decode
from binascii import Error as BadBase64
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from inkgrove.api.http.answers import make_large
from inkgrove.api.http.bodies import take_body
from inkgrove.api.http.formats import media_type_of, read_json
from inkgrove.api.http.problems import problem_facts, responses
from inkgrove.api.routes.models import StrictModel
from inkgrove.api.routes.publishing import answer, require_token, writer_of
from inkgrove.core import parse_public_key
from inkgrove.messages import cbor
from inkgrove.node.errors import RequestError
from inkgrove.node.identity import authenticate
from inkgrove.node.publishing import (
    MAX_BATCH,
    CheckedEntries,
    FindNext,
    PublishEntries,
    PublishJob,
    PublishReceipt,
    Reply,
    check_entries,
    compile_patterns,
    patterns_in,
    require_few_changes,
)
from inkgrove.node.runtime import Node
from inkgrove.signature_process import are_signed
from inkgrove.store.logs import IngestItem

router = APIRouter(tags=["publishing"])

CBOR = "application/cbor"


class EntryBody(StrictModel):
    """An entry and its payload, in base64."""

    entry: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
    payload: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]


class NextEntryDocument(BaseModel):
    """What the next entry must carry."""

    author: str
    log_id: int
    seq_num: int
    lipmaa_link: str | None
    backlink: str | None
    hash: Annotated[str, Field(description="yamf (BLAKE2b-512, what we write) or yasmf (BLAKE3-256)")]
    position: str


class ReceiptDocument(BaseModel):
    """What became of one entry: stored, known (it was here already) or refused, with the problem."""

    hash: str | None
    status: str
    problem: dict[str, Any] | None = None


class ReceiptsDocument(BaseModel):
    """What became of each entry, in the order given."""

    receipts: list[ReceiptDocument]
    position: str


_ITEM = EntryBody.model_json_schema()
_BATCH = {
    "type": "object",
    "properties": {"entries": {"type": "array", "items": _ITEM, "minItems": 1, "maxItems": MAX_BATCH}},
    "required": ["entries"],
    "additionalProperties": False,
}
_BODY = {
    "requestBody": {
        "required": True,
        "description": "One entry, or `entries` with up to 1,000; in CBOR entry and payload are byte strings.",
        "content": {
            "application/json": {
                "schema": {"oneOf": [_ITEM, _BATCH], "examples": [{"entry": "AAEC", "payload": "oA=="}]}
            },
            CBOR: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "For example the map `{entry: h'000102', payload: h'a0'}`.",
                }
            },
        },
    }
}


@router.get(
    "/publish/next",
    response_model=NextEntryDocument,
    responses=responses(
        "auth.required",
        "auth.bad-token",
        "auth.out-of-scope",
        "auth.not-allowed",
        "publish.foreign-author",
        "publish.revoked-key",
        "publish.unknown-schema",
        "view.unknown",
        "view.ambiguous-name",
        "publish.closing",
        "request.invalid",
        "key.bad-key",
        "log.ended",
        "log.forked",
        "store.unavailable",
    ),
)
async def next_place(
    request: Request,
    author: Annotated[str | None, Query(description="A key of the identity; its first one if left out.")] = None,
    schema: Annotated[str | None, Query(description="AUTHOR/LOG or a name: the log of its instances.")] = None,
    log_id: Annotated[int | None, Query(ge=0, lt=2**63, description="This very log; neither: a new one.")] = None,
) -> Response:
    """The log id, sequence number and links that the next entry of an author must carry."""
    if schema is not None and log_id is not None:
        raise RequestError("request.invalid", "give schema or log_id, not both")
    key = parse_public_key(author) if author is not None else None
    return answer(await writer_of(request).submit(PublishJob(require_token(request), FindNext(key, schema, log_id))))


@router.post(
    "/entries",
    response_model=ReceiptsDocument,
    responses={
        201: {"description": "The one entry is stored", "model": ReceiptDocument},
        **responses(
            "auth.required",
            "auth.bad-token",
            "auth.out-of-scope",
            "auth.not-allowed",
            "publish.foreign-author",
            "publish.revoked-key",
            "publish.foreign-instance",
            "publish.second-log",
            "publish.mixed-schemas",
            "publish.wrong-log",
            "publish.would-not-apply",
            "publish.payload-needed",
            "publish.unknown-schema",
            "publish.closing",
            "quota.exceeded",
            "storage.low-disk",
            "request.too-much-at-once",
            "request.invalid",
            "request.unsupported-media-type",
            "log.stale",
            "entry.bad-signature",
            "payload.hash-mismatch",
            "store.unavailable",
        ),
    },
    openapi_extra=_BODY,
)
async def publish_entries(request: Request) -> Response:
    """Append entries that the client signed, each judged on its own: `receipts` says what became of them."""
    token = require_token(request)
    media_type = media_type_of(request)
    if media_type not in ("application/json", CBOR):
        raise RequestError("request.unsupported-media-type", f"entries are application/json or {CBOR}")
    body = [await take_body(request)]
    if len(body[0]) < _SMALL:
        is_single, items = _read_items(body.pop(), media_type)
        offer = check_entries(items, are_signed)
    else:
        # Verifying is computing, and may wait for another process: it must not hold up the other requests.
        work = (request.app.state.node, token, body, media_type)
        is_single, offer = await asyncio.get_running_loop().run_in_executor(_verifier, _check_then_read, *work)
    require_few_changes(offer)
    if patterns_in(offer):
        await make_large(request, _compile_first, request.app.state.node, token, offer)
    reply = await writer_of(request).submit(PublishJob(token, PublishEntries(offer)))
    receipts: list[PublishReceipt] = reply.body["receipts"]
    if not is_single:
        return answer(Reply(200, {**reply.body, "receipts": [_render(receipt) for receipt in receipts]}))
    (receipt,) = receipts
    if receipt.error is not None:
        raise receipt.error
    status = 201 if receipt.status == "stored" else 200
    return answer(Reply(status, {**_render(receipt), "position": reply.body["position"]}))


_SMALL = 16 * 1024
_verifier = ThreadPoolExecutor(2, "inkgrove-verifier")  # more of them only wait for each other


def _compile_first(node: Node, token: str, offer: CheckedEntries) -> Response:
    """Compile the patterns of migrations before the one writer of the node is asked; the answer is empty."""
    authenticate(node, token)
    compile_patterns(offer)
    return Response()


def _check_then_read(node: Node, token: str, body: list[bytes], media_type: str) -> tuple[bool, CheckedEntries]:
    """Authenticate, then read and check entries; `body` is a list of one, which is taken out of it.

    So the bytes of the body are gone once they are read, and not in memory beside the entries until these are stored.
    """
    authenticate(node, token)  # nobody makes us verify thousands of signatures without a token
    is_single, items = _read_items(body.pop(), media_type)
    return is_single, check_entries(items, node.signatures.are_signed)


def _read_items(body: bytes, media_type: str) -> tuple[bool, list[IngestItem]]:
    """Return whether a body is a single entry, and its entries with their payloads; raises `request.invalid`."""
    value = cbor.decode(body) if media_type == CBOR else read_json(body)
    if type(value) is not dict:
        raise RequestError("request.invalid", "the body is an object with entry and payload, or with entries")
    is_single = "entries" not in value
    items = [value] if is_single else value["entries"]
    if (not is_single and len(value) > 1) or type(items) is not list or not 1 <= len(items) <= MAX_BATCH:
        raise RequestError("request.invalid", f"entries is a list of 1 to {MAX_BATCH} objects with entry and payload")
    read = _bytes_of if media_type == CBOR else _from_base64
    return is_single, [_read_item(item, read) for item in items]


def _read_item(item: Any, read: Any) -> IngestItem:
    if type(item) is not dict or not {"entry"} <= item.keys() <= {"entry", "payload"}:
        raise RequestError("request.invalid", "each entry is an object with entry and payload")
    payload = item.get("payload")
    return read(item["entry"]), read(payload) if payload is not None else None


def _bytes_of(value: Any) -> bytes:
    if type(value) is not bytes:
        raise RequestError("request.invalid", "in CBOR, entry and payload are byte strings")
    return value


def _from_base64(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (BadBase64, TypeError, ValueError):
        raise RequestError("request.invalid", "in JSON, entry and payload are standard base64") from None


def _render(receipt: PublishReceipt) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "hash": receipt.hash.hex() if receipt.hash is not None else None,
        "status": receipt.status,
    }
    if receipt.error is not None:
        facts["problem"] = problem_facts(receipt.error)
    return facts

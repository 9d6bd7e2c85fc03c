"""Routes of blobs: upload as a stream, download with ETag (RFC 9110 section 13) and a single range (section 14)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Header, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import CallerDependency, NodeDependency
from inkgrove.api.http.formats import media_type_of
from inkgrove.api.http.problems import problem, responses
from inkgrove.api.routes.federation import federation_of
from inkgrove.node.blobs import Upload, find_blob, require_uploader
from inkgrove.node.errors import BadRange, RequestError, UnknownBlob

router = APIRouter(tags=["blobs"])

_CHUNK: Final = 256 * 1024
_INERT: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain"}
    | {"audio/mpeg", "audio/ogg", "audio/wav", "audio/mp4", "audio/aac", "audio/flac", "audio/webm"}
    | {"video/mp4", "video/webm", "video/ogg"}
)
"""What a browser may show in place, under its own type; all else is a file of bytes, lest it be run as a script."""
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]{1,127}/[\w!#$&^.+-]{1,127}", re.ASCII)
_UNKNOWN_TYPE: Final = "application/octet-stream"
_FORMS: Final = frozenset({"multipart/form-data", "application/x-www-form-urlencoded"})
_EXAMPLE: Final = "0040" + "7ac3" * 32


class BlobDocument(BaseModel):
    """A blob as fields of instances hold it."""

    hash: Annotated[str, Field(pattern="^0040[0-9a-f]{128}$", examples=[_EXAMPLE])]
    size: Annotated[int, Field(ge=0, examples=[20480])]
    type: Annotated[str, Field(examples=["image/png"])]


@router.post(
    "/blobs",
    status_code=201,
    responses=responses(
        "auth.required",
        "auth.out-of-scope",
        "blob.too-large",
        "request.unsupported-media-type",
        "quota.exceeded",
        "storage.low-disk",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The bytes as they are, with their own Content-Type.",
            "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_blob(request: Request, node: NodeDependency, caller: CallerDependency) -> BlobDocument:
    """Upload bytes; an instance's `blob` field takes the answer as it is. Unused blobs are removed after a while."""
    require_uploader(caller)
    media_type = media_type_of(request) or _UNKNOWN_TYPE
    if media_type in _FORMS or _MEDIA_TYPE.fullmatch(media_type) is None:
        raise RequestError(
            "request.unsupported-media-type", "send the bytes as they are, with their own Content-Type: no form"
        )
    with await run_in_threadpool(Upload, node, caller) as upload:
        waiting = bytearray()
        async for chunk in request.stream():
            waiting += chunk
            if len(waiting) >= _CHUNK:
                await run_in_threadpool(upload.write, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(upload.write, bytes(waiting))
        blob = await run_in_threadpool(upload.finish, media_type)
    return BlobDocument(hash=blob.hash.hex(), size=blob.size, type=blob.media_type)


_CONTENT: Final[dict[str, Any]] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "/blobs/{hash}",
    response_class=Response,
    responses={
        200: {"description": "The bytes", "content": _CONTENT},
        206: {"description": "The range asked for", "content": _CONTENT},
        304: {"description": "The client has them already"},
        **responses("blob.unknown", "blob.bad-range", "storage.low-disk"),
    },
)
async def download_blob(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    hash: Annotated[str, PathParameter(examples=[_EXAMPLE])],  # noqa: A002  the name in the address
    range: Annotated[str | None, Header(examples=["bytes=0-1023"])] = None,  # noqa: A002
    if_none_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """The bytes of a blob, or a range of them, for those who see an instance that lends it; fetched from its owner."""
    try:
        blob = await run_in_threadpool(find_blob, node, caller, hash)
    except UnknownBlob:
        # It may be with the owner of an instance that was shared with the caller.
        if not await federation_of(request).blobs.fetch(caller, hash):
            raise
        blob = await run_in_threadpool(find_blob, node, caller, hash)
    etag = f'"{blob.hash.hex()}"'
    is_inert = blob.media_type in _INERT
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        # Kept by the client alone, which asks each time whether it may still be read.
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f'{"inline" if is_inert else "attachment"}; filename="{blob.hash.hex()[4:20]}"',
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Vary": "Authorization, Cookie",
    }
    if matches_etag(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    try:
        part = parse_range(range, blob.size) if if_range is None or if_range == etag else None
    except BadRange as error:
        refused = problem(error)
        refused.headers["Content-Range"] = f"bytes */{blob.size}"
        return refused
    first, end = part or ByteRange(0, blob.size)
    headers["Content-Length"] = str(end - first)
    if part is not None:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{blob.size}"
    headers["Content-Type"] = blob.media_type if is_inert else _UNKNOWN_TYPE
    return StreamingResponse(_read(blob.path, first, end), 206 if part is not None else 200, headers)


def _read(path: Path, first: int, end: int) -> Iterator[bytes]:
    # Opened when the bytes are wanted: an answer to HEAD never asks for them.
    with path.open("rb") as file:
        file.seek(first)
        while first < end and (data := file.read(min(_CHUNK, end - first))):
            first += len(data)
            yield data


_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


class ByteRange(NamedTuple):
    """From the first byte up to, and without, the end."""

    first: int
    end: int


def parse_range(header: str | None, size: int) -> ByteRange | None:
    """The range that is asked for; None for everything, also where there is no header or one of another form."""
    match = _RANGE.fullmatch(header.strip()) if header is not None else None
    if match is None or match.group(0) == "bytes=-":
        return None  # several ranges too: the whole is a valid answer to them
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    found = ByteRange(int(first), min(int(last) + 1, size) if last else size) if first else None
    if found is None:
        found = ByteRange(max(0, size - int(last)), size)
    if found.first >= found.end:
        raise BadRange(f"the blob has {size} bytes", size=size)
    return found


def matches_etag(header: str | None, etag: str) -> bool:
    """Whether a list of ETags, as If-None-Match has it, names this one."""
    if header is None:
        return False
    named = {item.strip().removeprefix("W/") for item in header.split(",")}
    return "*" in named or etag in named

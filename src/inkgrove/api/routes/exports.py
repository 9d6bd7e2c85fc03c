"""Routes of exports: everything that the caller has here as one file, written in the background, then downloaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import CallerDependency
from inkgrove.api.http.problems import problem, responses
from inkgrove.api.routes.blobs import ByteRange, matches_etag, parse_range
from inkgrove.api.routes.models import StrictModel
from inkgrove.messages import Timestamp
from inkgrove.messages.person_file import PERSON_MEDIA_TYPE
from inkgrove.node.errors import BadRange
from inkgrove.node.person_file import ExportJob, Exports

router = APIRouter(tags=["exports"])
_CHUNK: Final = 256 * 1024
_EXAMPLE: Final = "7ac3" * 8


async def give_exports(request: Request) -> Exports:
    """The exports of the node that the application serves."""
    exports = request.app.state.exports
    assert isinstance(exports, Exports)
    return exports


ExportsDependency = Annotated[Exports, Depends(give_exports)]
IdParameter = Annotated[str, PathParameter(examples=[_EXAMPLE])]


class ExportBody(StrictModel):
    """How the file is to be."""

    passphrase: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1000,
            examples=["correct horse battery staple"],
            description="Puts your first key into the file, sealed with this; only if the node keeps it. Without a "
            "passphrase no secret is in the file.",
        ),
    ] = None


class ExportDocument(BaseModel):
    """An export of the caller."""

    id: Annotated[str, Field(examples=[_EXAMPLE])]
    state: Literal["waiting", "running", "finished", "failed"]
    asked: Annotated[str, Field(examples=["2026-11-18T10:00:00Z"])]
    has_secret: Annotated[bool, Field(description="Whether your first key is in it, sealed with your passphrase.")]
    phase: Annotated[str | None, Field(description="What is being written.", examples=["entries"])]
    done: Annotated[int, Field(ge=0, description="How much of it.")]
    total: Annotated[int | None, Field(description="Of how much, if that is known.")]
    size: Annotated[int | None, Field(description="How many bytes the finished file has.")]
    digest: Annotated[
        str | None, Field(description="BLAKE2b-512 of the finished file without its last 82 bytes, which hold it too.")
    ]
    expires: Annotated[str | None, Field(description="When it is removed, once it is finished or has failed.")]
    code: Annotated[str | None, Field(description="Why it failed.")]
    address: Annotated[str | None, Field(description="Where the finished file is downloaded.")]


def _document(job: ExportJob) -> ExportDocument:
    return ExportDocument(
        id=job.id,
        state=job.state,
        asked=str(Timestamp(job.asked)),
        has_secret=job.has_secret,
        phase=job.phase,
        done=job.done,
        total=job.total,
        size=job.size,
        digest=job.digest,
        expires=None if job.expires is None else str(Timestamp(job.expires)),
        code=job.code,
        address=f"/me/export/{job.id}/file" if job.state == "finished" else None,
    )


@router.post(
    "/me/export",
    status_code=202,
    responses=responses(
        "auth.required",
        "auth.not-allowed",
        "identity.weak-password",
        "export.no-secret",
        "auth.busy",
        "storage.low-disk",
    ),
)
def start_export(exports: ExportsDependency, caller: CallerDependency, body: ExportBody) -> ExportDocument:
    """Begin to write everything that you have here into one file; one that is under way is answered instead.

    A finished file of before is removed. See docs/person-file.md for what is in it.
    """
    return _document(exports.start(caller.require_identity(), body.passphrase))


@router.get("/me/export/{id}", responses=responses("auth.required", "auth.not-allowed", "export.unknown"))
def show_export(exports: ExportsDependency, caller: CallerDependency, id: IdParameter) -> ExportDocument:  # noqa: A002
    """How far an export is; when it is finished, the size and the digest of its file."""
    return _document(exports.find(caller.require_identity(), id))


@router.delete(
    "/me/export/{id}",
    status_code=204,
    responses=responses("auth.required", "auth.not-allowed", "export.unknown", "export.not-finished"),
)
def remove_export(exports: ExportsDependency, caller: CallerDependency, id: IdParameter) -> Response:  # noqa: A002
    """Remove a file before it expires."""
    exports.remove(caller.require_identity(), id)
    return Response(status_code=204)


PERSON_CONTENT: Final[dict[str, Any]] = {PERSON_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}


@router.get(
    "/me/export/{id}/file",
    response_class=Response,
    responses={
        200: {"description": "The file", "content": PERSON_CONTENT},
        206: {"description": "The range asked for", "content": PERSON_CONTENT},
        304: {"description": "The client has it already"},
        **responses("auth.required", "auth.not-allowed", "export.unknown", "export.not-finished", "blob.bad-range"),
    },
)
async def download_export(
    exports: ExportsDependency,
    caller: CallerDependency,
    id: IdParameter,  # noqa: A002
    range: Annotated[str | None, Header(examples=["bytes=1048576-"])] = None,  # noqa: A002
    if_none_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """The finished file, or a range of it: a download that was cut off goes on where it stopped."""
    job, path = await run_in_threadpool(exports.find_file, caller.require_identity(), id)
    return serve_person_file(job, path, range, if_none_match=if_none_match, if_range=if_range)


def serve_person_file(
    job: ExportJob, path: Path, asked: str | None, *, if_none_match: str | None, if_range: str | None
) -> Response:
    """The answer with a finished file, or with the range that was asked for."""
    etag, size = f'"{job.digest}"', job.size or 0
    headers = {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-store",
        "Content-Disposition": f'attachment; filename="{job.id[:8]}.person"',
        "Vary": "Authorization, Cookie",
    }
    if matches_etag(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    try:
        part = parse_range(asked, size) if if_range is None or if_range == etag else None
    except BadRange as error:
        refused = problem(error)
        refused.headers["Content-Range"] = f"bytes */{size}"
        return refused
    first, end = part or ByteRange(0, size)
    headers["Content-Length"] = str(end - first)
    if part is not None:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
    headers["Content-Type"] = PERSON_MEDIA_TYPE
    return StreamingResponse(_read(path, first, end), 206 if part is not None else 200, headers)


def _read(path: Path, first: int, end: int) -> Iterator[bytes]:
    # Opened when the bytes are wanted: an answer to HEAD never asks for them.
    with path.open("rb") as file:
        file.seek(first)
        while first < end and (data := file.read(min(_CHUNK, end - first))):
            first += len(data)
            yield data

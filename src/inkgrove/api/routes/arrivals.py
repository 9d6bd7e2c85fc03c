"""Routes of identities that come here from another node: begun with a proof of the first key, ended with its document.

docs/protocol.md section 7.10.2. Whoever begins an arrival gets a token, once, with which all the rest is done.
"""

import json
from base64 import b64encode
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import (
    AddressDependency,
    CallerDependency,
    NodeDependency,
    bearer_of,
    get_node,
)
from inkgrove.api.http.limits import PASSWORDS
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.federation import federation_of
from inkgrove.api.routes.identities import (
    NAME_CODES,
    HostedIdentityDocument,
    KeyProofBody,
    LogEndDocument,
    leads_here,
    render_end,
    render_identity,
)
from inkgrove.api.routes.models import Fqdn, Password, SignedEntryBody, StrictModel
from inkgrove.core import PublicKey, identity_of, parse_public_key
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import IdentityDocument, Timestamp, encode_message
from inkgrove.node.identity import check_key_proof, count_identity, hash_password, parse_fqdn, require_takeable
from inkgrove.node.moving import (
    ArrivalProgress,
    PartWriter,
    begin_arrival,
    check_mandate,
    file_request,
    give_up,
    read_progress,
    require_arrival,
    resume_file,
    settle,
)
from inkgrove.node.publishing import render_next_entry
from inkgrove.node.runtime import Node
from inkgrove.store.node import StoredArrival

router = APIRouter(tags=["arrivals"])
_CHUNK: Final = 256 * 1024
_ID: Final = "7ac3" * 8
IdParameter = Annotated[str, PathParameter(description="The id of an arrival.", examples=[_ID])]


class ArrivalFileBody(StrictModel):
    """The file of a person that will come, as its last 82 bytes say."""

    size: Annotated[int, Field(ge=1, le=MAX_STORED_INTEGER, description="How many bytes it has.")]
    digest: Annotated[
        str,
        Field(pattern="^[0-9a-f]{128}$", examples=["00" * 64], description="BLAKE2b-512 of all but its last 82 bytes."),
    ]
    older: Annotated[
        bool, Field(description="Take in what is lacking although this node holds newer entries than the file.")
    ] = False


class MandateBody(StrictModel):
    """That the first key lets the controller of the challenge ask other nodes for its logs, for some days.

    The signature is over `inkgrove fetch my logs v1`, a zero byte, and id, controller and `until` in three lines.
    """

    until: Annotated[int, Field(ge=0, le=10**12, description="Seconds since 1970.", examples=[1_796_000_000])]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$", examples=["00" * 64])]


class NewArrivalBody(StrictModel):
    """An identity that is to live here, from a node that does not help: with its file, or with the words and friends.

    `proof` is over an empty entry, the name and this node's endpoint.
    """

    key: Annotated[
        str,
        Field(
            pattern="^[0-9a-f]{64}$",
            examples=["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"],
            description="The first key of the identity.",
        ),
    ]
    fqdn: Annotated[Fqdn, Field(description="The name that it takes here.")]
    password: Password
    proof: KeyProofBody
    file: ArrivalFileBody | None = None
    friends: Annotated[
        list[Fqdn] | None,
        Field(max_length=50, description="Names of friends, or of peers, whose nodes are asked for what they hold."),
    ] = None
    mandate: MandateBody | None = None

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> "NewArrivalBody":
        if (self.file is None) == (self.friends is None):
            raise ValueError("bring a file, or name friends (an empty list: only this node is asked)")
        if (self.friends is None) != (self.mandate is None):
            raise ValueError("friends are asked with a mandate, and a mandate is for friends")
        return self


class FriendDocument(BaseModel):
    """A friend whose node is asked."""

    fqdn: str
    state: Annotated[Literal["waiting", "answered", "failed"], Field(description="`failed`: asked again later.")]
    entries: Annotated[int, Field(description="How many entries it had that nobody else had brought.")]
    reason: str | None


class KeyEndsDocument(BaseModel):
    """How far the logs of a key go here, as a document that revokes it would list it."""

    key: str
    ends: list[tuple[int, int] | tuple[int, int, str]]


class ArrivalDocument(BaseModel):
    """How far an identity has come.

    In the state `committing` it also has the place of the next entry of log 0, the payloads of the document in effect
    and of the newest one that the first key signed itself, in base64, and how far the logs of all keys in use go.
    """

    id: Annotated[str, Field(examples=[_ID])]
    identity: str
    fqdn: str
    endpoint: Annotated[str, Field(description="What the document has to name as endpoint.")]
    state: Annotated[
        Literal["asked", "fetching", "arriving", "committing", "here"],
        Field(
            description="Begun; what is to come is coming; it is checked and taken in; the document is waited for; the "
            "identity lives here."
        ),
    ]
    way: Literal["helped", "file", "friends"]
    controller: Annotated[str, Field(description="The key that the document has to name and to list.")]
    received: Annotated[int, Field(description="How many bytes of the file have come.")]
    size: Annotated[int | None, Field(description="Of how many.")]
    friends: list[FriendDocument]
    code: Annotated[str | None, Field(description="What keeps it from going on.")]
    reason: str | None
    is_finished: Annotated[bool, Field(description="Whether all that follows `here` is done too.")]
    begun: str
    next: LogEndDocument | None
    document: str | None
    first_document: str | None
    ends: list[KeyEndsDocument] | None


class NewArrivalDocument(ArrivalDocument):
    """An arrival that has begun, with its token, which is given once; nobody can sign in with it."""

    token: str


class CommitBody(StrictModel):
    """The document with which the identity lives here: the next entry of log 0, signed by the first key."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"signed": {"entry": "AAEC", "payload": "oA=="}}]})
    signed: SignedEntryBody


def render_arrival(node: Node, progress: ArrivalProgress) -> dict[str, Any]:
    """How far an arrival has come, as answers show it."""
    arrival = progress.arrival
    request, facts = json.loads(arrival.request), json.loads(arrival.facts)
    asked: dict[str, Any] = facts.get("friends", {})
    friends = [(name, asked.get(name, {})) for name in request.get("friends", [])]
    ends = None
    if progress.ends is not None:
        ends = [{"key": key.hex(), "ends": list(map(render_end, some))} for key, some in progress.ends.items()]
    return {
        "id": arrival.id,
        "identity": arrival.identity.hex(),
        "fqdn": arrival.fqdn,
        "endpoint": node.settings.endpoint.format(fqdn=arrival.fqdn),
        "state": arrival.state,
        "way": arrival.way,
        "controller": arrival.controller.hex(),
        "received": progress.received,
        "size": request.get("size"),
        "friends": [
            {
                "fqdn": name,
                "state": friend.get("state", "waiting"),
                "entries": friend.get("entries", 0),
                "reason": friend.get("reason"),
            }
            for name, friend in friends
        ],
        "code": arrival.code,
        "reason": arrival.reason,
        "is_finished": arrival.finished is not None,
        "begun": str(Timestamp(arrival.begun)),
        "next": None if progress.next is None else render_next_entry(progress.next),
        "document": _payload(progress.document),
        "first_document": _payload(progress.first_document),
        "ends": ends,
    }


def _payload(document: IdentityDocument | None) -> str | None:
    return None if document is None else b64encode(encode_message(document)).decode()


_BEGIN: Final = (
    "auth.required",
    "auth.not-allowed",
    *NAME_CODES,
    "identity.weak-password",
    "identity.unproved",
    "auth.too-many-attempts",
    "auth.busy",
    "arrival.lives-here",
    "arrival.too-many",
    "arrival.too-large",
    "storage.low-disk",
)


@router.post("/identities/arrivals", status_code=201, response_model=NewArrivalDocument, responses=responses(*_BEGIN))
async def start_arrival(
    request: Request, node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: NewArrivalBody
) -> dict[str, Any]:
    """Begin to bring an identity here whose old node is dead or hostile; one that was begun before gives way.

    Ask for a challenge first (`POST /identities/challenges`) and sign it with the first key. What has come of the same
    file stays.
    """
    if node.settings.registration != "open":
        caller.require_administrator()
    elif not caller.is_administrator:
        await run_in_threadpool(count_identity, node, address)
    key = parse_public_key(body.key)
    # A name that they may not take is refused now; it is looked at again when it is taken.
    is_led_here = await leads_here(request, node, body.fqdn, identity_of(key))
    fqdn, identity = parse_fqdn(body.fqdn), identity_of(key)
    await run_in_threadpool(partial(require_takeable, node, fqdn, identity, leads_here=is_led_here))
    arrival, token = await PASSWORDS.run(address, partial(_begin, node, key, body))
    federation_of(request).arrivals.wake()
    return {**render_arrival(node, await run_in_threadpool(read_progress, node, arrival)), "token": token}


def _begin(node: Node, key: PublicKey, body: NewArrivalBody) -> tuple[StoredArrival, str]:
    fqdn = parse_fqdn(body.fqdn)
    hashed = hash_password(body.password)
    wanted: dict[str, Any]
    if body.file is not None:
        wanted = file_request(node, body.file.size, body.file.digest, older=body.file.older)
    else:
        wanted = {"friends": list(dict.fromkeys(map(parse_fqdn, body.friends or [])))}
    document = IdentityDocument(fqdn, node.settings.endpoint.format(fqdn=fqdn))
    controller = check_key_proof(node, key, document, b"", body.proof.read())
    if body.mandate is not None:
        signature = bytes.fromhex(body.mandate.signature)
        wanted["mandate"] = check_mandate(node, key, controller.public, body.mandate.until, signature)
    arrival, token, before = begin_arrival(
        node,
        key,
        controller,
        way="file" if body.file is not None else "friends",
        fqdn=fqdn,
        password=hashed,
        request=wanted,
        replaces=True,
    )
    return resume_file(node, arrival, before), token


def get_arrival(request: Request, id: IdParameter) -> StoredArrival:  # noqa: A002  the name in the address
    """The arrival of a request, for who sends its token."""
    return require_arrival(get_node(request), id, bearer_of(request))


ArrivalDependency = Annotated[StoredArrival, Depends(get_arrival)]
_OWN: Final = ("auth.bad-token", "arrival.unknown")


@router.get("/identities/arrivals/{id}", response_model=ArrivalDocument, responses=responses(*_OWN))
def show_arrival(node: NodeDependency, arrival: ArrivalDependency) -> dict[str, Any]:
    """How far an arrival is, to who has its token (`Authorization: Bearer`)."""
    return render_arrival(node, read_progress(node, arrival))


@router.delete("/identities/arrivals/{id}", status_code=204, responses=responses(*_OWN, "arrival.not-ready"))
def give_arrival_up(node: NodeDependency, arrival: ArrivalDependency) -> Response:
    """Give an arrival up that is not `here` yet; the file is removed. Entries that were taken in stay."""
    give_up(node, arrival)
    return Response(status_code=204)


@router.put(
    "/identities/arrivals/{id}/file",
    response_model=ArrivalDocument,
    responses=responses(
        *_OWN,
        "arrival.not-ready",
        "arrival.wrong-part",
        "arrival.too-large",
        "auth.busy",
        "storage.low-disk",
    ),
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The next bytes of the file, at most `node.max_body_bytes` of them.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary", "examples": ["(bytes)"]}}
            },
        }
    },
)
async def upload_part(
    request: Request,
    node: NodeDependency,
    arrival: ArrivalDependency,
    offset: Annotated[int, Query(ge=0, le=MAX_STORED_INTEGER, description="Where the part begins: `received`.")] = 0,
) -> dict[str, Any]:
    """Send the next part of the file; what came of a part that was cut off stays. With the last one it is taken in."""
    writer = await run_in_threadpool(PartWriter, node, arrival, offset)
    try:
        waiting = bytearray()
        async for chunk in request.stream():
            waiting += chunk
            if len(waiting) >= _CHUNK:
                await run_in_threadpool(writer.write, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(writer.write, bytes(waiting))
        arrival = await run_in_threadpool(writer.finish)
    finally:
        await run_in_threadpool(writer.close)
    if arrival.state == "arriving":
        federation_of(request).arrivals.wake()
    return render_arrival(node, await run_in_threadpool(read_progress, node, arrival))


@router.post(
    "/identities/arrivals/{id}/commit",
    response_model=HostedIdentityDocument,
    responses=responses(*_OWN, *NAME_CODES, "arrival.not-ready", "arrival.lives-here", "log.stale", "publish.restored"),
)
async def commit_arrival(
    request: Request, node: NodeDependency, arrival: ArrivalDependency, body: CommitBody
) -> dict[str, Any]:
    """Let the identity live here, with the document that its first key signed; there is no way back.

    The same entry again gets the same answer.
    """
    is_led_here = arrival.state != "here" and await leads_here(request, node, arrival.fqdn, arrival.identity)
    work = partial(settle, node, arrival.identity, [body.signed.read()], leads_here=is_led_here)
    record = await run_in_threadpool(work)
    federation_of(request).arrivals.wake()
    return render_identity(record)

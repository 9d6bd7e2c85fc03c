"""Routes of moves to another node: the identity asks for one, and the new node takes over (docs/protocol.md 7.10)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import AddressDependency, CallerDependency, NodeDependency, get_address
from inkgrove.api.http.limits import PASSWORDS
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.arrivals import NewArrivalDocument, render_arrival
from inkgrove.api.routes.exports import PERSON_CONTENT, serve_person_file
from inkgrove.api.routes.federation import BINARY, SIGNED, as_received, federation_of
from inkgrove.api.routes.identities import NAME_CODES, leads_here
from inkgrove.api.routes.models import Fqdn, Password, StrictModel
from inkgrove.core import PublicKey
from inkgrove.core.errors import ParcelError
from inkgrove.federation.errors import FederationError, QuotaUsedUp
from inkgrove.federation.peers import parse_url
from inkgrove.federation.replication import find_offer
from inkgrove.messages import MOVE_MEDIA_TYPE, Timestamp, decode_move_commit, encode_move_offer, read_endpoint
from inkgrove.node.errors import MoveError
from inkgrove.node.identity import (
    CheckedPassword,
    check_own_password,
    count_identity,
    hash_password,
    parse_fqdn,
    require_takeable,
)
from inkgrove.node.moving import Departure, Departures, begin_helped_arrival, read_progress
from inkgrove.node.runtime import Node
from inkgrove.store.node import StoredDeparture

router = APIRouter(tags=["moves"])
_GRANT: Final = "ink_g_" + "7ac3" * 16


async def give_departures(request: Request) -> Departures:
    """The departures of the node that the application serves."""
    return get_departures(request)


def get_departures(request: Request) -> Departures:
    """The departures of the node that the application serves."""
    departures = request.app.state.departures
    assert isinstance(departures, Departures)
    return departures


DeparturesDependency = Annotated[Departures, Depends(give_departures)]


# What the identity asks of its old node


@contextmanager
def _asking(code: str) -> Iterator[None]:
    """Say with a code of moves that another node does not answer as it should, whatever the reason."""
    try:
        yield
    except QuotaUsedUp:
        raise
    except (FederationError, ParcelError) as error:
        raise MoveError(
            code, f"the other node does not answer as it should: {error.public_message}", reason=error.code
        ) from error


class MoveBody(StrictModel):
    """Where to."""

    endpoint: Annotated[
        str,
        Field(
            max_length=2048,
            examples=["https://jane.poem.ink"],
            description="Where the new node is reached for you, as it says itself. It is asked, and nobody else can "
            "use the grant.",
        ),
    ]
    fqdn: Annotated[
        str | None,
        Field(
            max_length=253,
            examples=["jane.poem.ink"],
            description="Your name there; the host of the endpoint unless it is given.",
        ),
    ] = None
    password: Password
    without_words: Annotated[
        bool,
        Field(
            description="This node keeps your first key: let it be destroyed although nobody has its words. "
            "Nobody can get the identity back then if the new node is lost."
        ),
    ] = False


class CancelMoveBody(StrictModel):
    """The password of the identity that stays."""

    password: Password


class MoveGrantDocument(BaseModel):
    """What the new node takes you over with; it is shown once."""

    grant: Annotated[str, Field(examples=[_GRANT])]
    lives_at: Annotated[str, Field(description="Where the new node asks for you.", examples=["https://jane.haiku.ink"])]
    fqdn: Annotated[str, Field(description="Your name there.")]
    endpoint: str
    expires: Annotated[str, Field(description="When you are here again, if the new node has not taken over.")]


class DepartureDocument(BaseModel):
    """Whether you are about to leave this node, or have left it."""

    state: Literal["here", "leaving", "moved"]
    fqdn: Annotated[str | None, Field(description="Your name on the new node.")] = None
    endpoint: Annotated[str | None, Field(description="Where the new node is reached.")] = None
    expires: Annotated[str | None, Field(description="While you are leaving: when you are here again.")] = None
    file: Annotated[
        Literal["waiting", "running", "finished", "failed"] | None,
        Field(description="While you are leaving: how far the file for the new node is."),
    ] = None


_OWN: Final = ("auth.required", "auth.not-allowed")
_WITH_PASSWORD: Final = (*_OWN, "auth.bad-password", "auth.too-many-attempts", "auth.busy")


@router.post(
    "/me/move",
    status_code=201,
    response_model=MoveGrantDocument,
    responses=responses(
        *_WITH_PASSWORD,
        "identity.bad-name",
        "message.bad-value",
        "federation.bad-url",
        "federation.quota-used-up",
        "move.not-a-node",
        "move.same-node",
        "move.arriving",
        "move.too-many",
        "move.without-words",
        "identity.leaving",
        "identity.lives-elsewhere",
        "identity.no-key-here",
        "storage.low-disk",
    ),
)
async def begin_move(
    request: Request,
    node: NodeDependency,
    departures: DeparturesDependency,
    caller: CallerDependency,
    address: AddressDependency,
    body: MoveBody,
) -> dict[str, Any]:
    """Leave for another node, which takes you over with the grant within a day.

    Until then nothing is signed here for you, and what others send you stays with them.
    """
    identity = caller.require_identity()
    endpoint = read_endpoint(body.endpoint, "endpoint")
    fqdn = parse_fqdn(body.fqdn or parse_url(endpoint).host)
    checked = await PASSWORDS.run(address, check_own_password, node, identity, body.password, address)
    with _asking("move.not-a-node"):
        node_key = await federation_of(request).discovery.find_node(endpoint)
    if node_key is None:
        raise MoveError("move.not-a-node", f"no node has signed that it is reached at {endpoint[:200]}")
    return await run_in_threadpool(
        _begin, node, departures, checked, fqdn, endpoint, node_key, without_words=body.without_words
    )


def _begin(
    node: Node,
    departures: Departures,
    checked: CheckedPassword,
    fqdn: str,
    endpoint: str,
    node_key: PublicKey,
    *,
    without_words: bool,
) -> dict[str, Any]:
    given = departures.begin(checked, fqdn=fqdn, endpoint=endpoint, node_key=node_key, without_words=without_words)
    return {
        "grant": given.grant,
        "lives_at": given.lives_at,
        "fqdn": fqdn,
        "endpoint": endpoint,
        "expires": str(Timestamp(given.expires)),
    }


@router.get("/me/move", response_model=DepartureDocument, responses=responses(*_OWN, "storage.low-disk"))
def show_move(departures: DeparturesDependency, caller: CallerDependency) -> dict[str, Any]:
    """Whether you are about to leave for another node, or have left."""
    return _render(departures.show(caller.require_identity()))


def _render(found: Departure) -> dict[str, Any]:
    stored = found.stored
    return {
        "state": found.state,
        "fqdn": None if stored is None else stored.fqdn,
        "endpoint": None if stored is None else stored.endpoint,
        "expires": None if found.expires is None else str(Timestamp(found.expires)),
        "file": None if found.export is None else found.export.state,
    }


@router.delete("/me/move", status_code=204, responses=responses(*_WITH_PASSWORD, "move.none"))
async def cancel_move(
    request: Request,
    node: NodeDependency,
    departures: DeparturesDependency,
    caller: CallerDependency,
    address: AddressDependency,
    body: CancelMoveBody,
) -> Response:
    """Stay: the grant is good for nothing from now on."""
    identity = caller.require_identity()
    checked = await PASSWORDS.run(address, check_own_password, node, identity, body.password, address)
    await run_in_threadpool(departures.cancel, checked)
    federation_of(request).outbox.wake()
    return Response(status_code=204)


# What the identity asks of its new node


class HelpedArrivalBody(StrictModel):
    """What the old node gave, and how to sign in here."""

    lives_at: Annotated[
        str, Field(max_length=2048, examples=["https://jane.haiku.ink"], description="As `POST /me/move` answered it.")
    ]
    grant: Annotated[str, Field(pattern="^ink_g_[0-9a-f]{64}$", examples=[_GRANT])]
    fqdn: Annotated[Fqdn, Field(description="The name that the grant is for.")]
    password: Password


@router.post(
    "/identities/arrivals/helped",
    status_code=201,
    response_model=NewArrivalDocument,
    responses=responses(
        "auth.required",
        "auth.not-allowed",
        *NAME_CODES,
        "identity.weak-password",
        "auth.too-many-attempts",
        "auth.busy",
        "message.bad-value",
        "federation.bad-url",
        "federation.quota-used-up",
        "move.no-old-node",
        "move.unknown-grant",
        "move.wrong-node",
        "move.export-failed",
        "arrival.lives-here",
        "arrival.under-way",
        "arrival.too-many",
    ),
)
async def start_helped_arrival(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    address: AddressDependency,
    body: HelpedArrivalBody,
) -> dict[str, Any]:
    """Take an identity over from its old node, with the grant that it gave; this node does all of it by itself."""
    if node.settings.registration != "open":
        caller.require_administrator()
    elif not caller.is_administrator:
        await run_in_threadpool(count_identity, node, address)
    lives_at, fqdn = read_endpoint(body.lives_at, "lives_at"), parse_fqdn(body.fqdn)
    parse_url(lives_at)
    federation = federation_of(request)
    with _asking("move.no-old-node"):
        offer = await find_offer(
            node, federation.transport, federation.discovery, lives_at=lives_at, grant=body.grant, fqdn=fqdn
        )
    is_led_here = await leads_here(request, node, fqdn, offer.identity)
    await run_in_threadpool(partial(require_takeable, node, fqdn, offer.identity, leads_here=is_led_here))
    hashed = await PASSWORDS.run(address, hash_password, body.password)
    begin = partial(begin_helped_arrival, node, offer, lives_at=lives_at, grant=body.grant, password=hashed)
    arrival, token = await run_in_threadpool(begin)
    federation.arrivals.wake()
    return {**render_arrival(node, await run_in_threadpool(read_progress, node, arrival)), "token": token}


# What the new node asks of the old one

GrantParameter = Annotated[str, PathParameter(max_length=200, examples=[_GRANT])]
_REFUSALS: Final = (*SIGNED, "move.unknown-grant")


async def _admit(request: Request, grant: str, body: bytes = b"") -> StoredDeparture:
    """The departure of a grant; raises unless the node that it was given for has signed the request."""
    departure = await run_in_threadpool(get_departures(request).find, grant)
    senders = federation_of(request).senders
    await senders.authenticate_node(as_received(request, body), departure.node_key, get_address(request))
    return departure


@router.get(
    "/federation/moves/{grant}",
    response_class=Response,
    responses={
        200: {"description": "Who moves, and whether the file is there", "content": {MOVE_MEDIA_TYPE: BINARY}},
        **responses(*_REFUSALS, "storage.low-disk"),
    },
)
async def describe_move(request: Request, grant: GrantParameter) -> Response:
    """Describe a move to the node that takes the identity over; it signs the request."""
    departure = await _admit(request, grant)
    offer = await run_in_threadpool(get_departures(request).offer, departure)
    return Response(encode_move_offer(offer), media_type=MOVE_MEDIA_TYPE)


@router.get(
    "/federation/moves/{grant}/file",
    response_class=Response,
    responses={
        200: {"description": "The file of the person", "content": PERSON_CONTENT},
        206: {"description": "The range asked for", "content": PERSON_CONTENT},
        304: {"description": "The new node has it already"},
        **responses(*_REFUSALS, "move.not-ready", "move.export-failed", "blob.bad-range", "storage.low-disk"),
    },
)
async def download_moving_person(
    request: Request,
    grant: GrantParameter,
    range: Annotated[str | None, Header(examples=["bytes=1048576-"])] = None,  # noqa: A002
    if_none_match: Annotated[str | None, Header()] = None,
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """The file of the person, or a range of it, for the node that takes the identity over; it signs the request."""
    departure = await _admit(request, grant)
    job, path = await run_in_threadpool(get_departures(request).find_file, departure)
    return serve_person_file(job, path, range, if_none_match=if_none_match, if_range=if_range)


@router.post(
    "/federation/moves/{grant}/commit",
    response_class=Response,
    responses={
        200: {
            "description": "The entry of the document that names the new node; asked again, the same bytes",
            "content": {MOVE_MEDIA_TYPE: BINARY},
        },
        **responses(
            *_REFUSALS,
            "parcel.bad-move",
            "move.not-ready",
            "move.export-failed",
            "move.wrong-digest",
            "move.bad-key",
            "move.done-before",
            "publish.restored",
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": {MOVE_MEDIA_TYPE: BINARY}}},
)
async def commit_move(request: Request, grant: GrantParameter) -> Response:
    """End a move: sign the document that names the new node and its key, and destroy the keys of this one."""
    body = await request.body()
    departure = await _admit(request, grant, body)
    answer = await run_in_threadpool(get_departures(request).commit, departure, decode_move_commit(body))
    federation_of(request).outbox.wake()  # what people here sent the identity meanwhile goes to the new node
    return Response(answer, media_type=MOVE_MEDIA_TYPE)

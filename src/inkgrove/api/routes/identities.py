"""Routes of identities: registering, documents and keys, passwords and sign-ins, quotas, discovery by name."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, model_validator
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.answers import json_answer, make_large
from inkgrove.api.http.auth import (
    AddressDependency,
    CallerDependency,
    HostDependency,
    NodeDependency,
    TokenDependency,
    UserAgentDependency,
)
from inkgrove.api.http.limits import DOCUMENTS, PASSWORDS
from inkgrove.api.http.problems import responses
from inkgrove.api.routes.federation import federation_of
from inkgrove.api.routes.models import Fqdn, Password, SchemaIdDocument, SignedEntryBody, StrictModel
from inkgrove.core import IdentityId, NextEntry, identity_of, parse_public_key
from inkgrove.federation.errors import FederationError, QuotaUsedUp
from inkgrove.federation.peers import (
    WELL_KNOWN_FORMAT,
    WELL_KNOWN_NODE_PATH,
    WELL_KNOWN_PATH,
    host_document,
    refuse_moved,
    render_well_known,
    well_known_of,
)
from inkgrove.messages import (
    UNSET,
    FurtherKey,
    IdentityDocument,
    KeyState,
    RevokedLog,
    SchemaId,
    Timestamp,
    encode_message,
)
from inkgrove.node import errors
from inkgrove.node.identity import (
    MAX_SESSION_LABEL,
    adoption,
    clean_label,
    count_identity,
    identities,
    label_from,
    list_documents,
    must_lead_here,
    sessions,
    show_quota,
    words,
)
from inkgrove.node.publishing import render_next_entry
from inkgrove.node.runtime import Node
from inkgrove.node.services import find_schema_by_fqdn

router = APIRouter(tags=["identities"])

Name = Annotated[str, Field(max_length=255, examples=["Jane"])]
Profile = Annotated[dict[str, Annotated[str, Field(max_length=10_000)]], Field(max_length=100)]


LivesAt = Annotated[
    str | None,
    Field(
        max_length=255,
        examples=["joan.poem.ink"],
        description="The name under which the identity lives now: what is held of its log 0 there is fetched first.",
    ),
]


class ChallengeBody(StrictModel):
    """The first key of an identity that is to be hosted, as 64 hex characters."""

    lives_at: LivesAt = None

    key: Annotated[
        str,
        Field(pattern="^[0-9a-f]{64}$", examples=["d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"]),
    ]


class LogEndDocument(BaseModel):
    """What the next entry of log 0 must carry."""

    author: str
    log_id: int
    seq_num: int
    lipmaa_link: str | None
    backlink: str | None
    hash: str


class ChallengeDocument(BaseModel):
    """What the key signs to prove itself, and until when that counts.

    `controller` is a key that the node would keep: a document may name it and list it, and the node then speaks for the
    identity with it. `endpoint` is where this node is reached; `{fqdn}` in it stands for the name that is taken. With
    `lives_at`, or if the identity is hosted here, also where log 0 goes on, and the payload of the document in effect,
    in base64.
    """

    challenge: str
    expires: str
    controller: str
    endpoint: str
    next: LogEndDocument | None = None
    document: str | None = None


class KeyProofBody(StrictModel):
    """A challenge of this node and the signature over it by the first key, as 128 hex characters."""

    challenge: Annotated[str, Field(max_length=2000)]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$", examples=["00" * 64])]

    def read(self) -> adoption.KeyProof:
        """The proof with the bytes of the signature."""
        return adoption.KeyProof(self.challenge, bytes.fromhex(self.signature))


class NewIdentityBody(StrictModel):
    """An identity to be hosted; with `signed` (an entry of log 0) and `proof` the key stays with the client.

    Entry 1 is only for a key that has never signed one; whoever lives elsewhere signs the next one and says `lives_at`.
    """

    fqdn: Fqdn
    password: Password
    name: Name | None = None
    profile: Profile = Field(default_factory=dict)
    signed: SignedEntryBody | None = None
    proof: KeyProofBody | None = None
    lives_at: LivesAt = None

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> "NewIdentityBody":
        if self.signed is not None and (self.name is not None or self.profile):
            raise ValueError("name and profile stand in the signed document")
        if self.signed is None and (self.proof is not None or self.lives_at is not None):
            raise ValueError("a proof, or where an identity lives, comes with a signed document")
        return self


class ChangedIdentityBody(StrictModel):
    """What is to change; null removes name or profile. With `signed`, the next entry of log 0, the client says all."""

    fqdn: Fqdn | None = None
    name: Name | None = None
    profile: Profile | None = None
    signed: SignedEntryBody | None = None

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> "ChangedIdentityBody":
        if self.signed is not None and self.model_fields_set != {"signed"}:
            raise ValueError("everything stands in the signed document")
        if "fqdn" in self.model_fields_set and self.fqdn is None:
            raise ValueError("an identity has a name on its node: give another one, or leave `fqdn` out")
        return self


class RecoveryBody(StrictModel):
    """A new password for whoever has the first key, which signed a challenge of this node.

    With `signed`, the next entry of log 0 of the first key, its document overrules the controller so far. Without it
    the proof is over an empty entry, and the name and endpoint of the document in effect.
    """

    fqdn: Fqdn
    password: Password
    proof: KeyProofBody
    signed: SignedEntryBody | None = None


class PasswordBody(StrictModel):
    """The password, once more."""

    password: Password


class WordsBody(StrictModel):
    """The password, and the 24 words as they were written down."""

    password: Password
    words: Annotated[str, Field(max_length=1000, examples=["abandon " * 23 + "art"])]


class WordsDocument(BaseModel):
    """The words of the first key. They are the identity: on paper, in a drawer, and nowhere else."""

    words: str


class SignInBody(StrictModel):
    """Name and password."""

    fqdn: Fqdn
    password: Password
    label: Annotated[
        str | None,
        Field(
            max_length=MAX_SESSION_LABEL,
            examples=["Jane's laptop"],
            description="What this sign-in is called in `GET /sessions`; else the program names itself (User-Agent).",
        ),
    ] = None


class NewPasswordBody(StrictModel):
    """The password so far, and the new one."""

    old: Password
    new: Password


class NewKeyBody(SignedEntryBody):
    """What a device signed to be a further key, and what it is called in the document, which everybody can read."""

    label: Annotated[str | None, Field(max_length=MAX_SESSION_LABEL, examples=["phone"])] = None
    password: Password | None = None
    """Once more, of an identity that has one: a key outlives the sign-in that added it."""


class KeyDocument(BaseModel):
    """A key that the document of an identity lists, and whether it counts."""

    key: str
    state: str
    label: str | None = None
    revoked: list[tuple[int, int] | tuple[int, int, str]] | None = None


class HostedIdentityDocument(BaseModel):
    """An identity and what its document says."""

    id: str
    fqdn: str
    endpoint: str
    name: str | None
    profile: dict[str, str]
    key: str
    keys: list[KeyDocument]
    revision: int
    controller: str | None
    recovery: str
    state: str | None


class MeDocument(HostedIdentityDocument):
    """The identity that asks, and for a service what it may do."""

    scopes: list[str] | None


class SessionDocument(BaseModel):
    """A sign-in."""

    token: str
    expires: str


class NodeDocument(BaseModel):
    """Where an identity's node is reached, its own key, and that key's word that it serves the identity there."""

    endpoint: str
    key: str
    proof: str


class LogEntryDocument(BaseModel):
    """An entry of log 0, in base64."""

    entry: str
    payload: str | None = None


class DiscoveryDocument(BaseModel):
    """Who is behind a name of this node: an identity with what proves it, a schema, or both."""

    inkgrove: int
    fqdn: str | None = None
    id: str | None = None
    node: NodeDocument | None = None
    log: list[LogEntryDocument] | None = None
    speakers: list[list[LogEntryDocument]] | None = None
    keys: list[LogEntryDocument] | None = None
    schema_: Annotated[SchemaIdDocument | None, Field(alias="schema")] = None


def render_identity(identity: identities.IdentityRecord) -> dict[str, Any]:
    document = identity.document
    return {
        "id": identity.id.hex(),
        "fqdn": document.fqdn,
        "endpoint": document.endpoint,
        "name": document.name,
        "profile": dict(document.profile),
        "key": identity.key.hex(),
        "keys": [_render_key(item, identity.keys[item.key]) for item in document.keys],
        "revision": identity.revision,
        "controller": None if document.controller is None else document.controller.hex(),
        "recovery": identity.recovery.value,
        "state": None if identity.state is None else identity.state.value,
    }


def _render_key(item: FurtherKey, state: KeyState) -> dict[str, Any]:
    ends = None if item.revoked is None else [render_end(end) for end in item.revoked]
    return {"key": item.key.hex(), "state": state.value, "label": item.label, "revoked": ends}


def render_end(end: RevokedLog) -> tuple[int, int] | tuple[int, int, str]:
    return (end.log_id, end.last) if end.hash is None else (end.log_id, end.last, end.hash.hex())


_OWN = ("auth.required", "auth.not-allowed")


NAME_CODES = (
    "identity.exists",
    "identity.bad-name",
    "identity.foreign-name",
    "identity.name-elsewhere",
    "identity.reserved-name",
    "identity.name-left",
    "identity.bad-document",
    "federation.quota-used-up",
)


async def leads_here(request: Request, node: Node, fqdn: str, identity: IdentityId | None) -> bool:
    """Whether the world leads to this node under a name that is taken only then; False for every other name."""
    plain = identities.parse_fqdn(fqdn)
    if not await run_in_threadpool(must_lead_here, node, plain, identity):
        return False
    return await federation_of(request).discovery.leads_here(plain)


@contextmanager
def _finding(lives_at: str) -> Iterator[None]:
    """Say that an identity was not found where it is said to live, whatever the reason."""
    try:
        yield
    except QuotaUsedUp:
        raise
    except FederationError as error:
        text = f"the identity was not found at {lives_at[:253]}: {error.public_message}"
        raise errors.IdentityError("identity.unknown-home", text, reason=error.code) from error


@router.post(
    "/identities/challenges",
    status_code=201,
    response_model=ChallengeDocument,
    responses=responses(*_OWN, "identity.bad-name", "identity.unknown-home", "federation.quota-used-up"),
)
async def make_challenge(
    request: Request, node: NodeDependency, token: TokenDependency, body: ChallengeBody
) -> dict[str, Any]:
    """A challenge for whoever brings an identity: its first key signs it, within minutes, for one use."""
    key = parse_public_key(body.key)
    made = adoption.new_challenge(node, key)
    answer: dict[str, Any] = {
        "challenge": made.text,
        "expires": str(Timestamp(made.expires)),
        "controller": made.controller.hex(),
        "endpoint": node.settings.endpoint,
    }
    if body.lives_at is not None:
        if node.settings.registration != "open":
            (await run_in_threadpool(sessions.authenticate, node, token)).require_administrator()
        with _finding(body.lives_at):
            place, document = await federation_of(request).discovery.find_log_end(key, body.lives_at)
        return answer | _render_log_end(place, document)
    own = await run_in_threadpool(identities.find_own_log_end, node, key)
    return answer if own is None else answer | _render_log_end(*own)


def _render_log_end(place: NextEntry, document: IdentityDocument) -> dict[str, Any]:
    return {"next": render_next_entry(place), "document": b64encode(encode_message(document)).decode()}


@router.post(
    "/identities",
    status_code=201,
    response_model=HostedIdentityDocument,
    responses=responses(
        *_OWN,
        *NAME_CODES,
        "identity.weak-password",
        "identity.unproved",
        "identity.unknown-controller",
        "identity.lives-elsewhere",
        "identity.unknown-home",
        "auth.too-many-attempts",
        "log.stale",
        "auth.busy",
    ),
)
async def create_identity(
    request: Request, node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: NewIdentityBody
) -> dict[str, Any]:
    """Host a new identity; the node keeps its key unless the client signs for itself."""
    if node.settings.registration != "open":
        caller.require_administrator()
    elif not caller.is_administrator:
        await run_in_threadpool(count_identity, node, address)
    if body.signed is not None:
        return await _adopt(request, node, address, body, body.signed.read())
    is_led_here = await leads_here(request, node, body.fqdn, None)
    register = partial(
        identities.register_identity,
        node,
        body.fqdn,
        body.password,
        name=body.name,
        profile=body.profile,
        leads_here=is_led_here,
    )
    return render_identity(await PASSWORDS.run(address, register))


async def _adopt(
    request: Request, node: Node, address: str, body: NewIdentityBody, signed: identities.SignedMessage
) -> dict[str, Any]:
    entry, document = adoption.read_adoption(body.fqdn, signed)
    proof = None if body.proof is None else body.proof.read()
    controller = await run_in_threadpool(adoption.check_key_proof, node, entry.author, document, signed.entry, proof)
    discovery = federation_of(request).discovery
    if body.lives_at is not None:
        with _finding(body.lives_at):
            await discovery.store_from(entry.author, body.lives_at)
    else:
        await discovery.refresh(entry.author)
    is_led_here = await leads_here(request, node, body.fqdn, identity_of(entry.author))
    adopt = partial(
        adoption.adopt_proved,
        node,
        body.password,
        signed,
        entry,
        document,
        controller=controller,
        leads_here=is_led_here,
    )
    return render_identity(await PASSWORDS.run(address, adopt))


@router.post(
    "/identities/recover",
    response_model=HostedIdentityDocument,
    responses=responses(
        *NAME_CODES,
        "identity.unknown",
        "identity.unproved",
        "identity.unknown-controller",
        "identity.weak-password",
        "identity.too-many-names",
        "auth.too-many-attempts",
        "auth.busy",
        "log.stale",
    ),
)
async def recover_identity(
    request: Request, node: NodeDependency, address: AddressDependency, body: RecoveryBody
) -> dict[str, Any]:
    """Get back in with the first key: set a new password, and with a signed document take the controller away."""
    await run_in_threadpool(count_identity, node, address)
    signed = None if body.signed is None else body.signed.read()
    is_led_here = False
    if signed is not None:
        wanted = identities.read_document(signed).fqdn
        known = await run_in_threadpool(identities.show_identity, node, body.fqdn)
        is_led_here = await leads_here(request, node, wanted, known.id)
    recover = partial(
        words.recover_identity, node, body.fqdn, body.password, body.proof.read(), signed, leads_here=is_led_here
    )
    return render_identity(await PASSWORDS.run(address, recover))


@router.get("/identities/{name}", response_model=HostedIdentityDocument, responses=responses("identity.unknown"))
def show_identity(node: NodeDependency, name: str) -> dict[str, Any]:
    """The document of a hosted identity, by name or id."""
    return render_identity(identities.show_identity(node, identities.parse_identity_name(name)))


class SignedDocumentDocument(BaseModel):
    """An identity document that was signed in the name of an identity, and whether it counts."""

    key: Annotated[str, Field(description="Who signed it: the first key, or a controller.")]
    seq_num: int
    hash: str
    state: Literal["document.in-effect", "document.replaced", "document.overruled", "document.waits"]
    fqdn: str
    endpoint: str
    controller: str | None
    under: Annotated[str | None, Field(description="The entry that it stands under, if a controller signed it.")]
    closed: bool


class SignedDocumentsDocument(BaseModel):
    """The newest documents of an identity, in all branches of log 0."""

    id: str
    state: Annotated[
        Literal["identity.forked", "identity.words-used-twice"] | None,
        Field(description="Whether log 0 of the first key is forked, and whether that ends the identity."),
    ]
    documents: list[SignedDocumentDocument]


@router.get(
    "/identities/{name}/documents",
    response_model=SignedDocumentsDocument,
    responses=responses("identity.unknown", "request.too-much-at-once"),
)
async def show_documents(request: Request, node: NodeDependency, name: str) -> Response:
    """What was signed in the name of a hosted identity, and which of it counts: the newest 20 of each key, 256 KiB."""
    return await make_large(request, _documents, node, name)


def _documents(node: Node, name: str) -> Response:
    found = list_documents(node, identities.parse_identity_name(name))
    document = {
        "id": found.id.hex(),
        "state": None if found.state is None else found.state.value,
        "documents": [
            {
                "key": item.key.hex(),
                "seq_num": item.seq_num,
                "hash": item.hash.hex(),
                "state": item.state.value,
                "fqdn": item.document.fqdn,
                "endpoint": item.document.endpoint,
                "controller": None if item.document.controller is None else item.document.controller.hex(),
                "under": None if item.document.under is None else item.document.under.hex(),
                "closed": item.document.closed,
            }
            for item in found.documents
        ],
    }
    return json_answer(document)


@router.get("/me", response_model=MeDocument, responses=responses("auth.required"))
def show_me(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """The identity that asks, or on whose behalf a service does."""
    if caller.identity is None:
        raise errors.SignInRequired("sign in first: POST /sessions with name and password")
    scopes = None if caller.grant is None else sorted(map(str, caller.scopes))
    return {**render_identity(identities.show_identity(node, caller.identity)), "scopes": scopes}


@router.patch(
    "/me",
    response_model=HostedIdentityDocument,
    responses=responses(*_OWN, *NAME_CODES, "identity.too-many-names", "log.stale", "identity.no-key-here"),
)
async def change_me(
    request: Request,
    node: NodeDependency,
    caller: CallerDependency,
    address: AddressDependency,
    body: ChangedIdentityBody,
) -> dict[str, Any]:
    """Publish a new document, if it says something new; a client that holds the key sends it signed."""
    identity = caller.require_identity()
    if body.signed is not None:
        signed = body.signed.read()
        wanted = identities.read_document(signed).fqdn
        is_led_here = await leads_here(request, node, wanted, identity)
        replace = partial(identities.replace_document, node, identity, signed, leads_here=is_led_here)
        return render_identity(await DOCUMENTS.run(address, replace))
    is_led_here = body.fqdn is not None and await leads_here(request, node, body.fqdn, identity)
    change = partial(
        identities.change_identity,
        node,
        identity,
        fqdn=UNSET if body.fqdn is None else body.fqdn,
        name=body.name if "name" in body.model_fields_set else UNSET,
        profile=(body.profile or {}) if "profile" in body.model_fields_set else UNSET,
        leads_here=is_led_here,
    )
    return render_identity(await DOCUMENTS.run(address, change))


@router.post(
    "/me/keys",
    status_code=201,
    response_model=HostedIdentityDocument,
    responses=responses(
        *_OWN,
        "log.stale",
        "identity.bad-document",
        "identity.no-key-here",
        "auth.bad-password",
        "auth.too-many-attempts",
        "auth.busy",
    ),
)
async def add_key(
    node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: NewKeyBody
) -> dict[str, Any]:
    """Let a further key count: entry 1 of its log 0, `key-of`, which it signed itself. Who has a password says it."""
    identity, signed, label = caller.require_identity(), body.read(), clean_label(body.label or "") or None
    if body.password is not None or await run_in_threadpool(sessions.has_password, node, identity):
        await PASSWORDS.run(address, sessions.check_own_password, node, identity, body.password or "", address)
    return render_identity(await DOCUMENTS.run(address, identities.add_key, node, identity, signed, label))


@router.delete(
    "/me/keys/{key}",
    response_model=HostedIdentityDocument,
    responses=responses(*_OWN, "identity.unknown", "key.bad-key"),
)
async def revoke_key(
    node: NodeDependency, caller: CallerDependency, address: AddressDependency, key: str
) -> dict[str, Any]:
    """Revoke a further key; what is held of its logs now still counts, and is pinned by the hashes of its ends."""
    identity, revoked = caller.require_identity(), parse_public_key(key)
    return render_identity(await DOCUMENTS.run(address, identities.revoke_key, node, identity, revoked))


class EndsDocument(BaseModel):
    """How far the logs of a key go: log id, last sequence number and, if there is one, the hash of that entry."""

    ends: list[tuple[int, int] | tuple[int, int, str]]


@router.get(
    "/me/keys/{key}/ends", response_model=EndsDocument, responses=responses(*_OWN, "identity.unknown", "key.bad-key")
)
def show_ends(node: NodeDependency, caller: CallerDependency, key: str) -> dict[str, Any]:
    """What a document that revokes this key would list: how far its logs go here."""
    ends = identities.show_ends(node, caller.require_identity(), parse_public_key(key))
    return {"ends": [render_end(end) for end in ends]}


_WORDS = (*_OWN, "identity.no-key-here", "auth.bad-password", "auth.too-many-attempts", "auth.busy")


@router.post("/me/words", response_model=WordsDocument, responses=responses(*_WORDS))
async def show_words(
    node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: PasswordBody
) -> dict[str, Any]:
    """Show the words of a first key that this node keeps; nothing changes until they are confirmed."""
    identity = caller.require_identity()
    await PASSWORDS.run(address, sessions.check_own_password, node, identity, body.password, address)
    return {"words": await run_in_threadpool(words.show_words, node, identity)}


@router.post(
    "/me/words/confirm",
    response_model=HostedIdentityDocument,
    responses=responses(*_WORDS, "key.wrong-word", "key.bad-words", "key.mismatch"),
)
async def confirm_words(
    node: NodeDependency, caller: CallerDependency, address: AddressDependency, body: WordsBody
) -> dict[str, Any]:
    """Forget the first key, whose words are written down: from now on the node speaks by a controller."""
    identity = caller.require_identity()
    await PASSWORDS.run(address, sessions.check_own_password, node, identity, body.password, address)
    return render_identity(await run_in_threadpool(words.confirm_words, node, identity, body.words))


@router.post(
    "/me/password",
    status_code=204,
    responses=responses(*_OWN, "auth.bad-password", "identity.weak-password", "auth.too-many-attempts", "auth.busy"),
)
async def change_password(
    node: NodeDependency,
    caller: CallerDependency,
    token: TokenDependency,
    address: AddressDependency,
    body: NewPasswordBody,
) -> Response:
    """Set a new password; every other sign-in ends, and services keep their grants."""
    await PASSWORDS.run(address, _change_password, node, caller.require_identity(), address, body, token)
    return Response(status_code=204)


def _change_password(node: Node, identity: IdentityId, address: str, body: NewPasswordBody, token: str | None) -> None:
    checked = sessions.check_own_password(node, identity, body.old, address)
    sessions.change_password(node, identity, body.new, checked=checked, keep=token)


@router.post(
    "/sessions",
    status_code=201,
    response_model=SessionDocument,
    responses=responses("auth.bad-password", "auth.too-many-attempts", "auth.busy"),
)
async def sign_in(
    node: NodeDependency, address: AddressDependency, agent: UserAgentDependency, body: SignInBody
) -> dict[str, Any]:
    """Sign in with a password; the token is that of the identity itself."""
    label = clean_label(body.label or "") or label_from(agent)
    sign_in = partial(sessions.sign_in, node, body.fqdn, body.password, address, label=label)
    token, expires = await PASSWORDS.run(address, sign_in)
    return {"token": token, "expires": str(Timestamp(expires))}


@router.delete("/sessions/current", status_code=204, responses=responses(*_OWN))
def sign_out(node: NodeDependency, caller: CallerDependency, token: TokenDependency) -> Response:
    """End this sign-in."""
    caller.require_identity()
    if token is not None:
        sessions.sign_out(node, token)
    return Response(status_code=204)


@router.get(
    WELL_KNOWN_PATH,
    response_model=DiscoveryDocument,
    response_model_exclude_none=True,
    responses=responses("identity.unknown", "identity.moved"),
)
def discover(node: NodeDependency, host: HostDependency) -> dict[str, Any]:
    """Who is behind the name that the request was sent to: an identity with what proves it, a schema, or both."""
    try:
        schema: SchemaId | None = find_schema_by_fqdn(node, host)
    except errors.OAuthInvalidScope:
        schema = None
    named = {"schema": {"author": schema.author.hex(), "log_id": schema.log_id}} if schema is not None else {}
    try:
        return {**render_well_known(well_known_of(node, host)), **named}
    except errors.UnknownIdentity:
        if not named:
            refuse_moved(node, host)
            raise
    return {"inkgrove": WELL_KNOWN_FORMAT, **named}


class HostDiscoveryDocument(BaseModel):
    """Which node answers at a name, whether somebody lives there or not."""

    inkgrove: int
    fqdn: str
    node: NodeDocument


@router.get(WELL_KNOWN_NODE_PATH, response_model=HostDiscoveryDocument, responses=responses("identity.bad-name"))
def discover_node(node: NodeDependency, host: HostDependency) -> dict[str, Any]:
    """That this node answers at the name that the request was sent to; whoever wants that name here is asked for it."""
    return host_document(node, host)


class MeasureDocument(BaseModel):
    """How much is used, and how much may be."""

    used: int
    limit: int


class UsageDocument(BaseModel):
    """What an identity has stored on this node."""

    entries: MeasureDocument
    payload_bytes: MeasureDocument
    blob_bytes: MeasureDocument


@router.get("/me/usage", response_model=UsageDocument, responses=responses("auth.required", "auth.not-allowed"))
def show_usage(node: NodeDependency, caller: CallerDependency) -> dict[str, Any]:
    """How many entries, bytes of messages and bytes of blobs the identity has stored, and its quota of each."""
    return show_quota(node, caller.require_identity()).render()

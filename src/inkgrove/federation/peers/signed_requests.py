"""Signatures of requests between nodes: RFC 9421 with Ed25519, over method, host, path, query and body.

docs/protocol.md section 8.9. The sender signs with the key of its node and names an identity there as `keyid`; the
receiver looks up that node's key by itself (`senders`). The body is covered by its digest (RFC 9530).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import http_sf
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    HTTPSignatureAlgorithm,
    HTTPSignatureKeyResolver,
    InvalidSignature,
)
from http_message_signatures.exceptions import HTTPMessageSignaturesException

from inkgrove.core import PublicKey, SecretKey, verify_signature
from inkgrove.core.errors import BadSignature, InkgroveError
from inkgrove.federation.errors import BadRequestSignature, FederationError, PeerUnreachable
from inkgrove.federation.peers.transport import PeerRequest
from inkgrove.messages import read_host
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.federation import RemoteIdentity

TAG: Final = "inkgrove-1"
LABEL: Final = "inkgrove"
COMPONENTS: Final = ("@method", "@authority", "@path", "@query", "content-digest")
LIFETIME_SECONDS: Final = 120
"""How long a signature of ours lasts."""
MAX_LIFETIME_SECONDS: Final = 300
"""How long a signature may last at most; its nonce is remembered as long."""
MAX_SKEW_SECONDS: Final = 60
"""How far the clocks of two nodes may be apart."""

_SECOND: Final = 1_000_000
_MAX_FIELD: Final = 8192
_AUTHOR: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class SignatureInput:
    """The parameters of a signature; not to be believed before the signature is checked."""

    sender: str
    """The FQDN of an identity on the sending node, or the author's key in hex where that may sign."""
    created: int
    expires: int
    """Seconds since 1970."""
    nonce: str

    @property
    def author(self) -> PublicKey | None:
        """The key that signs for itself, if it is not a node that does so."""
        return PublicKey.fromhex(self.sender) if _AUTHOR.fullmatch(self.sender) is not None else None

    @property
    def remembered_until(self) -> int:
        """When (microseconds) it is refused for its age alone, so that its nonce can be forgotten."""
        return (self.expires + MAX_SKEW_SECONDS) * _SECOND + _SECOND


def sign_request(request: PeerRequest, key: SecretKey, *, sender: str, now: int, nonce: str) -> PeerRequest:
    """Return the request with its digest and signature; `sender` is the FQDN of an identity on this node."""
    message = _Message(request.method, request.url, _Headers(list(request.headers)))
    signer = HTTPMessageSigner(signature_algorithm=StrictEd25519, key_resolver=_OneKey(sender, secret=key))
    created = now // _SECOND
    signer.sign(
        message,
        key_id=sender,
        created=datetime.fromtimestamp(created, UTC),
        expires=datetime.fromtimestamp(created + LIFETIME_SECONDS, UTC),
        nonce=nonce,
        label=LABEL,
        tag=TAG,
        include_alg=False,  # the key says which it is
        covered_component_ids=_components_for(request),
        body=request.body,  # adds the digest
    )
    return PeerRequest(
        request.method, request.url, tuple(message.headers.items()), request.body, request.max_answer_bytes
    )


def read_signature(request: PeerRequest, *, may_be_author: bool = False) -> SignatureInput:
    """Return the parameters of the one signature for this protocol that a request carries; others are passed over.

    `may_be_author`: its `keyid` may be a key in hex, in place of the FQDN of an identity. Raises
    `federation.signature-missing` or `federation.signature-incomplete`.
    """
    given = request.header("signature-input")
    if given is None or request.header("signature") is None:
        raise FederationError("federation.signature-missing", "the request is not signed")
    if len(given) > _MAX_FIELD or len(request.header("signature") or "") > _MAX_FIELD:
        raise FederationError("federation.signature-missing", "the signature is longer than any that is needed")
    try:
        members: Any = http_sf.parse(given.encode("ascii"), tltype="dictionary")
        ours = [(covered, parameters) for covered, parameters in members.values() if parameters.get("tag") == TAG]
    except (ValueError, TypeError) as err:
        raise FederationError("federation.signature-missing", "the field Signature-Input cannot be read") from err
    if len(ours) != 1:
        raise FederationError(
            "federation.signature-missing",
            f"the request carries {len(ours)} signatures with the tag {TAG}; it needs one",
        )
    ((covered, parameters),) = ours
    if not isinstance(covered, list):
        raise FederationError(
            "federation.signature-missing", "the field Signature-Input has no list of what is covered"
        )
    names = {name for name, component_parameters in covered if not component_parameters}
    for component in _components_for(request):
        if component not in names:
            raise FederationError(
                "federation.signature-incomplete", f"the signature does not cover {component}", component=component
            )
    return _read_parameters(parameters, may_be_author=may_be_author)


def _read_parameters(found: dict[str, Any], *, may_be_author: bool) -> SignatureInput:
    sender, nonce = found.get("keyid"), found.get("nonce")
    created, expires = found.get("created"), found.get("expires")
    if type(created) is not int or type(expires) is not int:
        raise FederationError(
            "federation.signature-incomplete", "the signature does not say when it was made and when it expires"
        )
    if type(nonce) is not str or not 16 <= len(nonce) <= 128:
        raise FederationError("federation.signature-incomplete", "the signature has no nonce of 16 to 128 characters")
    if may_be_author and type(sender) is str and _AUTHOR.fullmatch(sender) is not None:
        return SignatureInput(sender, created, expires, nonce)
    try:
        return SignatureInput(read_host(sender, "keyid"), created, expires, nonce)
    except InkgroveError as err:
        raise FederationError(
            "federation.signature-incomplete", "the signature does not name its sender as keyid, such as jane.haiku.ink"
        ) from err


def check_times(found: SignatureInput, now: int) -> None:
    """Raise `federation.stale-request` or `federation.future-request` unless the signature is fresh at `now`."""
    seconds = now // _SECOND
    if found.created > seconds + MAX_SKEW_SECONDS:
        raise FederationError(
            "federation.future-request", f"the signature was made {found.created - seconds} seconds in the future"
        )
    if not found.created < found.expires <= found.created + MAX_LIFETIME_SECONDS:
        raise FederationError("federation.stale-request", f"a signature lasts at most {MAX_LIFETIME_SECONDS} seconds")
    if seconds > found.expires + MAX_SKEW_SECONDS:
        raise FederationError(
            "federation.stale-request", f"the signature expired {seconds - found.expires} seconds ago"
        )


def check_signature(request: PeerRequest, found: SignatureInput, key: PublicKey) -> None:
    """Raise `BadRequestSignature` unless the signature holds for the key, `federation.bad-digest` for another body."""
    verifier = _Verifier(signature_algorithm=StrictEd25519, key_resolver=_OneKey(found.sender, public=key))
    message = _Message(request.method, request.url, _Headers(list(request.headers)))
    try:
        results = verifier.verify(message, max_age=None, expect_tag=TAG, require_components=_components_for(request))
    except (HTTPMessageSignaturesException, ValueError) as err:
        raise BadRequestSignature(f"the signature of {found.sender} does not hold", sender=found.sender) from err
    try:
        verifier.verify_body(message, results, request.body)
    except InvalidSignature as err:
        raise FederationError("federation.bad-digest", "the body is not the one that was signed") from err


def _components_for(request: PeerRequest) -> tuple[str, ...]:
    """What a signature must cover: how the body is to be read belongs to it, if the request says so."""
    has_type = request.header("content-type") is not None
    return (*COMPONENTS, "content-type") if has_type else COMPONENTS


class StrictEd25519(HTTPSignatureAlgorithm):
    """Ed25519 by the strict rule that holds for entries too."""

    algorithm_id = "ed25519"

    def __init__(self, public_key: PublicKey | None = None, private_key: SecretKey | None = None) -> None:
        self._public = public_key
        self._secret = private_key

    def sign(self, message: bytes) -> bytes:
        assert self._secret is not None
        return self._secret.sign(message)

    def verify(self, signature: bytes, message: bytes) -> None:
        assert self._public is not None
        try:
            verify_signature(self._public, message, signature)
        except BadSignature as err:
            raise InvalidSignature("the signature does not hold") from err


class _OneKey(HTTPSignatureKeyResolver):
    """Knows the key of one sender."""

    def __init__(self, sender: str, *, secret: SecretKey | None = None, public: PublicKey | None = None) -> None:
        self._sender = sender
        self._secret = secret
        self._public = public

    def resolve_private_key(self, key_id: str) -> SecretKey | None:
        return self._secret

    def resolve_public_key(self, key_id: str) -> PublicKey | None:
        return self._public if key_id == self._sender else None


class _Verifier(HTTPMessageVerifier):
    """Leaves the times to `check_times`, which goes by the node's clock."""

    def validate_created_and_expires(self, sig_input: Any, max_age: Any = None) -> None:
        """Check nothing: done before."""


class _Headers:
    """Header lines as the library wants them: in order, repeated ones too."""

    def __init__(self, lines: list[tuple[str, str]]) -> None:
        self._lines = lines

    def items(self) -> list[tuple[str, str]]:
        return list(self._lines)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self._lines))

    def __contains__(self, name: str) -> bool:
        return any(line[0].lower() == name.lower() for line in self._lines)

    def __setitem__(self, name: str, value: str) -> None:
        self._lines.append((name, value))

    def __delitem__(self, name: str) -> None:
        self._lines = [line for line in self._lines if line[0].lower() != name.lower()]


@dataclass(slots=True)
class _Message:
    """A request as the library wants it."""

    method: str
    url: str
    headers: _Headers = field(default_factory=lambda: _Headers([]))


def make_signed_request(
    node: Node,
    to: RemoteIdentity,
    method: str,
    path: str,
    *,
    sender: str,
    body: bytes = b"",
    content_type: str | None = None,
) -> PeerRequest:
    """Make a signed request to the node of an identity, in the name of one of ours (its FQDN).

    It is good for one sending: each has a nonce of its own, so that a retry is not refused as a replay. Raises
    `PeerUnreachable` if the identity has moved and was not found anew yet: nothing goes to a place that it has left.
    """
    if to.has_moved:
        raise PeerUnreachable(f"{to.fqdn} has moved, and was not found where its newest document leads", fqdn=to.fqdn)
    headers = (("Content-Type", content_type),) if content_type is not None else ()
    request = PeerRequest(method, to.endpoint.rstrip("/") + path, headers, body)
    nonce = node.random_bytes(16).hex()
    return sign_request(request, load_node_key(node), sender=sender, now=node.clock(), nonce=nonce)

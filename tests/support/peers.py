"""Other nodes for tests, good and bad: small HTTP servers on loopback, and names that lead to them."""

import asyncio
import datetime
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from inkgrove.core import IdentityId, SecretKey, certificate_pool, identity_of
from inkgrove.federation.errors import AnswerTooLarge, FederationError
from inkgrove.federation.peers import (
    WELL_KNOWN_PATH,
    Address,
    PeerRequest,
    PeerResponse,
    ProofEntry,
    WellKnown,
    claim_of,
    parse_url,
    render_well_known,
)
from inkgrove.messages import IdentityDocument, KeyOf, encode_message
from tests.support.logs import LogBuilder, key

_Result = TypeVar("_Result")
Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Gets the head of a request with its body, and writes what it likes."""


def run(work: Coroutine[Any, Any, _Result], seconds: float = 20) -> _Result:
    """Run a test that waits for something, but never for long."""

    async def bounded() -> _Result:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


@asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A server that reads whole requests and lets the handler answer; its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                await handler(head + await reader.readexactly(length), writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(body: bytes, status: str = "200 OK", *headers: str) -> Handler:
    """Always the same answer."""

    async def handler(_request: bytes, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(lines).encode() + body)

    return handler


class Names:
    """A resolver that knows what it is told; several lists for a name are answered in turn, the last one for good."""

    def __init__(self, **names: Sequence[Sequence[str]]) -> None:
        self.names = {name.replace("_", "."): list(answers) for name, answers in names.items()}
        self.asked: list[str] = []

    async def resolve(self, host: str) -> list[Address]:
        self.asked.append(host)
        answers = self.names[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(item) for item in found]


@cache
def authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A certificate authority that only the tests trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    built = _builder(name, name, key.public_key()).add_extension(x509.BasicConstraints(True, None), True)
    return key, built.sign(key, hashes.SHA256())


def server_context(host: str, folder: Path) -> ssl.SSLContext:
    """What a server needs to speak for a name."""
    issuer_key, issuer = authority()
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    built = _builder(subject, issuer.subject, key.public_key())
    certificate = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), False).sign(
        issuer_key, hashes.SHA256()
    )
    file = folder / f"{host}.pem"
    form = serialization.PrivateFormat.PKCS8
    file.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def client_context() -> ssl.SSLContext:
    """What trusts the authority of the tests."""
    pem = authority()[1].public_bytes(serialization.Encoding.PEM).decode()
    return ssl.create_default_context(cadata=pem)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


# Identities elsewhere


class VirtualNetwork:
    """A transport without a network: what is served at a name is whatever the test puts there."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes | FederationError | None] = {}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, request: PeerRequest) -> PeerResponse:
        url = parse_url(request.url)
        self.asked.append(url.host)
        await self.gate.wait()
        page = self.pages.get(url.host) if url.target == WELL_KNOWN_PATH else None
        if isinstance(page, FederationError):
            raise page
        if page is not None and len(page) > (request.max_answer_bytes or len(page)):
            raise AnswerTooLarge("more than was wanted")
        return PeerResponse(404, (), b"") if page is None else PeerResponse(200, (), page)


class Elsewhere:
    """An identity on another node, with a log 0 that can be grown and bent."""

    def __init__(self, fqdn: str = "john.haiku.ink", number: int = 1) -> None:
        self.fqdn = fqdn
        self.log = LogBuilder(key(number), log_id=0)
        self.node_key = key(number + 100)
        self.publish()

    @property
    def id(self) -> IdentityId:
        return identity_of(self.log.secret.public)

    def document(self, **changes: Any) -> IdentityDocument:
        facts = {"fqdn": self.fqdn, "endpoint": f"https://{self.fqdn}"} | changes
        return IdentityDocument(**facts)

    def publish(self, **changes: Any) -> None:
        """Append a new revision of the document."""
        self.log.append(encode_message(self.document(**changes)))

    def well_known(self, height: int | None = None, **changes: Any) -> WellKnown:
        """What an honest node serves, at a given height of log 0; the parts can be bent."""
        newest = height or len(self.log.entries)
        offered = tuple(
            ProofEntry(self.log.entry(n).encoded, self.log.payloads[n - 1] if n in (1, newest) else None)
            for n in certificate_pool(newest, newest)
        )
        endpoint = changes.get("endpoint", f"https://{self.fqdn}")
        proof = self.node_key.sign(claim_of(self.id, changes.get("fqdn", self.fqdn), endpoint))
        honest = WellKnown(self.fqdn, self.id, endpoint, self.node_key.public, proof, offered)
        return replace(honest, **changes)

    def page(self, height: int | None = None, **changes: Any) -> bytes:
        """The same as bytes."""
        return json.dumps(render_well_known(self.well_known(height, **changes))).encode()


def further_key(number: int, identity: IdentityId) -> tuple[SecretKey, ProofEntry]:
    """A key that says whose it is."""
    log = LogBuilder(key(number), log_id=0)
    log.append(encode_message(KeyOf(identity)))
    return log.secret, ProofEntry(log.entry(1).encoded, log.payloads[0])

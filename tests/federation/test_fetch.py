"""Requests to other nodes: what a hostile name or server cannot make this node do."""

import asyncio
import gzip
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import httpcore
import pytest

from inkgrove.federation.errors import (
    AnswerTooLarge,
    BadAnswer,
    FederationError,
    ForbiddenAddress,
    PeerTimeout,
    PeerUnreachable,
    Redirected,
)
from inkgrove.federation.peers import HttpTransport, PeerRequest, PeerResponse, parse_url, run_with_transport
from inkgrove.node.settings import NodeSettings
from tests.federation.test_addresses import NEAR, NEVER
from tests.support.errors import raises
from tests.support.peers import Handler, Names, answering, client_context, run, server_context, serving


async def ask(handler: Handler, **settings: object) -> PeerResponse:
    """The answer of a server that stands for evil.ink."""
    async with serving(handler) as port:
        known = NodeSettings(resolve=(f"evil.ink=127.0.0.1:{port}",), **settings)  # type: ignore[arg-type]
        async with HttpTransport(known) as transport:
            return await transport.send(PeerRequest("GET", "https://evil.ink/x"))


class NoConnection(httpcore.AsyncNetworkBackend):
    """Notes where a connection was to go."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.asked.append((host, port))
        raise httpcore.ConnectError("nobody there")


# Where it connects


@pytest.mark.parametrize("address", [*NEAR, *NEVER])
def test_name_that_leads_to_a_forbidden_address_is_not_connected_to(address: str) -> None:
    connector = NoConnection()

    async def work() -> None:
        names = Names(evil_ink=[[address]])
        async with HttpTransport(NodeSettings(), resolver=names, connector=connector) as transport:
            with pytest.raises(ForbiddenAddress) as caught:
                await transport.send(PeerRequest("GET", "https://evil.ink/"))
            assert address not in caught.value.message

    run(work())
    assert connector.asked == []


def test_server_on_loopback_is_not_asked_without_the_setting() -> None:
    asked: list[bytes] = []

    async def handler(request: bytes, _writer: asyncio.StreamWriter) -> None:
        asked.append(request)

    async def work() -> None:
        async with serving(handler) as port:
            names = Names(evil_ink=[["127.0.0.1"]])
            async with HttpTransport(NodeSettings(), resolver=names) as transport:
                with pytest.raises(ForbiddenAddress):
                    await transport.send(PeerRequest("GET", f"https://evil.ink:{port}/"))

    run(work())
    assert asked == []


def test_of_several_addresses_only_the_allowed_ones_are_tried() -> None:
    connector = NoConnection()
    names = Names(evil_ink=[["127.0.0.1", "93.184.216.34", "10.0.0.1", "2606:4700::1111"]])

    async def work() -> None:
        async with HttpTransport(NodeSettings(), resolver=names, connector=connector) as transport:
            with pytest.raises(PeerUnreachable):
                await transport.send(PeerRequest("GET", "https://evil.ink/"))

    run(work())
    assert connector.asked == [("93.184.216.34", 443), ("2606:4700::1111", 443)]


def test_connection_goes_to_the_address_that_was_checked_whatever_the_name_says_next() -> None:
    connector = NoConnection()
    names = Names(evil_ink=[["93.184.216.34"], ["127.0.0.1"]])

    async def work() -> None:
        async with HttpTransport(NodeSettings(), resolver=names, connector=connector) as transport:
            with pytest.raises(PeerUnreachable):
                await transport.send(PeerRequest("GET", "https://evil.ink/"))
            assert names.asked == ["evil.ink"]
            with pytest.raises(ForbiddenAddress):
                await transport.send(PeerRequest("GET", "https://evil.ink/"))

    run(work())
    assert connector.asked == [("93.184.216.34", 443)]


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.ink/",
        "ftp://evil.ink/",
        "file:///etc/passwd",
        "gopher://evil.ink:70/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://[::1]/",
        "https://localhost/",
        "https://evil.ink:25/",
        "https://evil.ink:0/",
        "https://evil.ink:65536/",
        "https://jane@evil.ink/",
        "https://evil.ink/a b",
        "https://evil.ink/\r\nX: y",
        "https://evil.ink\\@good.ink/",
        "https://evil.ink/#x",
        "https:///x",
        "//evil.ink/",
        "",
    ],
)
def test_only_https_to_a_domain_name_is_an_address_of_a_node(url: str) -> None:
    connector = NoConnection()

    async def work() -> None:
        async with HttpTransport(NodeSettings(), resolver=Names(), connector=connector) as transport:
            with raises("federation.bad-url"):
                await transport.send(PeerRequest("GET", url))

    run(work())
    assert connector.asked == []


def test_address_of_a_node_is_taken_apart() -> None:
    url = parse_url("https://Jane.haiku.ink:8443/a/b?c=d%20e")
    assert (url.host, url.port, url.target) == ("jane.haiku.ink", 8443, "/a/b?c=d%20e")
    assert url.authority == "jane.haiku.ink:8443"
    assert parse_url("https://jane.haiku.ink").target == "/"
    assert parse_url("https://jane.haiku.ink:443").authority == "jane.haiku.ink"


# Encryption


def test_certificate_must_be_of_the_name_that_was_asked_for(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(answering(b"hello"), server_context("jane.haiku.ink", tmp_path)) as port:
            names = Names(jane_haiku_ink=[["127.0.0.1"]], evil_ink=[["127.0.0.1"]])
            settings = NodeSettings(allow_private_addresses=True)
            async with HttpTransport(settings, resolver=names, ssl_context=client_context()) as transport:
                answer = await transport.send(PeerRequest("GET", f"https://jane.haiku.ink:{port}/"))
                assert (answer.status, answer.body) == (200, b"hello")
                with pytest.raises(PeerUnreachable, match="certificate"):
                    await transport.send(PeerRequest("GET", f"https://evil.ink:{port}/"))
            async with HttpTransport(settings, resolver=names) as transport:
                with pytest.raises(PeerUnreachable, match="certificate"):
                    await transport.send(PeerRequest("GET", f"https://jane.haiku.ink:{port}/"))

    run(work())


def test_server_without_encryption_is_not_spoken_to() -> None:
    asked: list[bytes] = []

    async def handler(request: bytes, _writer: asyncio.StreamWriter) -> None:
        asked.append(request)

    async def work() -> None:
        async with serving(handler) as port:
            names = Names(jane_haiku_ink=[["127.0.0.1"]])
            async with HttpTransport(
                NodeSettings(allow_private_addresses=True, peer_timeout_seconds=1), resolver=names
            ) as transport:
                with pytest.raises(FederationError) as caught:
                    await transport.send(PeerRequest("GET", f"https://jane.haiku.ink:{port}/"))
                assert isinstance(caught.value, PeerUnreachable | PeerTimeout)
                with raises("federation.bad-url"):
                    await transport.send(PeerRequest("GET", f"http://jane.haiku.ink:{port}/"))

    run(work())
    assert asked == []


def test_request_in_development_still_names_the_host_it_is_meant_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    asked: list[bytes] = []

    async def handler(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(request)
        await answering(b"ok", "200 OK", "Set-Cookie: a=b")(request, writer)

    async def work() -> None:
        async with (
            serving(handler) as port,
            HttpTransport(NodeSettings(resolve=(f"*.haiku.ink=127.0.0.1:{port}",))) as transport,
        ):
            for _ in range(2):
                request = PeerRequest("POST", "https://jane.haiku.ink/inbox?a=b", (("X-Word", "x"),), b"body")
                assert (await transport.send(request)).body == b"ok"

    run(work())
    head, _, body = asked[1].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /inbox?a=b HTTP/1.1"
    assert b"Host: jane.haiku.ink" in lines
    assert b"Accept-Encoding: identity" in lines
    assert b"X-Word: x" in lines
    assert not any(line.lower().startswith(b"cookie") for line in lines)
    assert body == b"body"


# Answers


@pytest.mark.parametrize(
    "location",
    [
        "http://evil.ink/",
        "https://other.ink/",
        "https://127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/",
        "https://evil.ink/elsewhere",
        "/elsewhere",
    ],
)
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_no_redirect_is_followed(status: str, location: str) -> None:
    asked: list[bytes] = []

    async def handler(request: bytes, writer: asyncio.StreamWriter) -> None:
        asked.append(request.split(b"\r\n")[0])
        await answering(b"", status, f"Location: {location}")(request, writer)

    with pytest.raises(Redirected):
        run(ask(handler))
    assert asked == [b"GET /x HTTP/1.1"]


def test_huge_answer_is_refused_by_its_announced_length() -> None:
    async def handler(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
        await asyncio.sleep(30)

    started = time.monotonic()
    with pytest.raises(AnswerTooLarge):
        run(ask(handler))
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("head", [b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n"])
def test_endless_answer_is_cut_at_the_limit(head: bytes) -> None:
    sent = 0

    async def handler(_request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n")
        piece = b"2000\r\n" + bytes(0x2000) + b"\r\n"
        while True:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()

    with pytest.raises(AnswerTooLarge):
        run(ask(handler, max_answer_bytes=100_000))
    assert sent < 20_000_000


def test_request_can_ask_for_less_than_the_setting_allows() -> None:
    async def work() -> None:
        async with (
            serving(answering(bytes(101))) as port,
            HttpTransport(NodeSettings(resolve=(f"evil.ink=127.0.0.1:{port}",))) as transport,
        ):
            with pytest.raises(AnswerTooLarge):
                await transport.send(PeerRequest("GET", "https://evil.ink/", max_answer_bytes=100))
            answer = await transport.send(PeerRequest("GET", "https://evil.ink/", max_answer_bytes=101))
            assert len(answer.body) == 101

    run(work())


@pytest.mark.parametrize("where", ["status", "headers", "informational", "body"])
def test_answer_that_drips_is_cut_at_the_deadline(where: str) -> None:
    starts = {
        "status": (b"HTTP/1.1 200 O", b"K"),
        "headers": (b"HTTP/1.1 200 OK\r\n", b"X-Word: x\r\n"),
        "informational": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
    }

    async def handler(_request: bytes, writer: asyncio.StreamWriter) -> None:
        start, drop = starts[where]
        writer.write(start)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.05)

    started = time.monotonic()
    with pytest.raises(PeerTimeout):
        run(ask(handler, peer_timeout_seconds=0.6))
    assert time.monotonic() - started < 3


def test_server_that_does_not_read_is_left_at_the_deadline() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            settings = NodeSettings(resolve=(f"evil.ink=127.0.0.1:{deaf.getsockname()[1]}",), peer_timeout_seconds=0.5)
            async with HttpTransport(settings) as transport:
                with pytest.raises(PeerTimeout):
                    await transport.send(PeerRequest("POST", "https://evil.ink/", (), bytes(50_000_000)))

    run(work())


def test_handshake_that_never_ends_leaves_no_connection_behind() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            names = Names(evil_ink=[["127.0.0.1"]])
            settings = NodeSettings(allow_private_addresses=True, peer_timeout_seconds=0.3)
            async with HttpTransport(settings, resolver=names) as transport:
                with pytest.raises(PeerTimeout):
                    await transport.send(PeerRequest("GET", f"https://evil.ink:{deaf.getsockname()[1]}/"))
                deaf.setblocking(False)
                taken, _ = deaf.accept()
                with taken:
                    taken.settimeout(2)
                    assert taken.recv(100_000) != b"", "the handshake began"
                    assert taken.recv(1) == b"", "and the connection is closed"

    run(work())


def test_slow_name_counts_into_the_deadline() -> None:
    class Slow:
        async def resolve(self, host: str) -> list[object]:
            await asyncio.sleep(30)
            return []

    async def work() -> None:
        settings = NodeSettings(peer_timeout_seconds=0.3)
        async with HttpTransport(settings, resolver=Slow()) as transport:  # type: ignore[arg-type]
            with pytest.raises(PeerTimeout):
                await transport.send(PeerRequest("GET", "https://evil.ink/"))

    run(work())


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "identity, gzip"])
def test_compressed_answer_is_refused_and_never_unpacked(encoding: str) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 100_000
    with pytest.raises(BadAnswer):
        run(ask(answering(bomb, "200 OK", f"Content-Encoding: {encoding}")))


@pytest.mark.parametrize(
    "rubbish",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut off",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 200_000,
        b"\x00" * 1000 + b"\r\n\r\n",
        b"",
    ],
    ids=range(8),
)
def test_server_that_talks_rubbish_is_refused(rubbish: bytes) -> None:
    async def handler(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(rubbish)
        writer.close()

    with pytest.raises(FederationError) as caught:
        run(ask(handler))
    assert isinstance(caught.value, BadAnswer | PeerUnreachable)


def test_nobody_at_the_port_is_unreachable() -> None:
    async def work() -> None:
        async with serving(answering(b"")) as port:
            pass
        async with HttpTransport(NodeSettings(resolve=(f"evil.ink=127.0.0.1:{port}",))) as transport:
            with pytest.raises(PeerUnreachable):
                await transport.send(PeerRequest("GET", "https://evil.ink/"))

    run(work())


def test_errors_of_the_other_node_are_answers_too() -> None:
    answer = run(ask(answering(b"busy", "429 Too Many", "Retry-After: 7")))
    assert (answer.status, answer.body, answer.header("retry-after")) == (429, b"busy", "7")


def test_one_slow_node_does_not_delay_the_others() -> None:
    async def slow(_request: bytes, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async def work() -> float:
        async with serving(slow) as dead, serving(answering(b"ok")) as alive:
            resolve = (f"dead.ink=127.0.0.1:{dead}", f"alive.ink=127.0.0.1:{alive}")
            async with HttpTransport(NodeSettings(resolve=resolve, peer_timeout_seconds=2)) as transport:
                waiting = [
                    asyncio.create_task(transport.send(PeerRequest("GET", "https://dead.ink/"))) for _ in range(150)
                ]
                await asyncio.sleep(0.2)
                started = time.monotonic()
                assert (await transport.send(PeerRequest("GET", "https://alive.ink/"))).body == b"ok"
                taken = time.monotonic() - started
                assert all(
                    isinstance(item, PeerTimeout) for item in await asyncio.gather(*waiting, return_exceptions=True)
                )
                return taken

    assert run(work()) < 1


def test_command_can_wait_for_an_answer() -> None:
    with raises("federation.bad-url"):
        run_with_transport(NodeSettings(), lambda transport: transport.send(PeerRequest("GET", "http://evil.ink/")))

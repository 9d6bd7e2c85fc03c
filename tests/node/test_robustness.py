"""Requests that no client should send: each gets its 4xx, in bounded time and memory."""

import asyncio
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from inkgrove.api.http.bodies import BodyLimits
from inkgrove.api.http.formats import FEW_VALUES, MAX_DEPTH, MAX_DIGITS, MAX_MEMBERS, parse_json
from inkgrove.messages import DELIVERY_MEDIA_TYPE
from inkgrove.node.settings import NodeSettings
from tests.support.errors import raises
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD

MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    settings = {
        "registration": "open",
        "domains": "haiku.ink",
        "max_body_bytes": str(MIB),
        "body_seconds": "2",
        "max_header_bytes": "20000",
    }
    with Serving(tmp_path_factory.mktemp("robust"), settings) as node:
        yield node


def sign_in(serving: Serving, fqdn: str) -> dict[str, str]:
    """The headers of a new identity."""
    facts = {"fqdn": fqdn, "password": PASSWORD}
    assert serving.client.post("/identities", json=facts).status_code == 201
    return {"Authorization": f"Bearer {serving.client.post('/sessions', json=facts).json()['token']}"}


# Strict JSON


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{}}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"b": {"a": 1, "\\u0061": 2}}',
        b'{"a": "\xff"}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": "\\ud800"}',
        b'{"\\udc00": 1}',
        b'{"a": "\\u0000"}',
        b'{"a": "\x00"}',
        b'{"a": 01}',
        b"[1,]",
        b"\x00",
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with raises("request.bad-json"):
        parse_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b"null",
        b' {"a": [1, -2.5e3, true, "x"]} ',
        b'{"a": "\\ud83e\\udda5 \\u00e9 \\\\u0000"}',
        '{"ä": "🦥"}'.encode(),
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b"[-" + b"1" * MAX_DIGITS + b"]",
    ],
)
def test_json_is_taken(body: bytes) -> None:
    parse_json(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" + b"[]," * 300_000 + b"[]]",
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[-" + b"1" * (MAX_DIGITS + 1) + b"]",
    ],
)
def test_nesting_number_of_values_and_length_of_integers_are_bounded(body: bytes) -> None:
    with raises("request.too-complex"):
        parse_json(body)


def test_duplicate_behind_many_keys_is_found_in_one_pass() -> None:
    keys = ",".join(f'"k{number}":0' for number in range(MAX_MEMBERS - 1))
    with raises("request.bad-json", match="'k1022' stands twice"):
        parse_json(f'{{{keys},"k1022":0}}'.encode())


def test_object_has_so_many_members() -> None:
    keys = ",".join(f'"k{number}":0' for number in range(MAX_MEMBERS))
    parse_json(f'{{"a":{{{keys}}}}}'.encode())
    for body in (f'{{{keys},"a":0}}', f'{{"a":[{{{keys},"a":0}}]}}', f'{{{keys},"k0":0}}'):
        with raises("request.too-complex", match="1,024 members"):
            parse_json(body.encode())


def test_nothing_is_called_for_each_text_of_a_body() -> None:
    """Only for each object, whose keys are compared, and each number: a patch of 3 MB has hundreds of thousands."""
    steps = 1_000
    body = json.dumps([{"op": "add", "path": "/a", "value": "b"}] * steps).encode()
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        parse_json(body)
    finally:
        sys.setprofile(None)
    assert steps <= calls < steps + 100


def test_commas_in_texts_are_no_values() -> None:
    assert parse_json(json.dumps({"a": "," * 100_000, "b": [1, 2]}).encode())[1] == 5
    assert parse_json(b"[" + b"0," * 9999 + b"0]")[1] == 10_001


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "request.bad-json"),
        (b'{"fqdn": NaN}', "request.bad-json"),
        (b'{"fqdn": "a.ink", "fqdn": "b.ink"}', "request.bad-json"),
        (b'{"fqdn": "\xff"}', "request.bad-json"),
        (b"[" * 10_000 + b"]" * 10_000, "request.too-complex"),
        (b"[]", "request.invalid"),
        (b'{"fqdn": "a.ink", "password": "long enough", "age": 3}', "request.invalid"),
        (b'{"fqdn": 7, "password": []}', "request.invalid"),
    ],
)
def test_malformed_body_is_a_400_with_its_code(serving: Serving, body: bytes, code: str) -> None:
    answer = serving.client.post("/identities", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", None])
def test_wrong_content_type_is_a_415(serving: Serving, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    body = json.dumps({"fqdn": "jane.haiku.ink", "password": PASSWORD}).encode()
    answer = serving.client.post("/identities", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "request.unsupported-media-type")
    assert "application/json" in answer.json()["detail"]


# Sizes: time and memory


def memory_of(pid: int) -> int:
    """The most memory that a process has had, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) * 1024


def test_body_of_100_mb_is_refused_in_bounded_time_and_memory(serving: Serving) -> None:
    signed_in = sign_in(serving, "hundred.haiku.ink")
    before, start = memory_of(serving.pid), time.monotonic()
    piece = b"x" * MIB
    for headers in (JSON, {"Content-Type": "text/plain"}):
        for path in ("/identities", "/sessions"):
            answer = serving.client.post(path, content=piece * 100, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "request.too-large")
        # Without a length it is counted while it comes.
        pieces = (piece for _ in range(100))
        answer = serving.client.post("/identities", content=pieces, headers={**headers, **signed_in})
        assert (answer.status_code, answer.json()["code"]) == (413, "request.too-large")
    assert memory_of(serving.pid) - before < 32 * MIB
    assert time.monotonic() - start < 30


def test_body_just_within_the_limit_takes_bounded_time_and_memory(serving: Serving) -> None:
    signed_in = sign_in(serving, "within.haiku.ink")
    before, start = memory_of(serving.pid), time.monotonic()
    bodies = [
        b"[" * MIB,
        b"[" + b"[]," * (MIB // 3 - 2) + b"[]]",
        b'{"a":' * (MIB // 5),
        b"[" + b"1," * (MIB // 2 - 2) + b"1]",
    ]
    for body in bodies:
        answer = serving.client.post("/identities", content=body, headers={**JSON, **signed_in})
        assert answer.status_code == 400
    assert memory_of(serving.pid) - before < 64 * MIB
    assert time.monotonic() - start < 20


def seconds_of(pid: int) -> float:
    """How much processor time a process has taken."""
    facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")


def unknown_keys(count: int) -> bytes:
    return b"{" + b",".join(b'"%x":0' % number for number in range(count)) + b"}"


@pytest.mark.parametrize("path", ["/sessions", "/identities", "/oauth/register", "/instances", "/me/password"])
def test_large_json_is_not_read_for_those_without_a_token(serving: Serving, path: str) -> None:
    body = unknown_keys(100_000)
    assert len(body) < MIB
    before = seconds_of(serving.pid)
    for content in (body, (body[start : start + 65_536] for start in range(0, len(body), 65_536))):
        for headers in (JSON, {**JSON, "Authorization": "Bearer ink_s_" + "0" * 64}):
            answer = serving.client.post(path, content=content, headers=headers)
            code = "auth.bad-token" if "Authorization" in headers else "auth.required"
            assert (answer.status_code, answer.json()["code"]) == (401, code)
            if not isinstance(content, bytes):
                break  # it can be sent only once
    assert seconds_of(serving.pid) - before < 0.6, "each took about half a second when it was parsed"


def test_unknown_keys_and_values_of_the_wrong_kind_cost_little(serving: Serving) -> None:
    signed_in = sign_in(serving, "keys.haiku.ink")
    begun = seconds_of(serving.pid)
    for headers in (JSON, {**JSON, **signed_in}):
        answer = serving.client.post("/sessions", content=unknown_keys(6000), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "request.too-complex")
        answer = serving.client.post("/sessions", content=unknown_keys(1000), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "request.invalid")
        assert len(answer.json()["places"]) == 20
        body = b'{"client_name":"a","redirect_uris":[' + b"0," * FEW_VALUES + b"0]}"
        answer = serving.client.post("/oauth/register", content=body, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "request.too-complex")
    answer = serving.client.post("/instances", content=unknown_keys(100_000), headers={**JSON, **signed_in})
    assert (answer.status_code, answer.json()["code"]) == (400, "request.too-complex")
    assert seconds_of(serving.pid) - begun < 2


def test_large_bodies_of_any_type_are_not_read_for_those_without_a_token(serving: Serving) -> None:
    headers = {"Content-Type": "application/cbor", "Authorization": "Bearer ink_s_" + "0" * 64}
    for content in (bytes(MIB), (bytes(65_536) for _ in range(10))):
        answer = serving.client.post("/entries", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "auth.bad-token")


def test_entries_in_cbor_that_are_too_many_are_refused_while_they_come(serving: Serving) -> None:
    headers = {"Content-Type": "application/cbor", **sign_in(serving, "cbor.haiku.ink")}
    answer = serving.client.post("/entries", content=(bytes(65_536) for _ in range(20)), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too-large")


def test_large_bodies_of_other_nodes_are_bounded_together(tmp_path: Path) -> None:
    lines = ["POST /federation/deliveries HTTP/1.1", "Host: a", f"Content-Type: {DELIVERY_MEDIA_TYPE}"]
    head = "\r\n".join([*lines, f"Content-Length: {15 * MIB}", "", ""]).encode()
    with Serving(tmp_path) as serving, ExitStack() as stack:
        before, refused = memory_of(serving.pid), 0
        for _ in range(12):
            connection = stack.enter_context(closing(serving.connect()))
            connection.settimeout(30)
            with suppress(ConnectionError):
                connection.sendall(head + bytes(15 * MIB - 1))  # it waits for the last byte
            connection.setblocking(False)
            with suppress(BlockingIOError, ConnectionError):
                time.sleep(0.2)
                refused += b"request.too-much-at-once" in connection.recv(10_000)
        assert refused >= 6
        assert memory_of(serving.pid) - before < 120 * MIB
        assert serving.client.get("/readyz").status_code == 200


@pytest.mark.parametrize("path", ["deliveries", "entries", "own/heights", "relations", "nothing", "forks/"])
def test_json_of_other_nodes_is_refused_before_it_is_read(serving: Serving, path: str) -> None:
    head = f"POST /federation/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with closing(serving.connect()) as connection:
        connection.settimeout(20)
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode())  # and nothing of the body
        answer = connection.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 415 ")
        assert b'"code":"request.unsupported-media-type"' in answer


@pytest.mark.parametrize(
    ("path", "size"),
    [("nothing", 4097), ("forks", 4097), ("own/heights", 4097), ("blobs/x", 4097), ("own/entries", MIB + 1)],
)
def test_bodies_of_other_nodes_are_small_but_for_deliveries(serving: Serving, path: str, size: int) -> None:
    media_type = "application/json" if path == "forks" else DELIVERY_MEDIA_TYPE
    answer = serving.client.post(f"/federation/{path}", content=bytes(size), headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too-large")
    assert answer.json()["limit"] == size - 1


# What bodies take in memory


async def hold(
    limits: BodyLimits, address: str, path: str, content: bytes, media_type: str, until: asyncio.Event
) -> int:
    """The status of a request whose body comes from an address and whose answer waits until told."""
    status: list[int] = []

    async def send(message: Message) -> None:
        status.append(message.get("status", 0))

    parts = iter([{"type": "http.request", "body": content, "more_body": True}])

    async def receive() -> Message:
        return next(parts, None) or (await until.wait() and {"type": "http.request", "body": b"", "more_body": False})

    headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(content) + 1).encode())]
    facts = {"type": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "method": "POST"}
    await limits({**facts, "headers": headers, "client": (address, 1)}, receive, send)
    return status[0]


async def read_all_and_answer(_scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def admit_anybody(_scope: Scope) -> None:
    pass


def test_few_networks_do_not_take_the_memory_of_those_who_are_signed_in_nor_all_of_their_own() -> None:
    content = bytes(15 * MIB)

    async def run() -> None:
        limits, until = BodyLimits(read_all_and_answer, NodeSettings(), admit_anybody), asyncio.Event()

        def begin(address: str, path: str = "/federation/deliveries", body: bytes = content) -> asyncio.Task[int]:
            return asyncio.create_task(hold(limits, address, path, body, DELIVERY_MEDIA_TYPE, until))

        for network in range(4):
            for _ in range(8):
                begin(f"192.0.2.{network}")
        await asyncio.sleep(0.01)
        honest = [begin("198.51.100.1", "/entries"), begin("198.51.100.1", body=bytes(4 * MIB))]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in honest), "none was refused"
        until.set()
        assert await asyncio.gather(*honest) == [200, 200]

    asyncio.run(run())


@pytest.mark.parametrize("sign", ["🦥", "\\ud83e\\udda5"])
def test_text_with_wide_characters_counts_as_wide_as_it_is_read(sign: str) -> None:
    async def read(letters: str) -> list[int]:
        limits, until = BodyLimits(read_all_and_answer, NodeSettings(), admit_anybody), asyncio.Event()
        body = f'["{sign}{letters}"'.encode() if letters else b'["' + b"x" * 15 * MIB + b'"'
        tasks = [
            asyncio.create_task(hold(limits, "192.0.2.1", "/entries", body, "application/json", until))
            for _ in range(2)
        ]
        until.set()
        return await asyncio.gather(*tasks)

    assert [status == 503 for status in asyncio.run(read("x" * 15 * MIB))].count(True) >= 1
    assert asyncio.run(read("")) == [400, 400], "it is not JSON, and there was room to find out"


def test_blob_of_a_json_type_is_streamed_and_not_looked_into(serving: Serving) -> None:
    signed_in, before = sign_in(serving, "blobs.haiku.ink"), memory_of(serving.pid)
    large = b'"' + b"x" * (60 * MIB) + b'"'
    for media_type in ("application/json", "application/ld+json"):
        headers = {"Content-Type": media_type, **signed_in}
        answer = serving.client.post("/blobs", content=b'{"a": NaN, "a":', headers=headers)
        assert (answer.status_code, answer.json()["type"]) == (201, media_type)
        assert serving.client.post("/blobs", content=large, headers=headers).status_code == 201
        answer = serving.client.post("/blobs", content=large, headers={"Content-Type": media_type})
        assert (answer.status_code, answer.json()["code"]) == (401, "auth.required")
    assert memory_of(serving.pid) - before < 48 * MIB


def test_more_names_than_recipients_are_not_looked_up(serving: Serving) -> None:
    signed_in, address = sign_in(serving, "names.haiku.ink"), "/instances/0040" + "ab" * 64
    names = [f"a{number}.nowhere.example" for number in range(1025)]
    merge = {"access": {"mode": "closed", "to": names}}
    steps = [{"op": "add", "path": "/access/to/-", "value": names[half::2]} for half in range(2)]
    for kind, patch in {"merge-patch": merge, "json-patch": steps}.items():
        headers = {**signed_in, "Content-Type": f"application/{kind}+json"}
        answer = serving.client.patch(address, content=json.dumps(patch), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (422, "publish.bad-document")
    # Fewer are, and lead to nobody.
    answer = serving.client.patch(address, json={"access": {"to": names[:3]}}, headers={**headers, **MERGE_PATCH})
    assert (answer.status_code, answer.json()["code"]) == (404, "identity.unknown")


def test_head_of_a_request_is_bounded(serving: Serving) -> None:
    answer = serving.client.get("/healthz", headers={"X-Long": "x" * 25_000})
    assert (answer.status_code, answer.json()["code"]) == (431, "request.head-too-large")
    before = memory_of(serving.pid)
    with serving.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        sent = 0
        with suppress(OSError):  # refused long before all of it is sent
            while sent < 100 * MIB:
                sent += connection.send(b"X-Long: " + b"x" * 100_000 + b"\r\n")
                time.sleep(0.001)
    assert sent < 50 * MIB
    assert memory_of(serving.pid) - before < 16 * MIB
    assert serving.client.get("/healthz").status_code == 200


def test_many_requests_on_one_connection_are_not_one_long_head(serving: Serving) -> None:
    for _ in range(5):
        assert serving.client.get("/healthz", headers={"X-Long": "x" * 15_000}).status_code == 200


def test_answer_comes_in_one_piece(serving: Serving) -> None:
    with serving.connect() as connection:
        connection.settimeout(10)
        for _ in range(50):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            head, _, body = connection.recv(65536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert json.loads(body)


def read_all(connection: socket.socket) -> bytes:
    connection.settimeout(10)
    return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01 this is no HTTP\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
    ],
    ids=["long address", "garbage", "unknown version"],
)
def test_what_is_not_http_is_refused_in_our_own_form(serving: Serving, request_bytes: bytes) -> None:
    with serving.connect() as connection:
        connection.sendall(request_bytes)
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] in ("request.invalid", "request.head-too-large")


# Slowness


def test_slow_body_times_out(serving: Serving) -> None:
    with serving.connect() as connection:
        head = b"POST /sessions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head)
        start = time.monotonic()
        for _ in range(5):
            connection.sendall(b"{")
            time.sleep(0.1)
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request.too-slow"' in answer
        assert time.monotonic() - start < 8


@pytest.mark.parametrize("sent", [0, 600_000])
def test_body_that_comes_no_more_is_not_waited_for_however_much_of_it_came(serving: Serving, sent: int) -> None:
    signed_in = sign_in(serving, f"slow{sent}.haiku.ink")["Authorization"]
    head = f"POST /entries HTTP/1.1\r\nHost: x\r\nAuthorization: {signed_in}\r\nContent-Type: application/cbor\r\n"
    with closing(serving.connect()) as connection:
        connection.settimeout(20)  # at 16 KiB/s, 600 kB give 36 s
        connection.sendall(f"{head}Content-Length: 1000000\r\n\r\n".encode() + bytes(sent))
        assert connection.recv(10_000).startswith(b"HTTP/1.1 408 ")


def test_slow_head_times_out(serving: Serving) -> None:
    with serving.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
        answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
    with serving.connect() as connection:
        assert read_all(connection) == b"", "who says nothing is not kept"


# Addresses, methods, origins


def test_clients_that_go_away_before_the_answer_do_no_harm(serving: Serving) -> None:
    for _ in range(300):
        with serving.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n")
    assert serving.client.get("/healthz").status_code == 200
    assert serving.process.poll() is None


@pytest.mark.parametrize("path", ["/identities/a%00b", "/identities/jane?x=%00"])
def test_nul_in_an_address_is_refused(serving: Serving, path: str) -> None:
    answer = serving.client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (400, "request.bad-address")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/views?nothing=1"),
        ("GET", "/views/notes?were=a:eq:1"),
        ("GET", "/views/notes?where=a:eq:1&Limit=5"),
        ("GET", f"/views/{'ab' * 32}/1?x"),
        ("GET", f"/instances/0040{'ab' * 64}?as-of=1"),
        ("GET", "/views/notes/changes?limit=1"),
        ("POST", "/instances?dry-run=true"),
        ("POST", "/entries?x="),
        ("PATCH", "/instances/x?historie=show"),
        ("GET", "/healthz?x=1"),
    ],
)
def test_parameter_that_a_route_does_not_know_is_refused(serving: Serving, method: str, path: str) -> None:
    answer = serving.client.request(method, path, json={} if method != "GET" else None)
    assert (answer.status_code, answer.json()["code"]) == (400, "request.unknown-parameter")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/oauth/authorize?x=1", 400),
        ("/.well-known/oauth-authorization-server?x=1", 200),
        ("/.well-known/inkgrove?x=1", 404),
        ("/pages/sign-in?x=1", 200),
        ("/nothing?x=1", 404),
    ],
)
def test_oauth_discovery_and_pages_ignore_what_they_do_not_know(serving: Serving, path: str, status: int) -> None:
    answer = serving.client.get(path)
    assert answer.status_code == status
    assert "unknown-parameter" not in answer.text


@pytest.mark.parametrize(
    "path", ["/nothing", "/identities/%ff%fe", "/blobs/..%2f..%2fetc%2fpasswd", "/identities/" + "x" * 9000]
)
def test_what_is_not_there_is_a_404(serving: Serving, path: str) -> None:
    answer = serving.client.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_options_and_wrong_methods_say_what_there_is(serving: Serving) -> None:
    answer = serving.client.options("/identities/jane.haiku.ink")
    assert (answer.status_code, answer.headers["allow"]) == (204, "GET, HEAD, OPTIONS")
    answer = serving.client.delete("/identities/jane.haiku.ink")
    assert (answer.status_code, answer.json()["code"]) == (405, "request.method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS"
    assert serving.client.options("/nothing").status_code == 404


def test_head_is_get_without_the_body(serving: Serving) -> None:
    for path in ("/healthz", "/openapi.json", "/nothing"):
        got, head = serving.client.get(path), serving.client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-length"] == got.headers["content-length"]


def test_pages_of_any_origin_may_call_with_a_token_and_without_cookies(serving: Serving) -> None:
    origin = {"Origin": "https://app.example"}
    asks = {"Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "authorization"}
    answer = serving.client.options("/identities", headers={**origin, **asks})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "PATCH" in answer.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in answer.headers
    answer = serving.client.get("/healthz", headers=origin)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()


def test_every_answer_has_security_headers(serving: Serving) -> None:
    for path in ("/healthz", "/nothing", "/openapi.json"):
        headers = serving.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert "server" not in headers

"""The client against real nodes: errors by code, tokens that are renewed, entries signed here, streams that break."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from inkgrove.client.async_client import AsyncClient
from inkgrove.client.client import Client
from inkgrove.client.errors import (
    Conflict,
    Invalid,
    NotAllowed,
    NotANode,
    NotAuthorised,
    NotFound,
    NotSignedIn,
    Refused,
    TryLater,
    Unreachable,
    refusal,
)
from inkgrove.client.events import ChangeReader, LineSplitter
from inkgrove.client.models import Tokens
from inkgrove.client.operations import Operation, Operations
from inkgrove.client.values import to_json, to_message
from inkgrove.core import SecretKey
from inkgrove.messages import Create, parse_timestamp
from inkgrove.node.settings import NodeSettings
from inkgrove.store.logs import read_logs
from tests.client.conftest import Person
from tests.support.nodes import PASSWORD, RunningNode
from tests.support.publishing import make_schema

JANE = "jane.haiku.ink"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningNode]:
    settings = NodeSettings(
        registration="open", domains=("haiku.ink",), administrators=("admin.haiku.ink",), access_token_seconds=3600
    )
    with RunningNode(tmp_path, tmp_path, settings) as node:
        node.create(JANE)
        yield node


@pytest.fixture
def jane(running: RunningNode) -> Iterator[Client]:
    with Client.sign_in(running.url, JANE, PASSWORD) as client:
        yield client


def new_key(number: int = 1) -> SecretKey:
    return SecretKey.from_seed(bytes([number]) * 32)


# What is refused


def test_refusals_have_the_class_of_what_to_do_and_the_code_of_the_node(running: RunningNode, jane: Client) -> None:
    schema = make_schema(running.sign_in(JANE))
    with Client(running.url) as nobody, Client(running.url, token="ink_s_" + "0" * 64) as expired:
        cases = [
            (nobody.me, NotSignedIn, "auth.required", 401),
            (expired.me, NotSignedIn, "auth.bad-token", 401),
            (lambda: Client.sign_in(running.url, JANE, "wrong password"), NotSignedIn, "auth.bad-password", 401),
            (lambda: jane.materialise(schema), NotAllowed, "auth.not-allowed", 403),
            (lambda: jane.identity("nobody.haiku.ink"), NotFound, "identity.unknown", 404),
            (lambda: jane.view("nothing").page(), NotFound, "view.unknown", 404),
            (lambda: jane.create_identity(JANE, PASSWORD), Conflict, "identity.exists", 409),
            (lambda: jane.create(schema, {"stars": "three"}), Invalid, "instance.wrong-type", 422),
            (lambda: jane.migrate(schema, {"subject": {"action": "create"}}), Invalid, "message.missing-key", 422),
        ]
        for call, kind, code, status in cases:
            with pytest.raises(Refused) as caught:
                call()
            assert (type(caught.value), caught.value.code, caught.value.status) == (kind, code, status)
            assert str(caught.value).endswith(f"[{code}]")


def test_refusal_brings_what_the_node_says_beside_the_code() -> None:
    error = refusal(429, {"code": "auth.too-many-attempts", "detail": "wait", "status": 429, "retry_after": 30})
    assert isinstance(error, TryLater)
    assert (error.retry_after, error.message, error.data) == (30, "wait", {"retry_after": 30})


def test_nobody_at_the_address_is_told_with_what_to_do() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(Unreachable, match="Is the node running"):
        client.me()


@pytest.mark.parametrize(("status", "said"), [("404 Not Found", "check its address"), ("200 OK", "no JSON")])
def test_something_else_at_the_address_is_told(status: str, said: str) -> None:
    answer = f"HTTP/1.1 {status}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope".encode()
    with Answering(answer) as server, Client(server.url) as client, pytest.raises(NotANode, match=said):
        client.me()


# Services


def authorise(running: RunningNode, *scopes: str, action: str = "allow", **options: Any) -> Client:
    person = Person(running.url, JANE, PASSWORD, action)
    return Client.authorise(running.url, scopes, service="Reader", open_page=person.open, timeout=20, **options)


def test_access_is_refreshed_once_however_many_ask_at_the_same_time(running: RunningNode) -> None:
    kept: list[Tokens] = []
    with authorise(running, "relations:read", keep=kept.append) as client:
        (first,) = kept
        assert first == client.tokens
        client._credentials.tokens = replace(first, access="ink_a_" + "0" * 64)  # as if it had expired
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: client.me().fqdn, range(16)))
        assert found == [JANE] * 16
        assert len(kept) == 2, "a refresh token is good for one use"
        assert repr(first).count("ink_") == 0
    with Client(running.url, tokens=kept[-1]) as again:
        assert again.me().scopes == ("relations:read",)
        again.give_back()
        with pytest.raises(NotSignedIn):
            again.me()


def test_awaited_access_is_refreshed_once_too(running: RunningNode) -> None:
    async def work() -> None:
        person = Person(running.url, JANE, PASSWORD)
        kept: list[Tokens] = []
        client = await AsyncClient.authorise(
            running.url, ["relations:read"], service="Reader", open_page=person.open, keep=kept.append, timeout=20
        )
        async with client:
            client._credentials.tokens = replace(kept[0], access="ink_a_" + "0" * 64)
            found = await asyncio.gather(*(client.me() for _ in range(8)))
            assert {item.fqdn for item in found} == {JANE}
            assert len(kept) == 2
            await client.give_back()

    asyncio.run(work())


def test_identity_that_says_no_is_told(running: RunningNode) -> None:
    with pytest.raises(NotAuthorised, match="did not agree: access_denied"):
        authorise(running, "relations:read", action="deny")


def test_browser_that_comes_back_with_another_state_is_not_believed(running: RunningNode) -> None:
    import httpx

    def forge(address: str) -> None:
        back = httpx.URL(address).params["redirect_uri"]
        threading.Thread(target=httpx.get, args=(f"{back}?code=x&state=forged",)).start()

    with pytest.raises(NotAuthorised, match="another state"):
        Client.authorise(running.url, ["relations:read"], service="Reader", open_page=forge, timeout=20)


def test_browser_that_never_comes_back_is_not_waited_for(running: RunningNode) -> None:
    with pytest.raises(NotAuthorised, match="within 0 seconds"):
        Client.authorise(running.url, ["relations:read"], service="Reader", open_page=lambda _: None, timeout=0.1)


# Signing here


def test_two_writers_with_one_key_sign_again_for_the_next_place(running: RunningNode, jane: Client) -> None:
    schema = make_schema(running.sign_in(JANE))
    key = new_key()
    jane.add_key(key, password=PASSWORD)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda number: jane.create(schema, {"stars": number}, key=key), range(12)))
    assert len({item.instance for item in made}) == 12
    (log,) = (
        state for state in running.node.store.read(read_logs).values() if state.author == key.public and state.log_id
    )
    assert (log.held, log.height) == (12, 12)


def test_values_signed_here_are_those_that_the_node_would_sign(running: RunningNode, jane: Client) -> None:
    schema, key = make_schema(running.sign_in(JANE)), new_key()
    jane.add_key(key, password=PASSWORD)
    blob = jane.upload(b"a sloth", "text/plain")
    sent = datetime(2020, 5, 22, 13, 58, 50, tzinfo=timezone(timedelta(hours=2)))
    fields = {"subject": "Hi", "sent": sent, "picture": blob, "tags": ["a", "b"], "weight": 2, "read": True}
    one = jane.create(schema, {**fields, "answers": None})
    other = jane.create(schema, {**fields, "answers": one}, key=key)
    assert jane.download(blob) == b"a sloth"
    from inkgrove.core import parse_hash
    from inkgrove.messages import decode_message
    from inkgrove.node.publishing import find_held_instance

    found = []
    for name in (one, other):
        held = running.node.database.read(lambda c, name=name: find_held_instance(c, parse_hash(name.instance)))  # type: ignore[misc]
        assert held is not None
        message = decode_message(held.messages[0].payload or b"")
        assert isinstance(message, Create)
        found.append(dict(message.fields))
    assert found[1].pop("answers") == bytes.fromhex(one.instance)
    assert found[0] == {**found[1], **{name: None for name in found[0] if name not in found[1]}}


def test_key_that_is_nobodys_signs_nothing(running: RunningNode, jane: Client) -> None:
    schema = make_schema(running.sign_in(JANE))
    with pytest.raises(NotAllowed) as caught:
        jane.create(schema, {}, key=new_key(2))
    assert caught.value.code == "publish.foreign-author"


# Values


def test_values_are_sent_as_json_holds_them() -> None:
    moment = datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert to_json({"at": moment, "id": b"\x01", "all": [1, None, "x"]}) == {
        "at": "2020-01-01T00:00:00Z",
        "id": "01",
        "all": [1, None, "x"],
    }
    with pytest.raises(ValueError, match="time zone"):
        to_json(datetime(2020, 1, 1))


def test_values_to_be_signed_have_the_types_of_messages() -> None:
    assert to_message("2020-01-01T00:00:00Z", "timestamp") == parse_timestamp("2020-01-01T00:00:00Z")
    assert to_message(datetime(2020, 1, 1, tzinfo=UTC), "timestamp") == parse_timestamp("2020-01-01T00:00:00Z")
    assert to_message(["0a", "0b"], "relation[]") == [b"\x0a", b"\x0b"]
    assert to_message({"hash": "0a", "size": 1, "type": "x/y"}, "blob") == {"hash": b"\x0a", "size": 1, "type": "x/y"}
    assert to_message(None, "timestamp") is None
    assert to_message("text", "text") == "text"


# Streams


class Answering:
    """Answers each connection with the next of some bytes, and hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = answers
        self.heads: list[str] = []

    def __enter__(self) -> "Answering":
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._socket.accept()
            with connection:
                self.heads.append(connection.recv(65536).decode())
                connection.sendall(answer)

    def __exit__(self, *_: object) -> None:
        self._thread.join(10)
        self._socket.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
BROKEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def removed(name: str, event_id: str) -> bytes:
    return f'event: change\nid: {event_id}\ndata: [{{"op":"remove","path":"/rows/{name}"}}]\n\n'.encode()


def test_stream_that_breaks_is_taken_up_behind_the_last_whole_event() -> None:
    answers = [
        HEAD + b"id: start\n\n" + removed("a", "1") + removed("b", "2")[:30],
        BROKEN + b"ff\r\n: still here\n",
        HEAD + removed("b", "2") + b": still here\nid: 3\n\n",
        HEAD + b"event: reset\nid: 4\ndata: []\n\n",
    ]
    with Answering(*answers) as server, Client(server.url) as client:
        changes = client.view("mail").changes()
        told = [(item.kind, item.instance, item.id) for item in (next(changes) for _ in range(3))]
        changes.close()  # type: ignore[attr-defined]
    assert told == [("remove", "a", "1"), ("remove", "b", "2"), ("reset", None, "4")]
    sent = [
        next((line[15:] for line in head.split("\r\n") if line.lower().startswith("last-event-id")), None)
        for head in server.heads
    ]
    assert sent == [None, "1", "1", "3"]


def test_awaited_stream_is_taken_up_too() -> None:
    async def work(url: str) -> list[str]:
        async with AsyncClient(url) as client:
            changes = client.view("mail").changes(after="0")
            return [(await anext(changes)).id for _ in range(2)]

    with Answering(HEAD + removed("a", "1"), HEAD + removed("b", "2")) as server:
        assert asyncio.run(work(server.url)) == ["1", "2"]
    assert "Last-Event-ID: 0" in server.heads[0]
    assert "Last-Event-ID: 1" in server.heads[1]


def test_event_of_several_changes_counts_with_its_last() -> None:
    reader = ChangeReader("0")
    data = '[{"op":"remove","path":"/rows/a"},{"op":"remove","path":"/rows/b"}]'
    changes = [item for line in ("event: change", "id: 1", f"data: {data}", "") for item in reader.feed(line)]
    assert [(item.instance, item.id) for item in changes] == [("a", "0"), ("b", "1")]


def test_only_line_feeds_end_lines_wherever_the_pieces_are_cut() -> None:
    text = 'data: "one\u2028two\u0085three"\r\n\ndata: ä\n'.encode()
    for cut in range(len(text)):
        splitter = LineSplitter()
        lines = [*splitter.feed(text[:cut]), *splitter.feed(text[cut:])]
        assert lines == ['data: "one\u2028two\u0085three"', "", "data: ä"]


# The two clients


def test_both_clients_offer_the_same_and_say_what_it_does() -> None:
    offered = [name for name, item in vars(Operations).items() if isinstance(item, Operation)]
    assert len(offered) > 30
    with Client("http://127.0.0.1:1") as client:
        for name in offered:
            assert getattr(client, name).__doc__, name
            assert signature(getattr(client, name)) == signature(getattr(AsyncClient("http://127.0.0.1:1"), name))
    for kind, other in ((Client, AsyncClient),):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert public == {name for name in dir(other) if not name.startswith("_")}


def test_client_imports_what_comes_with_it_alone() -> None:
    """As `pip install inkgrove` brings it; where click and rich are installed, httpx loads them too."""
    brought = {"nacl", "_cffi_backend", "cffi", "blake3", "cbor2", "httpx", "httpcore", "h11", "anyio", "idna"}
    brought |= {"certifi", "_sodium", "sniffio", "typing_extensions"}
    program = (
        "import sys; sys.modules['click'] = None; before = set(sys.modules); import inkgrove.client\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "ours = {name.split('.')[1] for name in sys.modules if name.startswith('inkgrove.')}\n"
        f"print(sorted(loaded - {brought!r}), sorted(ours))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['inkgrove'] ['client', 'core', 'messages']\n"

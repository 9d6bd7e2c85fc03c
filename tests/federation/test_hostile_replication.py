"""Nodes that try to keep another one from replicating: each is left with a code, and honest peers do not notice."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import PublicKey
from inkgrove.federation.peers import WELL_KNOWN_PATH, Discovery, HttpTransport
from inkgrove.federation.replication import ENTRIES_PATH, HEIGHTS_PATH
from inkgrove.messages import (
    AskHeights,
    Entries,
    Heights,
    LogHeight,
    SchemaId,
    Want,
    decode_ask_heights,
    decode_wants,
    encode_entries,
    encode_heights,
)
from inkgrove.node.runtime import Node
from inkgrove.store.federation import add_peer, is_any_schema_due, list_peers, want_schemas
from inkgrove.store.logs import payloads_of_schema
from tests.support.federated import federation, until
from tests.support.logs import LogBuilder, key
from tests.support.peers import Elsewhere, answering, run, serving
from tests.support.publishing import create, make_schema, schema_id

LONG = 2**62
EVE = Elsewhere("eve.evil.ink", 60)
DRIPPED = LogBuilder(key(61), log_id=1).grow(150)


def list_one(_question: AskHeights) -> Heights:
    return Heights([LogHeight(key(61).public, 1, LONG, LONG)], "MC4x", None)


def list_for_ever(question: AskHeights) -> Heights:
    return Heights([LogHeight(key(61).public, question.after + 1, 1, 1)], "MC4x", question.after + 1)


def list_much_for_ever(question: AskHeights) -> Heights:
    authors = [PublicKey((1000 * question.after + n).to_bytes(32, "big")) for n in range(1000)]
    return Heights([LogHeight(author, 1, 1, 1) for author in authors], "MC4x", question.after + 1)


def send_garbage(wants: list[Want]) -> Entries:
    return Entries([(b"garbage", None)], (0, wants[0].after + 1))


def drip(wants: list[Want]) -> Entries:
    place = wants[0].after + 1
    return Entries([(DRIPPED.entry(place).encoded, DRIPPED.payloads[place - 1])], (0, place))


def say_nothing(_question: object) -> None:
    return None


@contextmanager
def eve(
    heights: Callable[[AskHeights], Heights | None], entries: Callable[[list[Want]], Entries | None]
) -> Iterator[int]:
    """Eve's node, in a thread of its own; what is answered with None is never answered."""
    port: list[int] = []
    ready, done = threading.Event(), asyncio.Event()

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        head, body = request.split(b"\r\n\r\n", 1)
        path = head.split(b" ")[1].decode()
        found: bytes | None = b""
        if path == WELL_KNOWN_PATH:
            found = EVE.page()
        elif path == HEIGHTS_PATH:
            page = heights(decode_ask_heights(body))
            found = encode_heights(page) if page is not None else None
        elif path == ENTRIES_PATH:
            batch = entries(decode_wants(body))
            found = encode_entries(batch) if batch is not None else None
        if found is None:
            await done.wait()
        else:
            await answering(found)(request, writer)

    async def serve() -> None:
        async with serving(answer) as number:
            port.append(number)
            loops.append(asyncio.get_running_loop())
            ready.set()
            await done.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield port[0]
    finally:
        loops[0].call_soon_threadsafe(done.set)
        thread.join(10)


@pytest.mark.parametrize(
    ("heights", "entries", "seconds", "code"),
    [
        (list_one, send_garbage, 3600, "federation.bad-answer"),
        (list_one, drip, 3600, "federation.endless-answer"),
        (list_for_ever, send_garbage, 3600, "federation.endless-answer"),
        (list_much_for_ever, say_nothing, 4, "federation.timeout"),  # a quick machine comes to ask for entries
        (list_one, say_nothing, 4, "federation.timeout"),
        (say_nothing, say_nothing, 3600, None),
    ],
    ids=["garbage", "own log in drops", "pages in drops", "pages without end", "silence", "silence for long"],
)
def test_peer_that_means_no_good_is_left_and_an_honest_one_is_synced_meanwhile(
    tmp_path: Path,
    heights: Callable[[AskHeights], Heights | None],
    entries: Callable[[list[Want]], Entries | None],
    seconds: int,
    code: str | None,
) -> None:
    with eve(heights, entries) as port:
        names = (f"*.evil.ink=127.0.0.1:{port}",)
        settings: dict[str, Any] = {"replication_seconds": 1, "peer_sync_seconds": seconds}
        with federation(tmp_path, "ab", resolve=names, peer_timeout_seconds=300.0, **settings) as them:
            jane = them.person("jane", "a")
            them.person("carol", "b")
            node = them.nodes["b"].node
            schema = make_schema(jane)
            opened = create(jane, schema, fields={"subject": "open"}, access={"mode": "public"})["instance"]
            # Eve comes first by name.
            for fqdn in ("eve.evil.ink", "jane.a.ink"):
                node.database.write(lambda c, fqdn=fqdn: add_peer(c, fqdn, node.clock()))  # type: ignore[misc]
            until(lambda: them.payloads("b", opened) == 1)
            # And what she did the next time is no obstacle either.
            later = create(jane, schema, fields={"subject": "later"}, access={"mode": "public"})["instance"]
            until(lambda: them.payloads("b", later) == 1)

            def errors() -> dict[str, str | None]:
                peers = node.database.read(list_peers)
                return {peer.fqdn: (peer.error or "").split(":")[0] or None for peer in peers}

            until(lambda: errors() == {"eve.evil.ink": code, "jane.a.ink": None}, str(errors()))


def test_author_who_never_answers_for_schemas_does_not_hold_up_those_of_others(tmp_path: Path) -> None:
    with eve(say_nothing, say_nothing) as port:
        names = (f"*.evil.ink=127.0.0.1:{port}",)
        with federation(tmp_path, "ab", resolve=names, peer_timeout_seconds=300.0) as them:
            jane = them.person("jane", "a")
            them.person("carol", "b")
            node = them.nodes["b"].node
            schema = schema_id(make_schema(jane))
            find(node, "eve.evil.ink", "jane.a.ink")
            of_eve = {SchemaId(EVE.log.secret.public, number): 2 for number in range(1, 100)}
            node.database.write(lambda c: want_schemas(c, of_eve, 0, EVE.id))
            time.sleep(3)  # the node looks for what is due every two seconds
            node.database.write(lambda c: want_schemas(c, {schema: 2}, node.clock(), jane.id))
            start = time.monotonic()
            until(lambda: sorted(node.store.read(payloads_of_schema, schema).payloads) == [1, 2])
            assert time.monotonic() - start < 30
            assert node.database.read(lambda c: is_any_schema_due(c, 0))


def find(node: Node, *names: str) -> None:
    async def work() -> None:
        async with HttpTransport(node.settings) as transport:
            for name in names:
                await Discovery(node, transport).find(name)

    run(work())

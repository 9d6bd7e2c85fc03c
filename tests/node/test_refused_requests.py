"""What a refused request has read is let go of with its answer, not when garbage is collected."""

import asyncio
import gc
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fastapi import Request
from starlette.types import Message

from inkgrove.api.http.bodies import take_body
from inkgrove.core import SecretKey, sign_entry
from inkgrove.messages import cbor
from inkgrove.schema import LogMessage
from inkgrove.store.logs.preparation import PreparedItem, RejectedItem
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import create, make_schema

TEXTS = [{"text": {"action": "create", "type": "text"}}]
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}


@contextmanager
def without_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def in_memory(kind: type) -> int:
    return sum(isinstance(item, kind) for item in gc.get_objects())


def becomes(count: int, kind: type) -> int:
    """How many of a kind are in memory, once they are `count` or after a while: an answer is read before the end."""
    until = time.monotonic() + 3
    while (found := in_memory(kind)) != count and time.monotonic() < until:
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    ("method", "address", "body"),
    [
        ("GET", "/instances/{}/deliveries", None),
        ("POST", "/instances/{}/pass-on", {"recipients": ["nobody.haiku.ink"]}),
        ("POST", "/instances/{}/share", {"recipients": ["nobody.haiku.ink"]}),
        ("PATCH", "/instances/{}", {"fields": {"text": "b"}}),
        ("GET", "/pages/instances/{}", None),
    ],
)
def test_messages_that_a_refused_request_read_are_let_go_of(
    shared: RunningNode, jane: Person, john: Person, method: str, address: str, body: object
) -> None:
    schema = make_schema(jane, "texts", TEXTS)
    instance = create(jane, schema, fields={"text": "a"}, access={"mode": "relations"})["instance"]
    headers = MERGE_PATCH if method == "PATCH" else {}

    def ask() -> int:
        return john.request(method, address.format(instance), json=body, headers=headers).status_code

    assert ask() in (403, 404)
    with without_collection():
        before = in_memory(LogMessage)
        assert ask() in (403, 404)
        assert becomes(before, LogMessage) == before


def batch_of(*signed: tuple[bytes, bytes]) -> bytes:
    return cbor.encode_unchecked({"entries": [{"entry": entry, "payload": payload} for entry, payload in signed]})


def test_entries_that_were_refused_are_let_go_of(shared: RunningNode, jane: Person) -> None:
    """By the author, by their links, and by their bytes: more of each than are kept for the next group of jobs."""
    key, payload = SecretKey.from_seed(bytes(32)), bytes(20_000)
    entry = sign_entry(key, payload, log_id=5, seq_num=1, lipmaa_link=None, backlink=None).encoded
    foreign, broken = batch_of(*[(entry, payload)] * 20), batch_of(*[(entry[:-1], payload)] * 20)

    def ask(body: bytes) -> None:
        answer = jane.post("/entries", content=body, headers={"Content-Type": "application/cbor"})
        assert {item["status"] for item in answer.json()["receipts"]} == {"refused"}

    for body in (foreign, broken):
        ask(body)
        with without_collection():
            # The writer names its last job until the next one.
            assert jane.get("/publish/next").status_code == 200
            before = in_memory(PreparedItem) + in_memory(RejectedItem)
            for _ in range(3):
                ask(body)
            assert jane.get("/publish/next").status_code == 200
            assert becomes(0, PreparedItem) + becomes(0, RejectedItem) == before


def test_body_that_was_taken_is_kept_nowhere_else() -> None:
    """Else a batch of 16 MB would take as much again beside its entries until they are stored."""
    messages = iter([(b"a" * 1000, True), (b"b" * 1000, False)])

    async def receive() -> Message:
        body, more = next(messages)
        return {"type": "http.request", "body": body, "more_body": more}

    request = Request({"type": "http", "headers": []}, receive)
    body = asyncio.run(take_body(request))
    assert body == b"a" * 1000 + b"b" * 1000
    assert sys.getrefcount(body) == 2, "this name, and the argument"

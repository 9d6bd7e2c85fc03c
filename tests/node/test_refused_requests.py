"""What a refused request has read is let go of with its answer, not when garbage is collected."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from inkgrove.schema import LogMessage
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


def messages_in_memory() -> int:
    return sum(isinstance(item, LogMessage) for item in gc.get_objects())


def becomes(count: int) -> int:
    """How many messages are in memory, once they are `count` or after a while: an answer is read before the end."""
    until = time.monotonic() + 3
    while (found := messages_in_memory()) != count and time.monotonic() < until:
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
        before = messages_in_memory()
        assert ask() in (403, 404)
        assert becomes(before) == before

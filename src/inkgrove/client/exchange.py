"""Requests and answers without a network: what is asked is a generator that both kinds of client run.

A *flow* yields each request, gets its answer, and returns what it makes of them. So everything a client can do is
written once, and whether it blocks or awaits is a matter of the few lines that send.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inkgrove.client.errors import NotANode, Refused, refusal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request to a node."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        """The body as JSON."""
        try:
            return json.loads(self.content)
        except ValueError as err:
            raise NotANode(f"the answer ({self.status}) is no JSON; is this the address of a node?") from err


Flow = Generator[Request, Answer, T]


def ask(
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | Sequence[tuple[str, object]] = (),
    body: object = None,
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Flow[Answer]:
    """One request whose answer is no refusal; `body` is sent as JSON unless it is bytes."""
    pairs = query.items() if isinstance(query, Mapping) else query
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    sent = dict(headers or {})
    if content is not None:
        sent["Content-Type"] = media_type
    named = [(name, _text(value)) for name, value in pairs if value is not None]
    answer = yield Request(method, path, named, content, sent)
    check(answer)
    return answer


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(answer: Answer) -> None:
    """Raise what the node refused."""
    if answer.status < 400:
        return
    problem = answer.json() if "json" in answer.headers.get("content-type", "") else {}
    if not isinstance(problem, dict) or "code" not in problem:
        if answer.status >= 500:
            raise Refused("request.internal", f"the node answered {answer.status}", answer.status, {})
        raise NotANode(f"the answer ({answer.status}) is not that of a node; check its address")
    raise refusal(answer.status, problem)

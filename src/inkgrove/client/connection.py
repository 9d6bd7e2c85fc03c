"""The conversation with a node: requests, responses, the flows that both kinds of client run, and httpx behind them.

A *flow* is a generator: it yields each request, is sent the response, and returns its result. Everything that a client
can do is written once as a flow; blocking or awaiting is a matter of the few lines that send (client.py,
async_client.py).
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import httpx

from inkgrove.client.errors import NotANode, Refused, Unreachable, refusal
from inkgrove.client.models import Tokens

SECONDS: Final = 60.0
"""How long a response may take: longer than a node waits for a view (`at_least`), and than a stream is silent."""
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0
PAGE: Final = 1000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One HTTP request to a node; the address of the node and the token are added when it is sent."""

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """The response of a node; the names of headers are in lower case."""

    status: int
    content: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        """Return the body as JSON; raises `NotANode` if it is none."""
        try:
            return json.loads(self.content)
        except ValueError as err:
            raise NotANode(f"the answer ({self.status}) is no JSON; is this the address of a node?") from err


Flow = Generator[HttpRequest, HttpResponse, T]


def ask(
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | Sequence[tuple[str, object]] = (),
    body: object = None,
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Flow[HttpResponse]:
    """Send one request and return its response; raises what `check` raises.

    `body` is sent as JSON unless it is bytes. Parameters of `query` that are None are left out.
    """
    pairs = query.items() if isinstance(query, Mapping) else query
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    sent = dict(headers or {})
    if content is not None:
        sent["Content-Type"] = media_type
    named = [(name, _text(value)) for name, value in pairs if value is not None]
    response = yield HttpRequest(method, path, named, content, sent)
    check(response)
    return response


def ask_for_all(path: str, name: str) -> Flow[list[Any]]:
    """Read every page of a list at `path` and return the items that each page has under `name`."""
    found: list[Any] = []
    after: str | None = None
    while True:
        data = (yield from ask("GET", path, query={"after": after, "limit": PAGE})).json()
        found += data[name]
        after = data["next"]
        if after is None:
            return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check(response: HttpResponse) -> None:
    """Raise the error that a response stands for, if it is one: a `Refused`, or `NotANode`."""
    if response.status < 400:
        return
    problem = response.json() if "json" in response.headers.get("content-type", "") else {}
    if not isinstance(problem, dict) or "code" not in problem:
        if response.status >= 500:
            raise Refused("request.internal", f"the node answered {response.status}", response.status, {})
        raise NotANode(f"the answer ({response.status}) is not that of a node; check its address")
    raise refusal(response.status, problem)


@dataclass(slots=True)
class Credentials:
    """The token of a sign-in, or the tokens of a service, which change when they are refreshed."""

    token: str | None = None
    tokens: Tokens | None = None
    keep: Callable[[Tokens], None] | None = None
    """Called with new tokens, for those who store them."""

    def headers(self) -> dict[str, str]:
        """Return the headers that go with every request."""
        token = self.tokens.access if self.tokens is not None else self.token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def renew(self, tokens: Tokens) -> None:
        """Use the tokens that a refresh gave from now on, and have them kept."""
        self.tokens = tokens
        if self.keep is not None:
            self.keep(tokens)

    def is_stale(self, status: int, request: HttpRequest) -> bool:
        """Whether the status of a response means that the access token has expired and can be refreshed."""
        return status == 401 and self.tokens is not None and not request.path.startswith("/oauth/")


def options_of(request: HttpRequest, credentials: Credentials) -> dict[str, Any]:
    """Return the arguments with which httpx sends a request."""
    sent = {} if request.path.startswith("/oauth/") else credentials.headers()
    return {
        "method": request.method,
        "url": request.path,
        "params": list(request.query) or None,
        "content": request.content,
        "headers": {**sent, **request.headers},
    }


def read_response(response: httpx.Response) -> HttpResponse:
    """Turn a response of httpx, whose body has been read, into one of ours."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpResponse(response.status_code, response.content, headers)


def unreachable(url: str, error: httpx.HTTPError) -> Unreachable:
    """Return the error that says that the node at `url` does not answer, and what to look at."""
    reason = str(error) or type(error).__name__
    return Unreachable(
        f"no answer from {url}: {reason}. Is the node running (inkgrove serve), and is this its address?"
    )

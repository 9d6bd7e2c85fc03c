"""What both clients know about their connection: the address, the tokens, how httpx is spoken to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx

from inkgrove.client.errors import Unreachable
from inkgrove.client.exchange import Answer, Request
from inkgrove.client.models import Tokens

SECONDS: Final = 60.0
"""Longer than a node waits for a view (`at_least`) or between two signs of life of a stream."""
FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 30.0


@dataclass(slots=True)
class Credentials:
    """The token of a sign-in, or the tokens of a service, which change when they are refreshed."""

    token: str | None = None
    tokens: Tokens | None = None
    keep: Callable[[Tokens], None] | None = None
    """Called with new tokens, for those who store them."""

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        token = self.tokens.access if self.tokens is not None else self.token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def renew(self, tokens: Tokens) -> None:
        """Take the tokens that a refresh gave."""
        self.tokens = tokens
        if self.keep is not None:
            self.keep(tokens)

    def is_stale(self, answer_status: int, request: Request) -> bool:
        """Whether an answer means that the access token is over and can be refreshed."""
        return answer_status == 401 and self.tokens is not None and not request.path.startswith("/oauth/")


def options_of(request: Request, credentials: Credentials) -> dict[str, Any]:
    """A request in the words of httpx."""
    sent = {} if request.path.startswith("/oauth/") else credentials.headers()
    return {
        "method": request.method,
        "url": request.path,
        "params": list(request.query) or None,
        "content": request.content,
        "headers": {**sent, **request.headers},
    }


def read_answer(answer: httpx.Response) -> Answer:
    """An answer of httpx in our words; names of headers are in lower case."""
    return Answer(answer.status_code, answer.content, {name.lower(): value for name, value in answer.headers.items()})


def no_answer(url: str, error: httpx.HTTPError) -> Unreachable:
    """What to say when the node cannot be reached."""
    reason = str(error) or type(error).__name__
    return Unreachable(
        f"no answer from {url}: {reason}. Is the node running (inkgrove serve), and is this its address?"
    )

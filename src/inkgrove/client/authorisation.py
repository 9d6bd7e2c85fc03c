"""How a service gets access: OAuth 2.1, authorisation code with PKCE, for a program on the user's own machine.

`begin` registers the service and gives the address that the browser opens; the identity agrees there; the browser comes
back to a `Loopback`, a page on a free port of this machine; `finish` exchanges the code for tokens.
"""

import secrets
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlencode, urlsplit

from inkgrove.client.connection import Flow, ask
from inkgrove.client.errors import NotAuthorised
from inkgrove.client.models import Tokens

FORM = "application/x-www-form-urlencoded"
Returned = dict[str, str]
"""The query that the browser brought back."""
_PATH = "/back"
_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Done</title>
<body style="font: 1.1rem system-ui; margin: 4rem auto; max-width: 30rem">
<p>Done. You can close this page and go back.</p>
"""


@dataclass(frozen=True, slots=True)
class AuthorisationAttempt:
    """What was sent with the browser, to be compared with what it brings back."""

    client_id: str
    redirect_uri: str
    verifier: str
    state: str
    issuer: str
    address: str
    """What the browser opens."""


def begin(
    service: str,
    redirect_uri: str,
    scopes: Sequence[str],
    hint: str | None,
    random_text: Callable[[int], str] = secrets.token_urlsafe,
) -> Flow[AuthorisationAttempt]:
    """Register the service; return the attempt, with the address that the browser opens."""
    about = (yield from ask("GET", "/.well-known/oauth-authorization-server")).json()
    body = {"client_name": service, "redirect_uris": [redirect_uri]}
    client_id = (yield from ask("POST", "/oauth/register", body=body)).json()["client_id"]
    verifier, state = random_text(48), random_text(24)
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(scopes),
        "state": state,
        "code_challenge": urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    if hint is not None:
        query["login_hint"] = hint
    path = f"/oauth/authorize?{urlencode(query)}"
    return AuthorisationAttempt(client_id, redirect_uri, verifier, state, about["issuer"], path)


def finish(attempt: AuthorisationAttempt, returned: Returned) -> Flow[Tokens]:
    """Exchange the code that the browser brought back for tokens.

    Raises `NotAuthorised` if the identity did not agree, or the state or the node is not the one of the attempt.
    """
    if not compare_digest(returned.get("state", ""), attempt.state):
        raise NotAuthorised("the browser came back with another state than it was sent with")
    if returned.get("iss") != attempt.issuer:
        raise NotAuthorised("another node answered than the one that was asked")
    if "code" not in returned:
        raise NotAuthorised(f"the identity did not agree: {returned.get('error', 'no code came back')}")
    form = {
        "grant_type": "authorization_code",
        "client_id": attempt.client_id,
        "code": returned["code"],
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
    }
    return (yield from _tokens(attempt.client_id, form))


def refresh(tokens: Tokens) -> Flow[Tokens]:
    """Return new tokens for the refresh token, which is good for one use."""
    form = {"grant_type": "refresh_token", "client_id": tokens.client_id, "refresh_token": tokens.refresh}
    return (yield from _tokens(tokens.client_id, form))


def _tokens(client_id: str, form: dict[str, str]) -> Flow[Tokens]:
    answer = yield from ask("POST", "/oauth/token", body=urlencode(form).encode(), media_type=FORM)
    data = answer.json()
    return Tokens(client_id, data["access_token"], data["refresh_token"], data["scope"])


def give_back(tokens: Tokens) -> Flow[None]:
    """End the access that the identity granted to the service."""
    form = urlencode({"client_id": tokens.client_id, "token": tokens.refresh}).encode()
    yield from ask("POST", "/oauth/revoke", body=form, media_type=FORM)


class Loopback:
    """The page that the browser comes back to: a server on a free port of this machine, from `with` to its end."""

    def __init__(self) -> None:
        self._returned: Returned | None = None
        self._is_back = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path != _PATH:  # a browser may ask for an icon too
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(_PAGE)))
                self.end_headers()
                self.wfile.write(_PAGE)
                outer.take(dict(parse_qsl(parts.query)))

            def log_message(self, *_: object) -> None:
                """Say nothing: the address holds the code."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def redirect_uri(self) -> str:
        """The address of the page, which the service registers."""
        return f"http://127.0.0.1:{self._server.server_port}{_PATH}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, query: Returned) -> None:
        """Keep the query of the first request; later ones change nothing."""
        if self._returned is None:
            self._returned = query
            self._is_back.set()

    def wait(self, seconds: float) -> Returned:
        """Wait for the browser and return the query that it brought; raises `NotAuthorised` after so many seconds."""
        if not self._is_back.wait(seconds) or self._returned is None:
            raise NotAuthorised(f"the browser did not come back within {seconds:.0f} seconds; try again")
        return self._returned

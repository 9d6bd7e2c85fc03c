"""How a service gets access: OAuth 2.1, authorisation code with PKCE, for a program on the user's own machine."""

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from urllib.parse import urlencode

from inkgrove.client.errors import NotAuthorised
from inkgrove.client.exchange import Flow, ask
from inkgrove.client.loopback import Returned
from inkgrove.client.models import Tokens

FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way through the browser: what was sent, to be compared with what comes back."""

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
) -> Flow[Attempt]:
    """Register the service and make the address that the browser opens."""
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
    return Attempt(client_id, redirect_uri, verifier, state, about["issuer"], path)


def finish(attempt: Attempt, returned: Returned) -> Flow[Tokens]:
    """Check what the browser brought back, and get tokens for the code."""
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
    """New tokens for the refresh token, which is good for one use."""
    form = {"grant_type": "refresh_token", "client_id": tokens.client_id, "refresh_token": tokens.refresh}
    return (yield from _tokens(tokens.client_id, form))


def _tokens(client_id: str, form: dict[str, str]) -> Flow[Tokens]:
    answer = yield from ask("POST", "/oauth/token", body=urlencode(form).encode(), media_type=FORM)
    data = answer.json()
    return Tokens(client_id, data["access_token"], data["refresh_token"], data["scope"])


def give_back(tokens: Tokens) -> Flow[None]:
    """End the access that the identity granted."""
    form = urlencode({"client_id": tokens.client_id, "token": tokens.refresh}).encode()
    yield from ask("POST", "/oauth/revoke", body=form, media_type=FORM)

"""A service and a browser for tests: the whole way from registration to tokens, over real HTTP."""

import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from tests.support.nodes import PASSWORD, RunningNode

BACK = "https://app.example/back"
VERIFIER = "v" * 43


def challenge_of(verifier: str) -> str:
    """The code challenge of RFC 7636, written a second time."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


def query_of(location: str) -> dict[str, str]:
    """The query of an address, each name once."""
    found = parse_qs(urlsplit(location).query, strict_parsing=True)
    assert all(len(values) == 1 for values in found.values()), location
    return {name: values[0] for name, values in found.items()}


@dataclass
class Address:
    """A node in another process, for a browser."""

    url: str

    def __post_init__(self) -> None:
        self.anybody = httpx.Client(base_url=self.url)


@dataclass
class Browser:
    """Keeps cookies whatever they ask of the transport, reads forms, follows nothing by itself."""

    running: RunningNode | Address
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, address: str, **headers: str) -> httpx.Response:
        return self._send("GET", address, None, headers)

    def post(self, address: str, form: dict[str, str], **headers: str) -> httpx.Response:
        return self._send("POST", address, form, headers)

    def _send(self, method: str, address: str, form: dict[str, str] | None, headers: dict[str, str]) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            named["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self.running.anybody.request(method, address, data=form, headers=named)
        for line in answer.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        self.running.anybody.cookies.clear()
        return answer

    def submit(self, page: httpx.Response, **fields: str) -> httpx.Response:
        """Fill in the form of a page and send it from there."""
        action = unescape(re.findall(r'<form method="post" action="([^"]+)"', page.text)[0])
        hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page.text)
        form = {name: unescape(value) for name, value in hidden} | fields
        return self.post(action, form, origin=self.running.url)

    def sign_in(self, page: httpx.Response, fqdn: str, password: str = PASSWORD) -> httpx.Response:
        """Sign in on a page; the page that follows."""
        answer = self.submit(page, action="sign-in", name=fqdn, password=password)
        assert answer.status_code == 303, answer.text
        return self.get(answer.headers["location"])


@dataclass
class Service:
    """A registered service."""

    running: RunningNode
    name: str = "Slothmail"
    redirect_uri: str = BACK

    def __post_init__(self) -> None:
        body = {"client_name": self.name, "redirect_uris": [self.redirect_uri]}
        answer = self.running.anybody.post("/oauth/register", json=body)
        assert answer.status_code == 201, answer.text
        self.id: str = answer.json()["client_id"]

    def address(self, scope: str, **changes: str | None) -> str:
        """Where the service sends the browser; a parameter that is None is left out."""
        parameters: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.id,
            "redirect_uri": self.redirect_uri,
            "scope": scope,
            "state": "some state",
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            **changes,
        }
        return "/oauth/authorize?" + urlencode({name: text for name, text in parameters.items() if text is not None})

    def get_code(self, fqdn: str, scope: str, **changes: str | None) -> str:
        """Ask an identity, which agrees; the code."""
        browser = Browser(self.running)
        page = browser.sign_in(browser.get(self.address(scope, **changes)), fqdn)
        answer = browser.submit(page, action="allow")
        assert answer.status_code == 302, answer.text
        query = query_of(answer.headers["location"])
        assert "code" in query, query
        return query["code"]

    def post(self, route: str, **form: str) -> httpx.Response:
        return self.running.anybody.post(route, data={"client_id": self.id, **form})

    def exchange(self, code: str, **changes: str) -> httpx.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri}
        return self.post("/oauth/token", **{**form, "code_verifier": VERIFIER, **changes})

    def refresh(self, token: str, **changes: str) -> httpx.Response:
        return self.post("/oauth/token", grant_type="refresh_token", refresh_token=token, **changes)

    def connect(self, fqdn: str, scope: str) -> dict[str, Any]:
        """The tokens for what an identity agrees to."""
        answer = self.exchange(self.get_code(fqdn, scope))
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens

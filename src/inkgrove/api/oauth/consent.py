"""The consent page: an identity signs in on its own node and says what a service may do.

Three things keep others from saying yes for it: the form carries a token that only our page and its cookie know, it
must come from our own page, and what is granted is what was shown, not what a name means by then.
"""

import re
from hmac import compare_digest
from typing import Any
from urllib.parse import quote

from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc6749 import OAuth2Error
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool

from inkgrove.api.http.auth import (
    AddressDependency,
    HostDependency,
    NodeDependency,
    check_origin,
    cookie_name,
    cookie_of,
    get_user_agent,
    is_https,
)
from inkgrove.api.http.formats import Form, FormDependency, form_body, read_query
from inkgrove.api.http.limits import PASSWORDS
from inkgrove.api.http.problems import forget_frames, note_internal, responses, status_of
from inkgrove.api.oauth import consent_page
from inkgrove.api.oauth.server import OAuthRequest, OAuthServer, check_parameters
from inkgrove.api.oauth.services import issuer_of
from inkgrove.core import IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.node import errors
from inkgrove.node.identity import RELATIONS_READ, authenticate, label_from, sessions, show_identity
from inkgrove.node.runtime import Node
from inkgrove.node.services import group_scopes, resolve_scopes

router = APIRouter(tags=["services"])
_FORM_COOKIE = "inkgrove-form"
_FORM_TOKEN = re.compile("[0-9a-f]{64}")
_QUERY = [
    ("response_type", "`code`.", True),
    ("client_id", "The service, as it was registered.", True),
    ("redirect_uri", "One of its redirect URIs, exactly.", True),
    ("scope", "What it asks for: `schema:NAME:ACTION` or `relations:read`, separated by spaces.", True),
    ("code_challenge", "SHA-256 of the code verifier, in base64url (RFC 7636).", True),
    ("code_challenge_method", "`S256`.", True),
    ("state", "Comes back as it is.", False),
    ("login_hint", "The name of the identity, to be filled in.", False),
]
_PARAMETERS = [
    {"name": name, "in": "query", "required": is_needed, "description": about, "schema": {"type": "string"}}
    for name, about, is_needed in _QUERY
]
_PAGE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The page.", "content": {"text/html": {"schema": {"type": "string"}}}},
    302: {"description": "Back to the service, with a code or an error."},
    303: {"description": "Signed in or out: the page again."},
    **{
        status: {"description": about, "content": {"text/html": {"schema": {"type": "string"}}}}
        for status, about in {
            400: "The service asked in a wrong way, and nobody is sent anywhere.",
            403: "The password is wrong, or the form did not come from this page.",
            413: "The form is too large.",
            415: "The body is no form.",
            429: "Too many attempts to sign in.",
        }.items()
    },
}
# A form that cannot be read has no page to show it on.
_PAGE[400]["content"] |= responses("oauth.invalid-request")[400]["content"]


class _Visit:
    """One request of the page: what the service asks, who is signed in."""

    def __init__(self, node: Node, request: Request) -> None:
        self.node = node
        self.request = request
        self.query = read_query(request)
        check_parameters(self.query)
        self.server = OAuthServer(node)
        self.oauth = OAuthRequest("GET", self.query)
        self.grant = self.server.get_consent_grant(self.oauth)
        self.scopes = resolve_scopes(node, self.oauth.scope)
        self.session = cookie_of(request, node)
        self.identity = self._identity()

    def _identity(self) -> IdentityId | None:
        try:
            return authenticate(self.node, self.session).identity
        except errors.BadToken:
            return None

    def asking(self, form_token: str) -> consent_page.Asking:
        """What both pages show."""
        return consent_page.Asking(
            service=self.oauth.client.stored.name,
            redirect_uri=self.query["redirect_uri"],
            address=self.address,
            form_token=form_token,
        )

    @property
    def address(self) -> str:
        """This very page."""
        query: bytes = self.request.scope["query_string"]
        return f"/oauth/authorize?{quote(query, safe='=&%+!*(),;:@/?-._~')}"

    def show(self, host: str, *, alarm: str | None = None, status: int = 200, name: str = "") -> HTMLResponse:
        """The page for whoever is, or is not, signed in."""
        # Kept while there is one: the page may be open twice.
        form_token = self.request.cookies.get(cookie_name(self.node, _FORM_COOKIE), "")
        if not _FORM_TOKEN.fullmatch(form_token):
            form_token = self.node.random_bytes(32).hex()
        asking = self.asking(form_token)
        if self.identity is None:
            html = consent_page.sign_in_page(asking, name=name or self._likely_name(host), alarm=alarm)
        else:
            html = consent_page.consent_page(
                asking,
                identity=show_identity(self.node, self.identity).document.fqdn,
                requests=group_scopes(self.node, self.scopes),
                with_relations=RELATIONS_READ in self.scopes,
                scopes=self.oauth.scope,
                alarm=alarm,
            )
        answer = consent_page.answer(html, status=status, site=asking.site)
        _set_cookie(answer, self.node, _FORM_COOKIE, form_token)
        return answer

    def _likely_name(self, host: str) -> str:
        for name in (self.query.get("login_hint", ""), host):
            try:
                return show_identity(self.node, name).document.fqdn
            except errors.UnknownIdentity:
                continue
        return ""

    def finish(self, identity: IdentityId | None) -> Response:
        """Back to the service: with a code, or without if nobody agreed."""
        status, _, headers = self.server.create_authorization_response(self.oauth, identity, self.grant)
        assert status == 302, status
        return _redirect(self.node, self.request, dict(headers)["Location"])

    def again(self) -> RedirectResponse:
        """The page once more, with what has changed."""
        return RedirectResponse(self.address, 303, {"Cache-Control": "no-store"})


def _visit(node: Node, request: Request) -> _Visit | Response:
    """What is asked; or the answer to what cannot be: back to the service only if it is known to be there."""
    try:
        return _Visit(node, request)
    except OAuth2Error as error:
        if error.redirect_uri:
            location = dict(error()[2])["Location"]
            return _redirect(node, request, location)
        return _refuse(str(error.description or error.error))
    except InkgroveError as error:
        forget_frames(error)
        note_internal(error)
        status = status_of(error)
        return _refuse(error.public_message, status if status in (413, 503) else 400)


def _refuse(detail: str, status: int = 400) -> Response:
    return consent_page.answer(consent_page.error_page("This request cannot be answered", detail), status=status)


def _redirect(node: Node, request: Request, location: str) -> Response:
    """To the service, which is told who answers (RFC 9207)."""
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    headers["Location"] = add_params_to_uri(location, {"iss": issuer_of(node, request)})
    return Response(status_code=302, headers=headers)


def _set_cookie(answer: Response, node: Node, name: str, value: str, seconds: int | None = None) -> None:
    answer.set_cookie(
        cookie_name(node, name), value, max_age=seconds, path="/", secure=is_https(node), httponly=True, samesite="lax"
    )


@router.get("/oauth/authorize", response_class=HTMLResponse, responses=_PAGE, openapi_extra={"parameters": _PARAMETERS})
def ask(node: NodeDependency, request: Request, host: HostDependency) -> Response:
    """The page on which an identity signs in and sees what a service asks for."""
    visit = _visit(node, request)
    return visit if isinstance(visit, Response) else visit.show(host)


@router.post(
    "/oauth/authorize",
    response_class=HTMLResponse,
    responses=_PAGE,
    openapi_extra={
        "parameters": _PARAMETERS,
        **form_body(
            {"form_token": "The token of the page.", "action": "`sign-in`, `sign-out`, `allow` or `deny`."},
            {"name": "To sign in.", "password": "To sign in.", "scopes": "To allow: what was shown."},
        ),
    },
)
async def decide(
    node: NodeDependency, request: Request, host: HostDependency, address: AddressDependency, form: FormDependency
) -> Response:
    """What the identity did on that page."""
    if form.get("action") != "sign-in":
        return await run_in_threadpool(_decide, node, request, host, address, form)
    try:
        return await PASSWORDS.run(address, _decide, node, request, host, address, form)
    except errors.Busy as error:
        page = _refuse("Many people sign in right now. Go back and try again in a moment.", status_of(error))
        page.headers["Retry-After"] = str(error.data["retry_after"])
        return page


def _decide(node: Node, request: Request, host: str, address: str, form: Form) -> Response:
    visit = _visit(node, request)
    if isinstance(visit, Response):
        return visit
    if not _is_our_form(node, request, form.get("form_token", "")):
        return visit.show(host, alarm="This page was too old. Please try again.", status=403)
    match form.get("action"):
        case "sign-in":
            return _sign_in(visit, host, address, form.get("name", ""), form.get("password", ""))
        case "sign-out":
            if visit.session is not None:
                sessions.sign_out(node, visit.session)
            return visit.again()
        case "deny":
            return visit.finish(None)
        case "allow" if visit.identity is None:
            return visit.show(host, alarm="Your sign-in has ended. Please sign in again.", status=403)
        case "allow" if form.get("scopes") != visit.oauth.scope:
            return visit.show(host, alarm="What the service asks for has changed. Please look again.", status=403)
        case "allow":
            return visit.finish(visit.identity)
    return _refuse("The form says nothing that this page knows.")


def _is_our_form(node: Node, request: Request, form_token: str) -> bool:
    try:
        check_origin(request)
    except errors.ForeignOrigin:
        return False
    known = request.cookies.get(cookie_name(node, _FORM_COOKIE), "")
    return bool(known) and compare_digest(known.encode(), form_token.encode())


def _sign_in(visit: _Visit, host: str, address: str, name: str, password: str) -> Response:
    node = visit.node
    visit.identity = None
    try:
        label = label_from(get_user_agent(visit.request))
        token, _ = sessions.sign_in(node, name[:253], password[:1024], address, label=label)
    except errors.BadPassword:
        return visit.show(host, alarm="The name or the password is wrong.", status=403, name=name[:253])
    except errors.TooManyAttempts as error:
        page = visit.show(host, alarm=f"Too many attempts. {error.message}", status=429, name=name[:253])
        page.headers["Retry-After"] = str(error.data["retry_after"])
        return page
    answer = visit.again()
    _set_cookie(answer, node, "inkgrove", token, node.settings.session_seconds)
    return answer

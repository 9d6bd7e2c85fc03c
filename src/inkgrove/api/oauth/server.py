"""Authlib's authorisation server over the use cases of `node/services/grants.py` (docs/protocol.md section 7).

Authlib knows the protocol: which parameter is checked when, and what an error is called. What is kept, and that codes
and refresh tokens are used once, is ours. Public clients only, PKCE with S256 always, redirect URIs compared exactly.
"""

import logging
import re
from typing import Any, Final

from authlib.oauth2.rfc6749 import (
    AuthorizationServer,
    ClientMixin,
    InvalidGrantError,
    InvalidRequestError,
    InvalidScopeError,
    OAuth2Payload,
    OAuth2Request,
)
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant, RefreshTokenGrant
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge

from inkgrove.api.http.formats import Form
from inkgrove.core.errors import CODES, InkgroveError, make_error
from inkgrove.node import errors
from inkgrove.node.identity import parse_scopes
from inkgrove.node.runtime import Node
from inkgrove.node.services import Consent, IssuedTokens, render_scopes, resolve_scopes
from inkgrove.node.services import grants as services
from inkgrove.store.node import OAuthClient, StoredCode, StoredToken

# It would write whole tokens into the log.
logging.getLogger("authlib").setLevel(logging.INFO)

Answer = tuple[int, Any, list[tuple[str, str]]]
"""Status, body and headers."""

_UNSAFE: Final = re.compile(r"[^ !#-\[\]-~]")
"""What RFC 6749 keeps out of the description of an error."""


class OAuthRequest(OAuth2Request):  # type: ignore[misc]
    """The parameters of a request, wherever they stood."""

    def __init__(self, method: str, form: Form) -> None:
        # Whether the transport is safe is for the proxy in front and the endpoint setting to say.
        super().__init__(method, "https://this.node/")
        self._form = form
        self.payload = _Payload(form)

    @property
    def args(self) -> Form:
        return self._form

    @property
    def form(self) -> Form:
        return self._form


class _Payload(OAuth2Payload):  # type: ignore[misc]
    def __init__(self, form: Form) -> None:
        self._form = form

    @property
    def data(self) -> Form:
        return self._form

    @property
    def datalist(self) -> dict[str, list[str]]:
        return {name: [value] for name, value in self._form.items()}


class _Client(ClientMixin):  # type: ignore[misc]
    def __init__(self, node: Node, stored: OAuthClient) -> None:
        self.node = node
        self.stored = stored

    def get_client_id(self) -> str:
        return self.stored.id

    def get_default_redirect_uri(self) -> None:
        return None  # always to be named: what is compared exactly cannot be left out

    def get_allowed_scope(self, scope: str | None) -> str:
        try:
            return render_scopes(resolve_scopes(self.node, scope or ""))
        except InkgroveError as err:
            raise InvalidScopeError(description=_describe(err.message)) from err

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri in self.stored.redirect_uris

    def check_client_secret(self, client_secret: str) -> bool:
        return False

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "none"

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in ("authorization_code", "refresh_token")


class _CodeGrant(AuthorizationCodeGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS: Final = ["none"]

    def generate_authorization_code(self) -> str:
        return services.new_code(self.server.node)

    def save_authorization_code(self, code: str, request: OAuthRequest) -> None:
        consent = Consent(
            identity=request.user,
            client=request.client.get_client_id(),
            scopes=tuple(sorted(parse_scopes(request.scope), key=str)),
            redirect_uri=request.payload.redirect_uri,
            challenge=request.payload.data["code_challenge"],
        )
        services.grant_access(self.server.node, consent, code)

    def query_authorization_code(self, code: str, client: _Client) -> "_Code | None":
        found = services.find_usable_code(self.server.node, code, client.stored.id)
        return _Code(code, found) if found is not None else None

    def authenticate_user(self, authorization_code: "_Code") -> Any:
        return authorization_code.found.grant.identity

    def generate_token(self, **_: object) -> dict[str, Any]:
        code: _Code = self.request.authorization_code
        return _render_tokens(services.exchange_code(self.server.node, code.code, code.found))

    def delete_authorization_code(self, authorization_code: "_Code") -> None:
        """It was used up in the transaction that made the tokens."""


class _Code:
    def __init__(self, code: str, found: StoredCode) -> None:
        self.code = code
        self.found = found
        self.code_challenge = found.challenge
        self.code_challenge_method = "S256"

    def get_redirect_uri(self) -> str:
        return self.found.redirect_uri

    def get_scope(self) -> str:
        return self.found.grant.scopes


class _S256(CodeChallenge):  # type: ignore[misc]
    """PKCE by hash alone, and never without."""

    SUPPORTED_CODE_CHALLENGE_METHOD: Final = ["S256"]

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        data = grant.request.payload.data
        if not data.get("code_challenge"):
            raise InvalidRequestError("Missing 'code_challenge'")
        if data.get("code_challenge_method") != "S256":
            raise InvalidRequestError("The 'code_challenge_method' must be S256")
        super().validate_code_challenge(grant, redirect_uri)


class _RefreshGrant(RefreshTokenGrant):  # type: ignore[misc]
    TOKEN_ENDPOINT_AUTH_METHODS: Final = ["none"]

    def authenticate_refresh_token(self, refresh_token: str) -> "_Token | None":
        found = services.find_usable_refresh_token(self.server.node, refresh_token, self.request.client.stored.id)
        return _Token(refresh_token, found) if found is not None else None

    def authenticate_user(self, refresh_token: "_Token") -> Any:
        return refresh_token.found.grant.identity

    def issue_token(self, user: object, refresh_token: "_Token") -> dict[str, Any]:
        return _render_tokens(services.rotate_tokens(self.server.node, refresh_token.token, refresh_token.found))

    def revoke_old_credential(self, refresh_token: "_Token") -> None:
        """It was used up in the transaction that made the new tokens."""


class _Token:
    def __init__(self, token: str, found: StoredToken) -> None:
        self.token = token
        self.found = found

    def check_client(self, client: _Client) -> bool:
        return self.found.grant.client == client.stored.id

    def get_scope(self) -> str:
        return self.found.grant.scopes


class _Revocation(RevocationEndpoint):  # type: ignore[misc]
    CLIENT_AUTH_METHODS: Final = ["none"]

    def query_token(self, token_string: str, token_type_hint: str | None) -> _Token | None:
        found = services.find_issued_token(self.server.node, token_string)
        return _Token(token_string, found) if found is not None else None

    def revoke_token(self, token: _Token, request: OAuthRequest) -> None:
        services.revoke_token(self.server.node, token.token, token.found)


def _render_tokens(tokens: IssuedTokens | None) -> dict[str, Any]:
    if tokens is None:
        raise InvalidGrantError("It was used already")
    return {
        "token_type": "Bearer",
        "access_token": tokens.access,
        "refresh_token": tokens.refresh,
        "expires_in": tokens.seconds,
        "scope": tokens.scopes,
    }


class OAuthServer(AuthorizationServer):  # type: ignore[misc]
    """The protocol over one node."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        self.register_grant(_CodeGrant, [_S256(required=True)])
        self.register_grant(_RefreshGrant)
        self.register_endpoint(_Revocation)

    def query_client(self, client_id: str) -> _Client | None:
        stored = services.find_registered_client(self.node, client_id)
        return _Client(self.node, stored) if stored is not None else None

    def save_token(self, token: dict[str, Any], request: OAuthRequest) -> None:
        """It was saved in the transaction that made it."""

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        """Nobody listens."""

    def create_oauth2_request(self, request: OAuthRequest) -> OAuthRequest:
        return request

    def handle_response(self, status: int, body: Any, headers: list[tuple[str, str]]) -> Answer:
        return status, body, headers


def error_named(name: str, description: str) -> InkgroveError:
    """The error with a name of RFC 6749."""
    code = f"oauth.{name.replace('_', '-')}"
    if code not in CODES:
        code = "oauth.invalid-request"
    return make_error(code, description or CODES[code].sentence)


def check_parameters(form: Form) -> None:
    """Refuse characters that Authlib would trip over when it names them in an error."""
    for name in ("response_type", "grant_type", "client_id", "redirect_uri", "token_type_hint"):
        if _UNSAFE.search(form.get(name, "")):
            raise errors.OAuthError("oauth.invalid-request", f"{name} holds characters that do not belong there")


def _describe(text: str) -> str:
    return _UNSAFE.sub("'", text)[:300]

"""What a node refuses, each class one reason with a stable code; the root is in `core/errors.py`.

    InkgroveError
    ├── AuthError        auth.*      who asks, and whether they may
    ├── IdentityError    identity.*  identities that a node hosts
    ├── RelationError    relation.*  who follows whom
    ├── OAuthError       oauth.*     how services get access
    ├── PublishError     publish.*   what is to be signed or appended
    ├── ViewError        view.*      views and instances to be read
    ├── BlobError        blob.*      content that instances refer to
    ├── RequestError     request.*   the form of an HTTP request
    └── ServeError       serve.*     a node that cannot begin to serve

`api/problems.py` has the HTTP status of each.
"""

from inkgrove.core.errors import InkgroveError

# auth.*


class AuthError(InkgroveError):
    """Who asks, and whether they may."""

    code = "auth"


class SignInRequired(AuthError):
    """This needs somebody who is signed in, or a service with a token."""

    code = "auth.required"


class BadToken(AuthError):
    """The token is not known here, has expired or was revoked."""

    code = "auth.bad-token"


class BadPassword(AuthError):
    """The name or the password is wrong."""

    code = "auth.bad-password"


class TooManyAttempts(AuthError):
    """Too many attempts to sign in, to register a service or to prove a fork; wait before the next."""

    code = "auth.too-many-attempts"


class ForeignOrigin(AuthError):
    """A page of somebody else sent this with the cookie of a sign-in."""

    code = "auth.foreign-origin"


class OutOfScope(AuthError):
    """The service was not granted this."""

    code = "auth.out-of-scope"


class NotAllowed(AuthError):
    """Somebody else may do this: the owner, or the administrator."""

    code = "auth.not-allowed"


# identity.*


class IdentityError(InkgroveError):
    """Identities that a node hosts."""

    code = "identity"


class IdentityExists(IdentityError):
    """The name is taken on this node."""

    code = "identity.exists"


class UnknownIdentity(IdentityError):
    """No identity of that name or id is hosted here."""

    code = "identity.unknown"


class BadName(IdentityError):
    """The name is no fully qualified domain name."""

    code = "identity.bad-name"


class BadDocument(IdentityError):
    """The signed identity message is not what this node could host."""

    code = "identity.bad-document"


class WeakPassword(IdentityError):
    """The password is too short."""

    code = "identity.weak-password"


class NoKeyHere(IdentityError):
    """The node does not keep this key: the client has to sign."""

    code = "identity.no-key-here"


class VaultLocked(IdentityError):
    """The node cannot open the keys it keeps: the key of its vault is missing or another one."""

    code = "identity.vault-locked"


# relation.*


class RelationError(InkgroveError):
    """Who follows whom."""

    code = "relation"


class NotRequested(RelationError):
    """Nobody asked for this relation, so there is nothing to accept or refuse."""

    code = "relation.not-requested"


class OwnRelation(RelationError):
    """An identity cannot follow itself."""

    code = "relation.own"


class UnknownRelation(RelationError):
    """There is no such relation."""

    code = "relation.unknown"


# oauth.*


class OAuthError(InkgroveError):
    """How services get access; the names of RFC 6749 and RFC 7591 stand beside the code."""

    code = "oauth"

    @classmethod
    def name(cls) -> str:
        """What those call the error."""
        return cls.code.removeprefix("oauth.").replace("-", "_")


class OAuthInvalidRequest(OAuthError):
    """A parameter is missing, given twice or not what it should be."""

    code = "oauth.invalid-request"


class OAuthInvalidClient(OAuthError):
    """No such service is registered here."""

    code = "oauth.invalid-client"


class OAuthInvalidGrant(OAuthError):
    """The code or refresh token is unknown, used, expired, revoked or somebody else's."""

    code = "oauth.invalid-grant"


class OAuthInvalidScope(OAuthError):
    """A scope is unknown, malformed or ambiguous."""

    code = "oauth.invalid-scope"


class OAuthUnauthorizedClient(OAuthError):
    """The service may not ask in this way."""

    code = "oauth.unauthorized-client"


class OAuthUnsupportedGrantType(OAuthError):
    """Only `authorization_code` and `refresh_token` are offered."""

    code = "oauth.unsupported-grant-type"


class OAuthUnsupportedResponseType(OAuthError):
    """Only `code` is offered."""

    code = "oauth.unsupported-response-type"


class OAuthUnsupportedTokenType(OAuthError):
    """The hint names a kind of token that there is not."""

    code = "oauth.unsupported-token-type"


class OAuthAccessDenied(OAuthError):
    """The identity said no."""

    code = "oauth.access-denied"


class OAuthInvalidRedirectUri(OAuthError):
    """A redirect URI must be https, or http on the loopback, without fragment or user name."""

    code = "oauth.invalid-redirect-uri"


class OAuthInvalidClientMetadata(OAuthError):
    """The service describes itself in a way that this node does not take."""

    code = "oauth.invalid-client-metadata"


class UnknownService(OAuthError):
    """The identity has granted this service nothing."""

    code = "oauth.unknown-service"


# publish.*


class PublishError(InkgroveError):
    """What is to be signed or appended."""

    code = "publish"


class ForeignAuthor(PublishError):
    """The author is no key of the identity that asks."""

    code = "publish.foreign-author"


class RevokedKey(PublishError):
    """The identity has revoked this key."""

    code = "publish.revoked-key"


class ForeignInstance(PublishError):
    """Only the author of an instance, in the log of its create, may change it."""

    code = "publish.foreign-instance"


class SecondLog(PublishError):
    """The author writes this schema to another log; `next` has the place there."""

    code = "publish.second-log"


class MixedSchemas(PublishError):
    """The log holds messages of another schema; `next` has the place where this one belongs."""

    code = "publish.mixed-schemas"


class WrongLog(PublishError):
    """A message of this kind does not belong into this log."""

    code = "publish.wrong-log"


class WouldNotApply(PublishError):
    """The message would have no effect on any view; `outcome` and `reason` say why."""

    code = "publish.would-not-apply"


class PayloadNeeded(PublishError):
    """What is published comes with its payload."""

    code = "publish.payload-needed"


class UnknownSchemaLog(PublishError):
    """No schema is held at this author and log."""

    code = "publish.unknown-schema"


class ShowsHistory(PublishError):
    """More readers would see the whole history of the instance: say `history=show`, or make a copy."""

    code = "publish.shows-history"


class NotShareable(PublishError):
    """The access of the instance does not let these recipients see it."""

    code = "publish.not-shareable"


class BadPatch(PublishError):
    """The patch is not of the form that its media type demands."""

    code = "publish.bad-patch"


class PatchFailed(PublishError):
    """The patch does not fit the instance as it is now; nothing was changed."""

    code = "publish.patch-failed"


class BadInstanceDocument(PublishError):
    """What the patch makes of the instance is not `fields`, `access` and `expires`."""

    code = "publish.bad-document"


class KeyReused(PublishError):
    """The Idempotency-Key was used for another request."""

    code = "publish.key-reused"


class Closing(PublishError):
    """The node is being stopped; nothing of the request was stored."""

    code = "publish.closing"


# view.*


class ViewError(InkgroveError):
    """Views and instances to be read."""

    code = "view"


class UnknownView(ViewError):
    """No view of that name or schema is on this node."""

    code = "view.unknown"


class AmbiguousName(ViewError):
    """Several schemas have this name: say which by author and log."""

    code = "view.ambiguous-name"


class UnknownInstance(ViewError):
    """No such instance is here, or it may not be seen."""

    code = "view.unknown-instance"


class PastTooLong(ViewError):
    """The instance has more messages than this node reads for one answer."""

    code = "view.past-too-long"


class UnknownLog(ViewError):
    """No such log is here, or it may not be seen."""

    code = "view.unknown-log"


class BadCursor(ViewError):
    """The cursor does not belong to this view and sort order."""

    code = "view.bad-cursor"


class Behind(ViewError):
    """The view has not seen that write in time; ask again."""

    code = "view.behind"


class TooManyListeners(ViewError):
    """As many follow changes here as this node serves; try again later."""

    code = "view.too-many-listeners"


# blob.*


class BlobError(InkgroveError):
    """Content that instances refer to."""

    code = "blob"


class UnknownBlob(BlobError):
    """No such blob is here, or it may not be read."""

    code = "blob.unknown"


class BlobTooLarge(BlobError):
    """The blob is larger than the node takes."""

    code = "blob.too-large"


class BadRange(BlobError):
    """The range lies outside of the blob."""

    code = "blob.bad-range"


# request.*


class RequestError(InkgroveError):
    """The form of an HTTP request."""

    code = "request"


class BadRequest(RequestError):
    """The request is not what the route takes."""

    code = "request.invalid"


class NoSuchRoute(RequestError):
    """There is nothing at this address."""

    code = "request.no-such-route"


class MethodNotAllowed(RequestError):
    """The address exists, with other methods."""

    code = "request.method-not-allowed"


class RequestTooLarge(RequestError):
    """The body of the request is larger than the node takes."""

    code = "request.too-large"


class UnsupportedMediaType(RequestError):
    """The body is of a content type that the route does not take."""

    code = "request.unsupported-media-type"


class BadJson(RequestError):
    """The body is not JSON as RFC 8259 has it: syntax, UTF-8, NaN, a key twice, half a surrogate or U+0000."""

    code = "request.bad-json"


class TooComplex(RequestError):
    """The body is nested too deeply or has too many values."""

    code = "request.too-complex"


class UnknownParameter(RequestError):
    """The query of the address has a parameter that the route does not know."""

    code = "request.unknown-parameter"


class BadAddress(RequestError):
    """The path or the query of the address has U+0000 in it."""

    code = "request.bad-address"


class RequestTooSlow(RequestError):
    """The body of the request came too slowly."""

    code = "request.too-slow"


class HeadTooLarge(RequestError):
    """The head of the request, its first line and its headers, is larger than the node takes."""

    code = "request.head-too-large"


class InternalError(RequestError):
    """The node made a mistake; its log tells more under the id of the request."""

    code = "request.internal"


# serve.*


class ServeError(InkgroveError):
    """A node that cannot begin to serve."""

    code = "serve"


class PortTaken(ServeError):
    """The node cannot listen at its address: it is taken, or not of this machine."""

    code = "serve.port-taken"

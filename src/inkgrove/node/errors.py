"""What a node refuses, each class one reason with a stable code; the root is in `core/errors.py`.

    InkgroveError
    ├── AuthError        auth.*      who asks, and whether they may
    ├── IdentityError    identity.*  identities that a node hosts
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
    """Too many failed attempts to sign in; wait before the next."""

    code = "auth.too-many-attempts"


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


class WeakPassword(IdentityError):
    """The password is too short."""

    code = "identity.weak-password"


class NoKeyHere(IdentityError):
    """The node does not keep this key: the client has to sign."""

    code = "identity.no-key-here"


class VaultLocked(IdentityError):
    """The node cannot open the keys it keeps: the key of its vault is missing or another one."""

    code = "identity.vault-locked"


# publish.*


class PublishError(InkgroveError):
    """What is to be signed or appended."""

    code = "publish"


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

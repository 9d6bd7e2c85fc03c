"""What a node refuses, each class one reason with a stable code; the root is in `core/errors.py`.

    InkgroveError
    ├── AuthError        auth.*      who asks, and whether they may
    ├── IdentityError    identity.*  identities that a node hosts
    ├── RelationError    relation.*  who follows whom
    ├── DeliveryError    federation.*  what is sent to somebody, on this node or another, and not taken
    ├── OAuthError       oauth.*     how services get access
    ├── PublishError     publish.*   what is to be signed or appended
    ├── BackupError      backup.*    copies of a home, and putting them back
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
    """Too many attempts to sign in, to create an identity, to register a service or to prove a fork; wait."""

    code = "auth.too-many-attempts"


class Busy(AuthError):
    """Too many passwords are being checked at this moment; try again in a few seconds."""

    code = "auth.busy"


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


class ForeignName(IdentityError):
    """The name is under no domain of this node, and other servers do not lead here under it."""

    code = "identity.foreign-name"


class NameElsewhere(IdentityError):
    """Somebody on another node was found under the name."""

    code = "identity.name-elsewhere"


class ReservedName(IdentityError):
    """The name is kept for the operator to give: an administrator's, a domain itself, or where the node is reached."""

    code = "identity.reserved-name"


class NameLeft(IdentityError):
    """Somebody had the name a short while ago: it is kept for them, and given to nobody else."""

    code = "identity.name-left"


class TooManyNames(IdentityError):
    """The identity has left so many names that the next change has to wait."""

    code = "identity.too-many-names"


class UnprovedKey(IdentityError):
    """Whoever brings an identity has not signed a challenge of this node with its first key."""

    code = "identity.unproved"


class LivesElsewhere(IdentityError):
    """The newest document of the identity names another node as its own."""

    code = "identity.lives-elsewhere"


class UnknownHome(IdentityError):
    """Entries of log 0 are lacking here, or were not found where the identity is said to live (`lives_at`)."""

    code = "identity.unknown-home"


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
    """The node cannot open the keys it keeps: the key of its vault is another one, or cannot be read."""

    code = "identity.vault-locked"
    is_internal = True


class VaultKeyMissing(IdentityError):
    """The node keeps keys, and the file that opens them is not there; nothing is made in its place."""

    code = "identity.vault-key-missing"


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


# What is sent to somebody; the codes stand in receipts between nodes too


class DeliveryError(InkgroveError):
    """What is sent to somebody, on this node or another, and not taken."""

    code = "delivery"


class Blocked(DeliveryError):
    """The recipient takes nothing from this sender."""

    code = "federation.blocked"


class NotToBePassedOn(DeliveryError):
    """The owner's word on access does not let anybody else send this instance."""

    code = "federation.not-to-be-passed-on"


class NotAddressed(DeliveryError):
    """The instance is closed and the recipient is not among those it names."""

    code = "federation.not-addressed"


class NotFollowing(DeliveryError):
    """The instance is for those who follow its owner, and a recipient is none of them."""

    code = "federation.not-following"


class Expired(DeliveryError):
    """The time of the instance was over before it was sent."""

    code = "federation.expired"


class NotFoundYet(DeliveryError):
    """The node of the recipient cannot be asked who they are; that is tried again, and what was sent goes out then."""

    code = "federation.not-found-yet"


class CannotBeNamed(DeliveryError):
    """A closed instance names its recipients by id, and who this one is could not be found out: try again later."""

    code = "federation.cannot-be-named"


class TooManyPending(DeliveryError):
    """As many recipients could not be found yet as the node keeps for one identity: try again later."""

    code = "federation.too-many-not-found"


class RequestBoxFull(DeliveryError):
    """The recipient has as many requests from strangers as the node keeps."""

    code = "federation.request-box-full"


class NoSuchRequest(DeliveryError):
    """Nothing of this sender, or not this, waits in the box of requests."""

    code = "federation.no-such-request"


class UnknownSender(DeliveryError):
    """The identity is not among the senders that were accepted."""

    code = "federation.unknown-sender"


class SenderBlocked(DeliveryError):
    """The sender is blocked: lift the block (`DELETE /me/followers/NAME`) before something of theirs is accepted."""

    code = "federation.sender-blocked"


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


class ShowsSource(PublishError):
    """The copy would show its source to people whom the source's owner did not show it to: say so (`source=show`)."""

    code = "publish.shows-source"


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


class Restored(PublishError):
    """The database may be older than it was: nothing is signed until the nodes that hold its logs were asked."""

    code = "publish.restored"


class Closing(PublishError):
    """The node is being stopped; nothing of the request was stored."""

    code = "publish.closing"


# backup.*


class BackupError(InkgroveError):
    """Copies of a home, and putting them back."""

    code = "backup"


class BackupExists(BackupError):
    """Something is there already where the backup is to be written."""

    code = "backup.exists"


class BadBackup(BackupError):
    """The backup is not whole: a file is missing, damaged, or none of a backup."""

    code = "backup.damaged"


class OtherStore(BackupError):
    """The backup is of the other kind of database."""

    code = "backup.other-store"


class HomeInUse(BackupError):
    """A process works on the home or its database."""

    code = "backup.in-use"


class WouldReplace(BackupError):
    """There is something in the home or its database that would be replaced."""

    code = "backup.would-replace"


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


class TooMuchAtOnce(RequestError):
    """The node reads as many large bodies, or makes as many large answers, as it has room for; try again."""

    code = "request.too-much-at-once"


class TooManyConnections(RequestError):
    """The node has as many connections as it can have, in all or from this address, and none of them is idle."""

    code = "request.too-many-connections"


class HeadTooLarge(RequestError):
    """The head of the request, its first line and its headers, is larger than the node takes."""

    code = "request.head-too-large"


class InternalError(RequestError):
    """The node made a mistake; its log tells more under the id of the request."""

    code = "request.internal"


# quota.* and storage.*


class QuotaExceeded(InkgroveError):
    """The identity has stored as much on this node as it may; to delete is still possible."""

    code = "quota.exceeded"


class LowDisk(InkgroveError):
    """The disk of the node is nearly full: it takes sign-ins, deletes and small deliveries, and nothing else."""

    code = "storage.low-disk"


# serve.*


class ServeError(InkgroveError):
    """A node that cannot begin to serve."""

    code = "serve"


class PortTaken(ServeError):
    """The node cannot listen at its address: it is taken, or not of this machine."""

    code = "serve.port-taken"

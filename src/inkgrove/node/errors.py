"""What a node refuses: families of errors, each with its codes. The root is in `core/errors.py`.

InkgroveError
├── AuthError        auth.*      who asks, and whether they may
├── IdentityError    identity.*  identities that a node hosts
├── MoveError        move.*      identities that go to another node
├── RelationError    relation.*  who follows whom
├── DeliveryError    federation.*  what is sent to somebody, on this node or another, and not taken
├── OAuthError       oauth.*     how services get access
├── PublishError     publish.*   what is to be signed or appended
├── BackupError      backup.*    copies of a home, and putting them back
├── ViewError        view.*      views and instances to be read
├── BlobError        blob.*      content that instances refer to
├── ExportError      export.*    exports of all that somebody has here
├── ArrivalError     arrival.*   identities that come here from another node
├── RequestError     request.*   the form of an HTTP request
├── QuotaError       quota.*     how much an identity may store
├── StorageError     storage.*   the disk of a node
└── ServeError       serve.*     a node that cannot begin to serve
"""

from inkgrove.core.errors import ErrorCode, InkgroveError, SingleCode


class AuthError(InkgroveError):
    """Who asks, and whether they may."""

    codes = (
        ErrorCode(
            "auth.required",
            401,
            "This needs somebody who is signed in, or a service with a token.",
            "Sign in (`POST /sessions`), and send the token as `Authorization: Bearer`.",
        ),
        ErrorCode(
            "auth.bad-token",
            401,
            "The token is not known here, has expired or was revoked.",
            "Sign in again, or use the refresh token.",
        ),
        ErrorCode("auth.bad-password", 401, "The name or the password is wrong."),
        ErrorCode(
            "auth.too-many-attempts",
            429,
            "Too many attempts to sign in, to create an identity, to register a service or to prove a fork; wait.",
            "Ask again after `retry_after` seconds.",
        ),
        ErrorCode(
            "auth.busy",
            503,
            "Too many passwords are being checked at this moment; try again in a few seconds.",
            "Ask again after `retry_after` seconds.",
        ),
        ErrorCode("auth.foreign-origin", 403, "A page of somebody else sent this with the cookie of a sign-in."),
        ErrorCode(
            "auth.out-of-scope",
            403,
            "The service was not granted this.",
            "Ask the identity for a grant with the scope that the message names.",
        ),
        ErrorCode("auth.not-allowed", 403, "Somebody else may do this: the owner, or the administrator."),
        ErrorCode(
            "auth.unknown-session",
            404,
            "The identity has no sign-in with this id, or it has ended.",
            "`GET /sessions` lists those that last.",
        ),
    )


class SignInRequired(SingleCode, AuthError):
    code = "auth.required"


class BadToken(SingleCode, AuthError):
    code = "auth.bad-token"


class BadPassword(SingleCode, AuthError):
    code = "auth.bad-password"


class TooManyAttempts(SingleCode, AuthError):
    code = "auth.too-many-attempts"


class Busy(SingleCode, AuthError):
    code = "auth.busy"


class ForeignOrigin(SingleCode, AuthError):
    code = "auth.foreign-origin"


class OutOfScope(SingleCode, AuthError):
    code = "auth.out-of-scope"


class IdentityError(InkgroveError):
    """Identities that a node hosts."""

    codes = (
        ErrorCode("identity.exists", 409, "The name is taken on this node."),
        ErrorCode("identity.unknown", 404, "No identity of that name or id is hosted here."),
        ErrorCode("identity.bad-name", 422, "The name is no fully qualified domain name."),
        ErrorCode(
            "identity.foreign-name",
            403,
            "The name is under no domain of this node, and other servers do not lead here under it.",
        ),
        ErrorCode("identity.name-elsewhere", 409, "Somebody on another node was found under the name."),
        ErrorCode(
            "identity.reserved-name",
            403,
            "The name is kept for the operator to give: an administrator's, a domain itself, or where the node "
            "is reached.",
            "Choose another name, or ask the operator.",
        ),
        ErrorCode(
            "identity.name-left",
            409,
            "Somebody had the name a short while ago: it is kept for them, and given to nobody else.",
        ),
        ErrorCode(
            "identity.too-many-names", 429, "The identity has left so many names that the next change has to wait."
        ),
        ErrorCode(
            "identity.unproved",
            403,
            "Whoever brings an identity has not signed a challenge of this node with its first key.",
            "Sign the challenge with the first key of the identity and ask again.",
        ),
        ErrorCode(
            "identity.lives-elsewhere", 409, "The newest document of the identity names another node as its own."
        ),
        ErrorCode(
            "identity.unknown-home",
            409,
            "Entries of log 0 are lacking here, or were not found where the identity is said to live (`lives_at`).",
        ),
        ErrorCode("identity.bad-document", 422, "The signed identity message is not what this node could host."),
        ErrorCode(
            "identity.unknown-controller",
            422,
            "The document names a controller that nobody has shown to be a key of the identity.",
            "Name the one that the challenge of the node offers, or add the key first.",
        ),
        ErrorCode("identity.weak-password", 422, "The password is too short."),
        ErrorCode(
            "identity.administers",
            409,
            "An administrator of the node cannot close their account.",
            "Take the name out of `node.administrators`, start the node again, and close it then.",
        ),
        ErrorCode(
            "identity.leaving",
            409,
            "You are about to move to another node: nothing is signed or changed here until that is done.",
            "Wait until you have moved, or take the move back (`DELETE /me/move`).",
        ),
        ErrorCode(
            "identity.recipient-leaving",
            503,
            "Whom this is for is moving to another node at this moment: send it again later.",
            "Ask again after `retry_after` seconds.",
        ),
        ErrorCode(
            "identity.moved",
            410,
            "Whom this is for has moved to another node; `identities` has the entries that prove where to.",
            "Send it to the node that the document in these entries names.",
        ),
        ErrorCode("identity.no-key-here", 422, "The node does not keep this key: the client has to sign."),
        ErrorCode(
            "identity.vault-locked",
            503,
            "The node cannot open the keys it keeps: the key of its vault is another one, or cannot be read.",
            is_internal=True,
        ),
        ErrorCode(
            "identity.vault-key-missing",
            503,
            "The node keeps keys, and the file that opens them is not there; nothing is made in its place.",
            "Put the file back from a backup.",
        ),
    )


class UnknownIdentity(SingleCode, IdentityError):
    code = "identity.unknown"


class ForeignName(SingleCode, IdentityError):
    code = "identity.foreign-name"


class NameElsewhere(SingleCode, IdentityError):
    code = "identity.name-elsewhere"


class VaultLocked(SingleCode, IdentityError):
    code = "identity.vault-locked"


class IdentityLeaving(SingleCode, IdentityError):
    code = "identity.leaving"


class RecipientLeaving(SingleCode, IdentityError):
    code = "identity.recipient-leaving"


class IdentityMoved(SingleCode, IdentityError):
    code = "identity.moved"


class MoveError(InkgroveError):
    """Identities that go to another node, and those that come from one."""

    codes = (
        ErrorCode("move.none", 404, "You are not about to move to another node."),
        ErrorCode(
            "move.arriving",
            409,
            "You have just come here, and not all that is yours is in its place.",
            "Wait until your arrival is finished, and ask again.",
        ),
        ErrorCode(
            "move.too-many",
            409,
            "So many controllers have handed over to each other that others would not follow one more.",
            "Sign a document with the words (`POST /identities/recover`), which begins anew; then move.",
        ),
        ErrorCode("move.same-node", 422, "The endpoint is that of this very node."),
        ErrorCode(
            "move.not-a-node",
            422,
            "No node answers at the endpoint, or it has not signed that it is reached there.",
            "Take the endpoint as the new node itself says it.",
        ),
        ErrorCode(
            "move.without-words",
            409,
            "This node keeps your first key and will destroy it: nobody could get the identity back then.",
            "Write the words of the key down first (`POST /me/words`, then `POST /me/words/confirm`), or say "
            "`without_words`.",
        ),
        ErrorCode(
            "move.unknown-grant",
            404,
            "No move is under way with this grant: it is wrong, was taken back, or a day has passed.",
            "Ask the old node for another one (`POST /me/move`).",
        ),
        ErrorCode(
            "move.no-old-node",
            409,
            "The node where the identity is said to live does not answer as it should; `reason` has the code.",
            "Check `lives_at`, and try again; if the node is gone for good, come with your words.",
        ),
        ErrorCode(
            "move.not-ready", 409, "The old node is still writing the file of the person.", "Ask again in a moment."
        ),
        ErrorCode(
            "move.wrong-digest",
            409,
            "The file that the new node has is not the one that the old node wrote for this move.",
            "Fetch the file again.",
        ),
        ErrorCode(
            "move.bad-key", 422, "The key of the new node has not said, in entry 1 of its log 0, whose key it is."
        ),
        ErrorCode(
            "move.wrong-node",
            409,
            "The grant is for another node or another name, or was not given by the node where the identity lives.",
            "Ask the old node for one with the endpoint and the name of the new one.",
        ),
        ErrorCode("move.done-before", 409, "The identity has moved already, with another key of the new node."),
        ErrorCode(
            "move.export-failed",
            503,
            "The old node could not write the file of the person.",
            "Take the move back and begin again; the operator finds the reason in the log of the node.",
        ),
    )


class RelationError(InkgroveError):
    """Who follows whom."""

    codes = (
        ErrorCode(
            "relation.not-requested", 409, "Nobody asked for this relation, so there is nothing to accept or refuse."
        ),
        ErrorCode("relation.own", 422, "An identity cannot follow itself."),
        ErrorCode("relation.unknown", 404, "There is no such relation."),
    )


class DeliveryError(InkgroveError):
    """What is sent to somebody, on this node or another, and not taken."""

    codes = (
        ErrorCode("federation.blocked", 422, "The recipient takes nothing from this sender."),
        ErrorCode(
            "federation.foreign-end",
            422,
            "A key says that the instance has ended that is not known to be one of its owner's.",
        ),
        ErrorCode(
            "federation.not-to-be-passed-on",
            422,
            "The owner's word on access does not let anybody else send this instance.",
        ),
        ErrorCode(
            "federation.not-addressed",
            422,
            "The instance is closed and the recipient is not among those it names.",
            "Ask the owner to name the recipient.",
        ),
        ErrorCode(
            "federation.not-following",
            422,
            "The instance is for those who follow its owner, and a recipient is none of them.",
        ),
        ErrorCode("federation.expired", 422, "The time of the instance was over before it was sent."),
        ErrorCode(
            "federation.not-found-yet",
            422,
            "The node of the recipient cannot be asked who they are; that is tried again, and what was sent goes "
            "out then.",
        ),
        ErrorCode(
            "federation.cannot-be-named",
            409,
            "A closed instance names its recipients by id, and who this one is could not be found out: try again "
            "later.",
        ),
        ErrorCode(
            "federation.too-many-not-found",
            429,
            "As many recipients could not be found yet as the node keeps for one identity: try again later.",
        ),
        ErrorCode(
            "federation.request-box-full", 429, "The recipient has as many requests from strangers as the node keeps."
        ),
        ErrorCode(
            "federation.no-such-request", 404, "Nothing of this sender, or not this, waits in the box of requests."
        ),
        ErrorCode("federation.unknown-sender", 404, "The identity is not among the senders that were accepted."),
        ErrorCode(
            "federation.sender-blocked",
            409,
            "The sender is blocked: lift the block (`DELETE /me/followers/NAME`) before something of theirs is "
            "accepted.",
        ),
    )


class NotAddressed(SingleCode, DeliveryError):
    code = "federation.not-addressed"


class OAuthError(InkgroveError):
    """How services get access; the names of RFC 6749 and RFC 7591 stand beside the code."""

    codes = (
        ErrorCode("oauth.invalid-request", 400, "A parameter is missing, given twice or not what it should be."),
        ErrorCode("oauth.invalid-client", 400, "No such service is registered here."),
        ErrorCode(
            "oauth.invalid-grant",
            400,
            "The code or refresh token is unknown, used, expired, revoked or somebody else's.",
            "Begin the authorisation again.",
        ),
        ErrorCode("oauth.invalid-scope", 400, "A scope is unknown, malformed or ambiguous."),
        ErrorCode("oauth.unauthorized-client", 400, "The service may not ask in this way."),
        ErrorCode("oauth.unsupported-grant-type", 400, "Only `authorization_code` and `refresh_token` are offered."),
        ErrorCode("oauth.unsupported-response-type", 400, "Only `code` is offered."),
        ErrorCode("oauth.unsupported-token-type", 400, "The hint names a kind of token that there is not."),
        ErrorCode("oauth.access-denied", 400, "The identity said no."),
        ErrorCode(
            "oauth.invalid-redirect-uri",
            400,
            "A redirect URI must be https, or http on the loopback, without fragment or user name.",
        ),
        ErrorCode(
            "oauth.invalid-client-metadata", 400, "The service describes itself in a way that this node does not take."
        ),
        ErrorCode("oauth.unknown-service", 404, "The identity has granted this service nothing."),
    )

    def name(self) -> str:
        """What those call the error."""
        return self.code.removeprefix("oauth.").replace("-", "_")


class OAuthInvalidScope(SingleCode, OAuthError):
    code = "oauth.invalid-scope"


class PublishError(InkgroveError):
    """What is to be signed or appended."""

    codes = (
        ErrorCode("publish.foreign-author", 403, "The author is no key of the identity that asks."),
        ErrorCode("publish.revoked-key", 403, "The identity has revoked this key."),
        ErrorCode(
            "publish.foreign-instance", 403, "Only the author of an instance, in the log of its create, may change it."
        ),
        ErrorCode(
            "publish.second-log",
            409,
            "The author writes this schema to another log; `next` has the place there.",
            "Sign for the place in `next`.",
        ),
        ErrorCode(
            "publish.mixed-schemas",
            409,
            "The log holds messages of another schema; `next` has the place where this one belongs.",
            "Sign for the place in `next`.",
        ),
        ErrorCode("publish.wrong-log", 422, "A message of this kind does not belong into this log."),
        ErrorCode(
            "publish.would-not-apply",
            422,
            "The message would have no effect on any view; `outcome` and `reason` say why.",
        ),
        ErrorCode("publish.payload-needed", 422, "What is published comes with its payload."),
        ErrorCode("publish.unknown-schema", 404, "No schema is held at this author and log."),
        ErrorCode(
            "publish.shows-history",
            409,
            "More readers would see the whole history of the instance: say `history=show`, or make a copy.",
        ),
        ErrorCode("publish.not-deleted", 409, "Only what was deleted can be erased: delete the instance first."),
        ErrorCode("publish.not-shareable", 422, "The access of the instance does not let these recipients see it."),
        ErrorCode(
            "publish.shows-source",
            409,
            "The copy would show its source to people whom the source's owner did not show it to: say so "
            "(`source=show`).",
        ),
        ErrorCode("publish.bad-patch", 400, "The patch is not of the form that its media type demands."),
        ErrorCode(
            "publish.patch-failed",
            409,
            "The patch does not fit the instance as it is now; nothing was changed.",
            "Read the instance again and make the patch anew.",
        ),
        ErrorCode(
            "publish.bad-document", 422, "What the patch makes of the instance is not `fields`, `access` and `expires`."
        ),
        ErrorCode(
            "publish.key-reused",
            422,
            "The Idempotency-Key was used for another request.",
            "Take a new key for a new request.",
        ),
        ErrorCode(
            "publish.restored",
            503,
            "The database may be older than it was: nothing is signed until the nodes that hold its logs were asked.",
            "Let the node run; `inkgrove resume` says whom it waits for.",
        ),
        ErrorCode(
            "publish.closing",
            503,
            "The node is being stopped; nothing of the request was stored.",
            "Ask again when the node is back.",
        ),
    )


class Restored(SingleCode, PublishError):
    code = "publish.restored"


class BackupError(InkgroveError):
    """Copies of a home, and putting them back."""

    codes = (
        ErrorCode(
            "backup.exists",
            422,
            "Something is there already where the backup is to be written.",
            "Name a folder that does not exist.",
        ),
        ErrorCode("backup.damaged", 422, "The backup is not whole: a file is missing, damaged, or none of a backup."),
        ErrorCode("backup.other-store", 422, "The backup is of the other kind of database."),
        ErrorCode(
            "backup.in-use",
            503,
            "A process works on the home or its database.",
            "Stop the node and the pipeline first.",
        ),
        ErrorCode(
            "backup.would-replace",
            422,
            "There is something in the home or its database that would be replaced.",
            "Restore into an empty home.",
        ),
    )


class ViewError(InkgroveError):
    """Views and instances to be read."""

    codes = (
        ErrorCode("view.unknown", 404, "No view of that name or schema is on this node."),
        ErrorCode(
            "view.ambiguous-name",
            409,
            "Several schemas have this name: say which by author and log.",
            "Take one of the candidates in the answer.",
        ),
        ErrorCode("view.unknown-instance", 404, "No such instance is here, or it may not be seen."),
        ErrorCode("view.past-too-long", 422, "The instance has more messages than this node reads for one answer."),
        ErrorCode("view.unknown-log", 404, "No such log is here, or it may not be seen."),
        ErrorCode(
            "view.bad-cursor",
            400,
            "The cursor does not belong to this view and sort order.",
            "Begin again without the cursor.",
        ),
        ErrorCode(
            "view.behind",
            503,
            "The view has not seen that write in time; ask again.",
            "Ask again after `retry_after` seconds.",
        ),
        ErrorCode("view.too-many-listeners", 503, "As many follow changes here as this node serves; try again later."),
    )


class UnknownView(SingleCode, ViewError):
    code = "view.unknown"


class AmbiguousName(SingleCode, ViewError):
    code = "view.ambiguous-name"


class PastTooLong(SingleCode, ViewError):
    code = "view.past-too-long"


class BadCursor(SingleCode, ViewError):
    code = "view.bad-cursor"


class BlobError(InkgroveError):
    """Content that instances refer to."""

    codes = (
        ErrorCode("blob.unknown", 404, "No such blob is here, or it may not be read."),
        ErrorCode("blob.too-large", 413, "The blob is larger than the node takes."),
        ErrorCode("blob.bad-range", 416, "The range lies outside of the blob."),
    )


class UnknownBlob(SingleCode, BlobError):
    code = "blob.unknown"


class BadRange(SingleCode, BlobError):
    code = "blob.bad-range"


class ExportError(InkgroveError):
    """Exports of all that somebody has on a node."""

    codes = (
        ErrorCode(
            "export.unknown",
            404,
            "No such export is here: it has expired, was removed, or is somebody else's.",
            "Ask for another one (`POST /me/export`).",
        ),
        ErrorCode(
            "export.not-finished",
            409,
            "The export is still being written, or has failed: there is no file to download or remove.",
            "Look at it (`GET /me/export/{id}`) until it is finished.",
        ),
        ErrorCode(
            "export.no-secret",
            422,
            "A passphrase was given, but the node does not keep the first key: there is no secret to put into the "
            "file.",
            "Ask without a passphrase; keep your first key where you have it.",
        ),
    )


class ArrivalError(InkgroveError):
    """Identities that come here from another node."""

    codes = (
        ErrorCode(
            "arrival.unknown",
            404,
            "No arrival with this id is under way, or the token is that of another one; it may have been given up.",
            "Begin again with the words: what has come already is not lost while the file is the same.",
        ),
        ErrorCode(
            "arrival.lives-here",
            409,
            "The identity lives on this node already: there is nothing to bring.",
            "Sign in, or set a new password with the words (`POST /identities/recover`).",
        ),
        ErrorCode(
            "arrival.under-way",
            409,
            "The identity is on its way here already.",
            "Look at that arrival, or begin again with the words, which replaces it.",
        ),
        ErrorCode(
            "arrival.too-many",
            503,
            "As many identities as the node lets in at a time are on their way here.",
            "Try again later, or ask the operator.",
        ),
        ErrorCode(
            "arrival.too-large",
            413,
            "The file is larger than this node takes, or a blob in it is.",
            "Ask the operator, or choose another node.",
        ),
        ErrorCode(
            "arrival.wrong-part",
            409,
            "The part of the file does not begin where the last one ended.",
            "Go on with the byte that `received` names.",
        ),
        ErrorCode(
            "arrival.not-ready",
            409,
            "The arrival is in another state: not everything has come, or the identity lives here already.",
            "Look at it (`GET /identities/arrivals/{id}`) until it is `committing`.",
        ),
        ErrorCode(
            "arrival.nobody-knows",
            409,
            "Nobody who was asked holds anything of the identity.",
            "Check that these are the right words, name other friends, or bring the file.",
        ),
        ErrorCode(
            "arrival.nobody-answered",
            409,
            "None of the friends has answered yet.",
            "Check their names; they are asked again and again until the arrival is given up.",
        ),
    )


class RequestError(InkgroveError):
    """The form of an HTTP request."""

    codes = (
        ErrorCode("request.invalid", 400, "The request is not what the route takes."),
        ErrorCode(
            "request.no-such-route",
            404,
            "There is nothing at this address.",
            "`GET /openapi.json` lists what there is.",
        ),
        ErrorCode(
            "request.method-not-allowed",
            405,
            "The address exists, with other methods.",
            "The header `Allow` says which.",
        ),
        ErrorCode(
            "request.too-large",
            413,
            "The body of the request is larger than the node takes.",
            "The limit is in the answer; put large content into a blob.",
        ),
        ErrorCode("request.unsupported-media-type", 415, "The body is of a content type that the route does not take."),
        ErrorCode(
            "request.bad-json",
            400,
            "The body is not JSON as RFC 8259 has it: syntax, UTF-8, NaN, a key twice, half a surrogate or U+0000.",
            "The message says where.",
        ),
        ErrorCode("request.too-complex", 400, "The body is nested too deeply or has too many values."),
        ErrorCode(
            "request.unknown-parameter", 400, "The query of the address has a parameter that the route does not know."
        ),
        ErrorCode("request.bad-address", 400, "The path or the query of the address has U+0000 in it."),
        ErrorCode("request.too-slow", 408, "The body of the request came too slowly."),
        ErrorCode(
            "request.too-much-at-once",
            503,
            "The node reads as many large bodies, or makes as many large answers, as it has room for; try again.",
        ),
        ErrorCode(
            "request.too-many-connections",
            503,
            "The node has as many connections as it can have, in all or from this address, and none of them is idle.",
        ),
        ErrorCode(
            "request.head-too-large",
            431,
            "The head of the request, its first line and its headers, is larger than the node takes.",
        ),
        ErrorCode(
            "request.internal",
            500,
            "The node made a mistake; its log tells more under the id of the request.",
            "Tell the operator the id of the request (`X-Request-Id`).",
        ),
    )


class ServeError(InkgroveError):
    """A node that cannot begin to serve."""

    codes = (
        ErrorCode(
            "serve.port-taken",
            422,
            "The node cannot listen at its address: it is taken, or not of this machine.",
            "End what listens there, or choose another port (`--port`).",
        ),
    )


class QuotaError(InkgroveError):
    """How much an identity may store on a node."""

    codes = (
        ErrorCode(
            "quota.exceeded",
            403,
            "The identity has stored as much on this node as it may; to delete is still possible.",
            "Delete something, or ask the operator for more.",
        ),
    )


class StorageError(InkgroveError):
    """The disk of a node."""

    codes = (
        ErrorCode(
            "storage.low-disk",
            507,
            "The disk of the node is nearly full: it takes sign-ins, deletes and small deliveries, and nothing else.",
            "The operator has to free some space.",
        ),
        ErrorCode("storage.erasing", 503, "Another process of the home is erasing.", "Wait for its end."),
    )

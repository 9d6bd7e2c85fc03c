"""What goes wrong between nodes, each class one reason with a stable code; the root is in `core/errors.py`.

    InkgroveError
    └── FederationError  federation.*  other nodes: reached, found and believed

`api/problems.py` has the HTTP status of each.
"""

from inkgrove.core.errors import InkgroveError

# federation.*


class FederationError(InkgroveError):
    """Other nodes: reached, found and believed."""

    code = "federation"


# Asking another node


class BadUrl(FederationError):
    """The address of a node must be https, with a domain name and a port that is 443 or above 1023."""

    code = "federation.bad-url"


class BadResolve(FederationError):
    """An item of the setting `resolve` must read NAME=HOST:PORT, with a loopback address as host."""

    code = "federation.bad-resolve"


class ForbiddenAddress(FederationError):
    """The name leads to no address that this node may connect to."""

    code = "federation.forbidden-address"


class Unreachable(FederationError):
    """The name is unknown, or nobody answers there with a valid certificate."""

    code = "federation.unreachable"


class PeerTimeout(FederationError):
    """The other node took too long."""

    code = "federation.timeout"


class AnswerTooLarge(FederationError):
    """The other node answers more than this one takes."""

    code = "federation.answer-too-large"


class Redirected(FederationError):
    """The other node sends elsewhere, which is never followed."""

    code = "federation.redirected"


class BadAnswer(FederationError):
    """The other node answers something that does not belong there."""

    code = "federation.bad-answer"


class EndlessAnswer(FederationError):
    """The other node says again and again that there is more, and sends little."""

    code = "federation.endless-answer"


# Discovery


class NoIdentityThere(FederationError):
    """No identity is served under that name, or no name is known for that id."""

    code = "federation.no-identity-there"


class WrongIdentity(FederationError):
    """The id is not that of the key that signed the document, or another one than expected."""

    code = "federation.wrong-identity"


class WrongName(FederationError):
    """The signed document names another FQDN than the one that it was found under."""

    code = "federation.wrong-name"


class WrongEndpoint(FederationError):
    """The node names another endpoint than the signed document does."""

    code = "federation.wrong-endpoint"


class UnprovedNode(FederationError):
    """The key of a node that is named for an identity has not signed that it serves it."""

    code = "federation.unproved-node"


class UnprovedDocument(FederationError):
    """The entries that come with a document do not prove it."""

    code = "federation.unproved-document"


class ForkedIdentity(FederationError):
    """The identity contradicts itself: its log 0 is forked, or lies about a size."""

    code = "federation.forked-identity"


# Requests of other nodes


class SignatureMissing(FederationError):
    """The request carries no signature for this protocol, or more than one."""

    code = "federation.signature-missing"


class SignatureIncomplete(FederationError):
    """The signature leaves out something that it must cover or state."""

    code = "federation.signature-incomplete"


class BadRequestSignature(FederationError):
    """The signature of the request does not hold for the key of its sender's node."""

    code = "federation.bad-signature"


class BadDigest(FederationError):
    """The body is not the one that was signed."""

    code = "federation.bad-digest"


class StaleRequest(FederationError):
    """The signature has expired or was to last too long."""

    code = "federation.stale-request"


class FutureRequest(FederationError):
    """The signature was made in the future: one of the two clocks is wrong."""

    code = "federation.future-request"


class ReplayedRequest(FederationError):
    """This very request has been received before."""

    code = "federation.replayed-request"


class MisdirectedRequest(FederationError):
    """The request was signed for a name that this node does not serve."""

    code = "federation.misdirected-request"


class SenderUnproved(FederationError):
    """The name that signed the request leads to no identity whose word counts."""

    code = "federation.sender-unproved"


class SenderUnreachable(FederationError):
    """The node that signed the request cannot be asked for its keys at the moment, or has to be: try again."""

    code = "federation.sender-unreachable"


# What became of deliveries, as their sender sees it


class NothingHeld(FederationError):
    """The instance that was to be sent, or the identity that sends it, is not here any more."""

    code = "federation.nothing-held"


class NoReceipt(FederationError):
    """The other node took the request and did not say what became of this delivery."""

    code = "federation.no-receipt"


# Taking in what others send


class NotGivenAgain(FederationError):
    """The owner's node does not have what was asked for, or does not give it to the one who asks."""

    code = "federation.not-given-again"


class UnknownRecipient(FederationError):
    """The recipient is not hosted on this node."""

    code = "federation.unknown-recipient"


class StrangerSendsTooMuch(FederationError):
    """A delivery has more entries than are looked at for recipients who do not know the sender: send less at once."""

    code = "federation.stranger-sends-too-much"


class QuotaUsedUp(FederationError):
    """The sender has sent as much as this node takes in such a time; try again later."""

    code = "federation.quota-used-up"


class BadMove(FederationError):
    """The message about a relation is malformed."""

    code = "federation.bad-move"


class NoSender(FederationError):
    """This node hosts no identity in whose name it could ask another one."""

    code = "federation.no-sender"


class UnknownPeer(FederationError):
    """The node is not on the list of peers."""

    code = "federation.unknown-peer"


class ImportFailed(FederationError):
    """The import of what another node sent did not come to its end."""

    code = "federation.import-failed"
    is_internal = True

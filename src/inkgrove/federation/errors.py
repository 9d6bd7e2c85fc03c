"""The table of error codes between nodes, `federation.*`; the root and the rules are in `core/errors.py`."""

from inkgrove.core import IdentityId
from inkgrove.core.errors import ErrorCode, InkgroveError, SingleCode


class FederationError(InkgroveError):
    """Other nodes: reached, found and believed."""

    codes = (
        ErrorCode(
            "federation.bad-url",
            422,
            "The address of a node must be https, with a domain name and a port that is 443 or above 1023.",
        ),
        ErrorCode(
            "federation.bad-resolve",
            500,
            "An item of the setting `resolve` must read NAME=HOST:PORT, with a loopback address as host.",
        ),
        ErrorCode("federation.forbidden-address", 502, "The name leads to no address that this node may connect to."),
        ErrorCode(
            "federation.unreachable", 502, "The name is unknown, or nobody answers there with a valid certificate."
        ),
        ErrorCode("federation.timeout", 504, "The other node took too long."),
        ErrorCode("federation.answer-too-large", 502, "The other node answers more than this one takes."),
        ErrorCode("federation.redirected", 502, "The other node sends elsewhere, which is never followed."),
        ErrorCode("federation.bad-answer", 502, "The other node answers something that does not belong there."),
        ErrorCode(
            "federation.endless-answer",
            502,
            "The other node says again and again that there is more, and sends little.",
        ),
        # Discovery
        ErrorCode(
            "federation.no-identity-there",
            404,
            "No identity is served under that name, or no name is known for that id.",
        ),
        ErrorCode(
            "federation.wrong-identity",
            502,
            "The id is not that of the key that signed the document, or another one than expected.",
        ),
        ErrorCode(
            "federation.wrong-name", 502, "The signed document names another FQDN than the one that it was found under."
        ),
        ErrorCode("federation.wrong-endpoint", 502, "The node names another endpoint than the signed document does."),
        ErrorCode(
            "federation.unproved-node",
            502,
            "The key of a node that is named for an identity has not signed that it serves it.",
        ),
        ErrorCode("federation.unproved-document", 502, "The entries that come with a document do not prove it."),
        ErrorCode(
            "federation.forked-identity",
            502,
            "The identity contradicts itself: its log 0 is forked, or lies about a size.",
        ),
        # Requests of other nodes
        ErrorCode(
            "federation.signature-missing", 401, "The request carries no signature for this protocol, or more than one."
        ),
        ErrorCode(
            "federation.signature-incomplete", 401, "The signature leaves out something that it must cover or state."
        ),
        ErrorCode(
            "federation.bad-signature",
            401,
            "The signature of the request does not hold for the key of its sender's node.",
        ),
        ErrorCode("federation.bad-digest", 400, "The body is not the one that was signed."),
        ErrorCode(
            "federation.stale-request",
            401,
            "The signature has expired or was to last too long.",
            "Sign again; if that does not help, set the clock.",
        ),
        ErrorCode(
            "federation.future-request",
            401,
            "The signature was made in the future: one of the two clocks is wrong.",
            "Set the clock, and let NTP keep it.",
        ),
        ErrorCode("federation.replayed-request", 409, "This very request has been received before."),
        ErrorCode(
            "federation.misdirected-request", 421, "The request was signed for a name that this node does not serve."
        ),
        ErrorCode(
            "federation.sender-unproved",
            403,
            "The name that signed the request leads to no identity whose word counts.",
        ),
        ErrorCode(
            "federation.sender-unreachable",
            503,
            "The node that signed the request cannot be asked for its keys at the moment, or has to be: try again.",
        ),
        # What became of deliveries, as their sender sees it
        ErrorCode(
            "federation.nothing-held",
            502,
            "The instance that was to be sent, or the identity that sends it, is not here any more.",
        ),
        ErrorCode(
            "federation.no-receipt",
            502,
            "The other node took the request and did not say what became of this delivery.",
        ),
        ErrorCode(
            "federation.moved",
            502,
            "The identity has moved to another node, and is looked up where its newest document leads.",
        ),
        ErrorCode(
            "federation.unproved-move",
            502,
            "The other node says that an identity has moved, and does not prove it.",
        ),
        # Taking in what others send
        ErrorCode(
            "federation.not-given-again",
            404,
            "The owner's node does not have what was asked for, or does not give it to the one who asks.",
        ),
        ErrorCode("federation.unknown-recipient", 404, "The recipient is not hosted on this node."),
        ErrorCode(
            "federation.stranger-sends-too-much",
            502,
            "A delivery has more entries than are looked at for recipients who do not know the sender: send less "
            "at once.",
            "Send less at once.",
        ),
        ErrorCode(
            "federation.quota-used-up",
            429,
            "The sender has sent as much as this node takes in such a time; try again later.",
            "Ask again after `retry_after` seconds.",
        ),
        ErrorCode("federation.bad-move", 422, "The message about a relation is malformed."),
        ErrorCode("federation.no-sender", 409, "This node hosts no identity in whose name it could ask another one."),
        ErrorCode("federation.unknown-peer", 404, "The node is not on the list of peers."),
        ErrorCode(
            "federation.import-failed",
            500,
            "The import of what another node sent did not come to its end.",
            is_internal=True,
        ),
    )


class ForbiddenAddress(SingleCode, FederationError):
    code = "federation.forbidden-address"


class PeerUnreachable(SingleCode, FederationError):
    code = "federation.unreachable"


class PeerTimeout(SingleCode, FederationError):
    code = "federation.timeout"


class AnswerTooLarge(SingleCode, FederationError):
    code = "federation.answer-too-large"


class Redirected(SingleCode, FederationError):
    code = "federation.redirected"


class BadAnswer(SingleCode, FederationError):
    code = "federation.bad-answer"


class EndlessAnswer(SingleCode, FederationError):
    code = "federation.endless-answer"


class NoIdentityThere(SingleCode, FederationError):
    code = "federation.no-identity-there"


class WrongIdentity(SingleCode, FederationError):
    code = "federation.wrong-identity"


class WrongName(SingleCode, FederationError):
    code = "federation.wrong-name"


class ForkedIdentity(SingleCode, FederationError):
    code = "federation.forked-identity"


class BadRequestSignature(SingleCode, FederationError):
    code = "federation.bad-signature"


class QuotaUsedUp(SingleCode, FederationError):
    code = "federation.quota-used-up"


class BadMove(SingleCode, FederationError):
    code = "federation.bad-move"


class UnprovedMove(SingleCode, FederationError):
    code = "federation.unproved-move"


class IdentityRelocated(SingleCode, FederationError):
    code = "federation.moved"

    @property
    def identities(self) -> list[IdentityId]:
        """Those of the identities that were asked for who have moved."""
        found = self.data["identities"]
        assert isinstance(found, list)
        return found

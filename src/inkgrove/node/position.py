"""Position tokens: an offset of the store as a text that clients hand back and never read."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error

from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.node.errors import BadRequest
from inkgrove.store.ingests import Offset


def render_position(offset: Offset) -> str:
    """The token of an offset."""
    return urlsafe_b64encode(f"{offset.xid}.{offset.position}".encode()).rstrip(b"=").decode()


def parse_position(token: str) -> Offset:
    """The offset of a token that this node gave out."""
    try:
        text = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode("ascii")
        xid, position = (int(part) for part in text.split(".") if part.isdigit())
    except (ValueError, Error, UnicodeError):
        raise BadRequest("this is no position token of this node") from None
    if max(xid, position) > MAX_STORED_INTEGER:
        raise BadRequest("this is no position token of this node")
    return Offset(xid, position)

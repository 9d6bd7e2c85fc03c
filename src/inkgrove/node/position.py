"""Position tokens: an offset of the store as a text that clients and other nodes hand back and cannot read.

Its numbers count everything that the whole node stores, so they are hidden, and all tokens have the same length.
"""

from typing import Final

from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.node.errors import RequestError
from inkgrove.node.vault import Vault
from inkgrove.store.logs import Offset

MAX_TOKEN: Final = 200
"""Characters that a token has at most."""
_POSITION: Final = "position"


def render_position(vault: Vault, offset: Offset) -> str:
    """The token of an offset."""
    return vault.hide(f"{_POSITION} {offset.xid:020d} {offset.position:020d}")


def parse_position(vault: Vault, token: str) -> Offset:
    """The offset of a token that this node gave out."""
    parts = (vault.reveal(token) or "").split(" ")
    if len(parts) != 3 or parts[0] != _POSITION:
        raise RequestError(
            "request.invalid", "this is no position token of this node: take `position` of an answer as it is"
        )
    offset = Offset(int(parts[1]), int(parts[2]))
    assert max(map(abs, offset)) <= MAX_STORED_INTEGER, "only what this node has rendered is revealed"
    return offset

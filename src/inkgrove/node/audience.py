"""Who may be told what was said last of an instance: pure decisions (docs/protocol.md section 8).

The newest held word on access counts. Narrowing recalls nothing, but what is said later goes only to those who may
still see it; that an instance has ended is told to everyone who has a copy by us.
"""

from inkgrove.core.keys import IdentityId
from inkgrove.messages.instance import Access, AccessMode


def mode_of(access: Access | None) -> AccessMode:
    """The mode of access; without a word, `listed`."""
    return access.mode if access is not None else "listed"


def may_pass_on(access: Access | None) -> bool:
    """Whether somebody other than the owner may send the instance to others; if `relations`, only to followers."""
    return mode_of(access) not in ("self", "closed")


def may_pass_to(access: Access | None, *, is_follower: bool) -> bool:
    """Whether somebody other than the owner may send the instance to one who follows the owner or does not."""
    return may_pass_on(access) and (is_follower or mode_of(access) != "relations")


def may_receive(access: Access | None, recipient: IdentityId, *, was_sent: bool, is_follower: bool) -> bool:
    """Whether somebody gets what the owner said last: whom it was sent to, and followers where they are meant.

    What is for `relations` is for followers alone, whoever else it was sent to before.
    """
    match mode_of(access):
        case "self":
            return False
        case "closed":
            return was_sent and access is not None and recipient in access.to
        case "listed":
            return was_sent
        case "relations":
            return is_follower
        case _:
            return was_sent or is_follower

"""Who may see a copy: no more than may see its source, unless whoever copies says so (docs/protocol.md section 8.3)."""

from collections.abc import Collection, Sequence
from typing import Literal

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.instance import Access
from inkgrove.node.appending import Appender
from inkgrove.node.audience import may_receive, mode_of
from inkgrove.node.caller import Caller
from inkgrove.node.errors import PublishError, ViewError
from inkgrove.node.held import HeldInstance, find_held, owner_of
from inkgrove.node.sending import is_follower, was_sent

Source = Literal["show"] | None
"""`show`: others than those who may see the source are to see the copy."""


def access_of_copy(
    appender: Appender,
    caller: Caller,
    source: Hash,
    access: Access | None,
    recipients: Sequence[IdentityId],
    said: Source,
    *,
    later: Collection[str],
    is_read: bool,
) -> Access | None:
    """The access of a copy: as it was asked for, else that of its source if that is `closed`.

    Raises `publish.shows-source` if somebody else's content would be shown to people whom its owner did not show it
    to, unless
    `said` is `show`. Of recipients who are not found yet (`later`) nobody knows that they may see it. `is_read`: the
    node copies what it shows of the source, in a view that may be behind: it raises `view.unknown-instance` unless
    whoever
    copies may see the source by the newest word on it. Otherwise a source that they cannot see here is only a name.
    """
    appender.flush()
    held = find_held(appender.connection, source)
    if is_read and (held is None or held.is_deleted or not _sees(appender, caller, held)):
        raise ViewError("view.unknown-instance", f"no instance {source.hex()} is here, or it may not be seen")
    if held is None or not _sees(appender, caller, held):
        return access
    if access is None and mode_of(held.access) == "closed":
        access = Access("closed", tuple(recipients))
    owner = owner_of(appender.connection, held.author)
    named = {*recipients, *(access.to if access is not None else ())} - {caller.identity, owner}
    is_others = owner != caller.identity
    if said is None and is_others and _shows_more(appender, held, owner, mode_of(access), named, later):
        raise PublishError(
            "publish.shows-source",
            "people would see it to whom the owner of the source did not show it: leave access out, name only those who"
            " may see the source, or repeat with source=show",
            instance=source,
        )
    return access


def _sees(appender: Appender, caller: Caller, held: HeldInstance) -> bool:
    if caller.identity is None:
        return False
    connection, owner = appender.connection, owner_of(appender.connection, held.author)
    sent, follows = (
        was_sent(connection, held.instance, caller.identity),
        is_follower(connection, caller.identity, owner),
    )
    is_meant = may_receive(held.access, caller.identity, was_sent=sent, is_follower=follows)
    return owner == caller.identity or is_meant or mode_of(held.access) == "public"


def _shows_more(
    appender: Appender,
    held: HeldInstance,
    owner: IdentityId,
    mode: str,
    named: Collection[IdentityId],
    later: Collection[str],
) -> bool:
    """Whether a copy with this mode, sent to those named, is for others than its source, which is somebody else's."""
    before = held.access
    match mode_of(before):
        case "public":
            return False
        case _ if mode in ("relations", "public"):
            return True  # whoever follows the one who copies need not follow the owner
        case "closed":
            return mode == "listed" or bool(later) or any(before is None or to not in before.to for to in named)
        case "relations":
            return bool(later) or any(not is_follower(appender.connection, to, owner) for to in named)
        case _:
            return False

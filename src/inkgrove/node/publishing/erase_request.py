"""Erases an instance before its grace is over, because its owner asks for that (docs/protocol.md section 9.5)."""

from inkgrove.core import Hash
from inkgrove.node.errors import PublishError, ViewError
from inkgrove.node.identity.caller import Caller
from inkgrove.node.identity.identity_log import find_owner
from inkgrove.node.runtime.erasure import erase_at_once
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import find_creates, is_erased
from inkgrove.store.rot import was_deleted


def erase_own_instance(node: Node, caller: Caller, instance: Hash) -> bool:
    """Erase an instance that the caller, who has given their password, owns and has deleted.

    Returns whether it is erased by now; else it is with the next run. Raises `view.unknown-instance` if there is none
    of theirs, and `publish.not-deleted` if it was not deleted.
    """
    identity = caller.require_identity()

    def check(connection: Connection) -> bool:
        create = find_creates(connection, [instance]).get(instance)
        if create is None or find_owner(connection, create.author) != identity:
            raise ViewError("view.unknown-instance", f"no instance {instance.hex()[:140]} of yours is here")
        if not was_deleted(connection, create.log, create.seq_num):
            raise PublishError("publish.not-deleted", "delete the instance first: DELETE /instances/INSTANCE")
        return is_erased(connection, instance)

    return node.database.read(check) or erase_at_once(node, instance)

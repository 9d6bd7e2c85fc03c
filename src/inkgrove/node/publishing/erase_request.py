"""Erases instances before their grace is over, because their owner asks for that (docs/protocol.md section 9.5)."""

from collections.abc import Collection

from inkgrove.core import Hash, IdentityId
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


def erase_ended(node: Node, owner: IdentityId, instances: Collection[Hash]) -> None:
    """Erase those of the instances that an identity owns and has deleted; it closes its account."""

    def find(connection: Connection) -> list[Hash]:
        creates = find_creates(connection, instances)
        return [
            instance
            for instance, create in creates.items()
            if find_owner(connection, create.author) == owner
            and not is_erased(connection, instance)
            and was_deleted(connection, create.log, create.seq_num)
        ]

    found = node.database.read(find)
    if found:
        erase_at_once(node, *found)

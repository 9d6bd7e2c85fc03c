"""The node's own key, for HTTP between nodes; it never signs an entry (docs/protocol.md section 7.4)."""

from sqlalchemy import Connection

from inkgrove.core.keys import KEY_BYTES, SecretKey
from inkgrove.node.node import Node
from inkgrove.store.federation import add_node_key, lock_node_keys, newest_node_key


def node_key(node: Node) -> SecretKey:
    """The key that this node signs its requests with; made at the first use."""
    stored = node.database.read(newest_node_key)
    return _make(node, only_first=True) if stored is None else node.vault.open(stored[1])


def replace_node_key(node: Node) -> SecretKey:
    """Sign with a new key from now on; other nodes find it the next time they look."""
    return _make(node, only_first=False)


def _make(node: Node, *, only_first: bool) -> SecretKey:
    key = SecretKey.from_seed(node.random_bytes(KEY_BYTES))

    def work(connection: Connection) -> SecretKey:
        lock_node_keys(connection)
        stored = newest_node_key(connection) if only_first else None
        if stored is not None:
            return node.vault.open(stored[1])  # another process was first
        add_node_key(connection, key.public, node.vault.seal(key), node.clock())
        return key

    return node.database.write(work, durable=True)

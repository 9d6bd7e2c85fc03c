"""Lets an identity live on this node with the first key from its file (docs/person-file.md).

The file may be older than what others hold of the identity: a place of a log that was signed after it would be signed
twice, which ends the log. So the node signs nothing until everybody was asked, as one that was put back from a backup
(docs/adr/0016-a-restored-node-asks-before-it-signs.md).
"""

from dataclasses import replace

from inkgrove.core import SecretKey, identity_of
from inkgrove.messages.person_file import PersonHeader
from inkgrove.node.identity import append_document, apply_identity_log, read_newest_document, take_name
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.node import HostedIdentity, add_identity, find_identity, keep_secret, note_behind


def host_with_secret(node: Node, key: SecretKey, header: PersonHeader) -> bool:
    """Host an identity whose key this node keeps from now on; returns whether it was not hosted before.

    Its document is signed anew if it names another node, as soon as this one signs: at once, or when the file is
    imported again after the others were asked. Raises an error of names.
    """
    identity = identity_of(key.public)

    def host(connection: Connection) -> bool:
        if find_identity(connection, identity) is not None:
            return False
        _, document = read_newest_document(connection, key.public)
        take_name(connection, node, document.fqdn, identity, is_operator=True)
        hosted = HostedIdentity(identity, document.fqdn, key.public, None, node.clock(), document.endpoint)
        add_identity(connection, hosted, None)
        keep_secret(connection, key.public, node.vault.seal(key))
        apply_identity_log(connection, key.public)
        reason = f"{document.fqdn} came with a file of {header.made}: others may hold newer entries"
        note_behind(connection, reason, node.clock())
        return True

    is_new = node.database.write(host, durable=True)
    if node.signing.read_behind_state() is None:
        node.signing.write(lambda connection: _name_this_node(connection, node, key))
    return is_new


def _name_this_node(connection: Connection, node: Node, key: SecretKey) -> None:
    _, document = read_newest_document(connection, key.public)
    endpoint = node.settings.endpoint.format(fqdn=document.fqdn)
    if document.endpoint != endpoint:
        append_document(connection, key, replace(document, endpoint=endpoint))
        apply_identity_log(connection, key.public, is_ours=True)

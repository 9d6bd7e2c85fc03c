"""Writes instances into a bundle and takes a bundle in, by the rules of sharing (docs/protocol.md section 8).

A file comes from nobody's endpoint: what only its owner's node may send (`closed`, `self`) is neither written nor read.
It carries what proves the documents of the owners: a reader who has never met them sees whose the instances are.
"""

from collections.abc import Sequence

from inkgrove.core import Hash, IdentityId
from inkgrove.core.errors import ParcelError
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers import decode_document, encode_document, read_document_proof, take_document
from inkgrove.federation.sharing.inbox import DeliveryReceipt, receive_parcel
from inkgrove.messages import Bundle, BundledEntry, BundledInstance, Parcel, SchemaId
from inkgrove.node.errors import DeliveryError, ViewError
from inkgrove.node.identity import find_first_key, find_newest_document, find_owner
from inkgrove.node.publishing import find_held_instance, may_pass_on, pack_parcel
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import by_log, find_log, ingest_batch, prepare_items, read_entries


def write_bundle(node: Node, instances: Sequence[Hash]) -> Bundle:
    """Return everything that is held of these instances, with proofs, schemas and what proves the documents of owners.

    Of a deleted instance it is only the delete.

    Raises `view.unknown-instance`, or `federation.not-to-be-passed-on`.
    """
    return node.database.read(lambda connection: _write(connection, instances))


def _write(connection: Connection, instances: Sequence[Hash]) -> Bundle:
    written = []
    schemas: dict[SchemaId, None] = {}
    owners: dict[IdentityId, None] = {}
    for instance in instances:
        held = find_held_instance(connection, instance)
        if held is None:
            raise ViewError("view.unknown-instance", f"no instance {instance.hex()[:140]} is here")
        if not may_pass_on(held.access):
            raise DeliveryError(
                "federation.not-to-be-passed-on", f"the owner of {instance.hex()[:140]} does not let it be passed on"
            )
        parcel = pack_parcel(connection, held, [], after=0, deletions_only=held.is_deleted)
        if parcel is None:
            raise ViewError(
                "view.unknown-instance", f"{instance.hex()[:140]} has ended, in a branch of its log that does not count"
            )
        written.append(BundledInstance(instance, parcel.entries))
        schemas[held.schema] = None
        owners[find_owner(connection, held.author)] = None
    logs = [item for schema in schemas for item in _schema_log(connection, schema)]
    return Bundle(written, logs, [document for owner in owners for document in _document_of(connection, owner)])


def _document_of(connection: Connection, owner: IdentityId) -> list[bytes]:
    first_key = find_first_key(connection, owner)
    if first_key is None or find_newest_document(connection, first_key) is None:
        return []
    return [encode_document(read_document_proof(connection, first_key))]


def _schema_log(connection: Connection, schema: SchemaId) -> list[BundledEntry]:
    log = find_log(connection, *schema)
    stored = read_entries(connection, *schema, 1, log.height) if log is not None else []
    return [(item.entry.encoded, item.payload) for item in stored if item.refusal is None]


def read_bundle(node: Node, bundle: Bundle, recipients: Sequence[IdentityId]) -> list[DeliveryReceipt]:
    """Take a bundle in for identities of this node, verified like a delivery; returns the receipts of each instance.

    Without recipients it is only stored: what is public can be seen then, and nothing else. Raises an error of the
    schemas' entries, or `parcel.bad-bundle`.
    """
    for document in bundle.documents:
        try:
            take_document(node, decode_document(document))
        except (ParcelError, FederationError) as err:
            raise ParcelError("parcel.bad-bundle", f"a document is not proved: {err.message}") from err
    _ingest_schemas(node, bundle.schemas)
    receipts: list[DeliveryReceipt] = []
    for item in bundle.instances:
        receipts += receive_parcel(node, None, Parcel(item.instance, tuple(recipients), item.entries))
    return receipts


def _ingest_schemas(node: Node, items: Sequence[BundledEntry]) -> None:
    prepared, rejected = prepare_items(items)
    for refused in rejected:
        raise refused.error
    for item in prepared:
        if item.content is None or item.content.kind is None or not item.content.kind.startswith("schema-"):
            raise ParcelError("parcel.bad-bundle", "among the schemas there is something else")
    if prepared:
        node.database.write(lambda connection: ingest_batch(connection, by_log(prepared), must_be_next=False))

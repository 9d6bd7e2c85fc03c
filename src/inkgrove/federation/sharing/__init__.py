"""Sharing: sending instances to the identities they are for, and receiving those of others (docs/protocol.md 8).

`outbox` sends what is queued, `inbox` decides on what arrives, `request_box` releases what waits for its recipient,
`relations` tells other nodes of moves, `relocation` follows identities that move to another node, `fetching` gets blobs
and rotted copies from the owner's node, and `bundles` does without a network. Parcels come in and go out; each carries
the entries that prove it.
"""

from inkgrove.federation.sharing.bundles import read_bundle, write_bundle
from inkgrove.federation.sharing.fetching import (
    COPIES_PATH,
    PART_BYTES,
    BlobFetcher,
    RefetchContext,
    answer_refetch,
    refetch_copy,
    restore_copy,
)
from inkgrove.federation.sharing.inbox import (
    NOBODY,
    STRANGER_ENTRIES,
    DeliveryReceipt,
    receive_delivery,
    receive_parcel,
    receive_request,
)
from inkgrove.federation.sharing.outbox import DELIVERIES_PATH, UNANSWERED, Outbox, prepare_delivery, read_receipts
from inkgrove.federation.sharing.relations import (
    RELATION_FORMAT,
    RELATION_MEDIA_TYPE,
    RELATIONS_PATH,
    is_final_refusal,
    make_unknown_identity,
    move_and_tell,
    receive_move,
    send_move,
    send_waiting_moves,
)
from inkgrove.federation.sharing.relocation import OFFERED_AGAIN_SECONDS, Relocator, tell_of_new_document
from inkgrove.federation.sharing.request_box import (
    accept_sender,
    accept_waiting,
    discard_waiting,
    drop_sender,
    release_related,
    release_waiting,
)

__all__ = [
    "COPIES_PATH",
    "DELIVERIES_PATH",
    "NOBODY",
    "OFFERED_AGAIN_SECONDS",
    "PART_BYTES",
    "RELATIONS_PATH",
    "RELATION_FORMAT",
    "RELATION_MEDIA_TYPE",
    "STRANGER_ENTRIES",
    "UNANSWERED",
    "BlobFetcher",
    "DeliveryReceipt",
    "Outbox",
    "RefetchContext",
    "Relocator",
    "accept_sender",
    "accept_waiting",
    "answer_refetch",
    "discard_waiting",
    "drop_sender",
    "is_final_refusal",
    "make_unknown_identity",
    "move_and_tell",
    "prepare_delivery",
    "read_bundle",
    "read_receipts",
    "receive_delivery",
    "receive_move",
    "receive_parcel",
    "receive_request",
    "refetch_copy",
    "release_related",
    "release_waiting",
    "restore_copy",
    "send_move",
    "send_waiting_moves",
    "tell_of_new_document",
    "write_bundle",
]

"""The inbox: what other nodes deliver, verified as a whole before anything is stored (docs/protocol.md section 8).

Each parcel is one transaction: entries, who may see them, and what is to be sent on. A parcel that was received before
changes nothing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from inkgrove.core.entry import decode_entry, hash_entry
from inkgrove.core.errors import Forked, InkgroveError, InvalidSince, LacksCreate, PayloadSizeMismatch, StoreUnavailable
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.federation.admission import Budget, refusals_of
from inkgrove.federation.errors import FederationError
from inkgrove.federation.receiving import NOBODY, ParcelRefused, Receipt, receive_opened
from inkgrove.federation.signatures import MAX_LIFETIME_SECONDS, MAX_SKEW_SECONDS
from inkgrove.messages.delivery import Delivery, Parcel, decode_delivery, encode_receipts, open_parcel, read_end
from inkgrove.node.identity import find_owner
from inkgrove.node.publishing import DeliveryDecision, SenderRelation, find_held_instance, read_sender_relation
from inkgrove.node.runtime import Node
from inkgrove.store.db.connection import lock_name
from inkgrove.store.federation.inbox import note_end, remove_requests
from inkgrove.store.federation.peers import RemoteIdentity, put_remote_identity, use_nonce
from inkgrove.store.logs.entries import find_entry, find_log, keep_held_hashes
from inkgrove.store.logs.ingestion import ingest_batch
from inkgrove.store.logs.preparation import by_log, prepare_items
from inkgrove.store.node.identities import identities_of, lives_here

_SECOND: Final = 1_000_000
_KEY_SECONDS: Final = 3600
"""How long it is remembered that a sender was looked up for a key which is not theirs."""
_LOOK_AGAIN_SECONDS: Final = 10
"""How long a sender is not looked up for another such key."""
_ENTRY_COST: Final = 1024
"""What an entry counts in the sender's quota beside its bytes: to verify it takes longer than to receive it."""
_EARLY_END_SECONDS: Final = MAX_LIFETIME_SECONDS + 2 * MAX_SKEW_SECONDS
"""No request that was signed before the end was told is valid for longer."""


def take_in(
    node: Node, sender: RemoteIdentity, body: bytes, charge: Callable[[int], None] = lambda _cost: None
) -> bytes:
    """Take in what somebody's node sent in a signed request; the answer, which tells what became of it.

    `charge` is called with what that will cost, counted like bytes, and raises if it is too much.
    """
    delivery = decode_delivery(body)
    if delivery.via != sender.id:
        raise FederationError(
            "federation.sender-unproved", "the delivery is in the name of another identity than the one that signs it"
        )
    charge(_ENTRY_COST * sum(len(parcel.entries) for parcel in delivery.parcels))
    receipts = receive(node, delivery)
    for receipt in receipts:
        if receipt.would_need is not None:
            _look_again(node, sender, receipt.would_need)
    return encode_receipts(
        [
            {
                "instance": bytes(receipt.instance),
                "recipient": bytes(receipt.recipient),
                "fate": receipt.fate.value,
                **({"code": receipt.code} if receipt.code is not None else {}),
            }
            for receipt in receipts
        ]
    )


def _look_again(node: Node, sender: RemoteIdentity, author: PublicKey) -> None:
    """Let the sender be looked up anew and send again, once for a key that is nobody's: it may be a new one of theirs.

    What was accepted of the delivery is recognised then. Whoever makes up keys is not asked more often for it.
    """
    now = node.clock()

    def work(connection: Connection) -> bool:
        if identities_of(connection, [author]):
            return False
        key = f"key {author.hex()}"
        if not use_nonce(connection, sender.fqdn, key, now=now, expires=now + _KEY_SECONDS * _SECOND):
            return False  # they have been looked up since
        wait = _LOOK_AGAIN_SECONDS
        if not use_nonce(connection, sender.fqdn, "keys", now=now, expires=now + wait * _SECOND):
            raise FederationError(
                "federation.sender-unreachable",
                "the sender was looked up just now: send it again later",
                retry_after=wait,
            )
        put_remote_identity(connection, replace(sender, expires=now))
        return True

    if node.database.write(work):
        raise FederationError(
            "federation.sender-unreachable",
            "the author's key is not known to be the sender's: send it again",
            retry_after=1,
        )


def receive(node: Node, delivery: Delivery, *, is_wanted: bool = False) -> list[Receipt]:
    """Take in a delivery that was signed by the node of the identity that sends it.

    `is_wanted`: its recipients have accepted what is in it, whoever sent it.
    """
    budget = Budget()
    return [
        receipt
        for parcel in delivery.parcels
        for receipt in _receive_asked(node, delivery.via, parcel, budget, is_wanted=is_wanted)
    ]


def _receive_asked(node: Node, via: IdentityId, parcel: Parcel, budget: Budget, *, is_wanted: bool) -> list[Receipt]:
    """Take in a parcel for those of its recipients for whom it is worth verifying; it is not looked into for others."""
    if is_wanted:
        return receive_parcel(node, via, parcel, is_wanted=True)
    try:
        refused = node.database.read(lambda connection: refusals_of(connection, via, parcel, budget))
    except StoreUnavailable:
        raise
    except InkgroveError as error:
        refused = dict.fromkeys(parcel.recipients, error)
    receipts = [
        Receipt(parcel.instance, to, DeliveryDecision.REFUSED, refused[to].code)
        for to in parcel.recipients
        if to in refused
    ]
    rest = tuple(to for to in parcel.recipients if to not in refused)
    return [*receipts, *receive_parcel(node, via, replace(parcel, recipients=rest))] if rest else receipts


def receive_by_hand(node: Node, parcel: Parcel) -> list[Receipt]:
    """Take in a parcel that was not sent but handed over; its recipients want it. One receipt if there are none."""
    return receive_parcel(node, None, parcel)


def receive_parcel(node: Node, via: IdentityId | None, parcel: Parcel, *, is_wanted: bool = False) -> list[Receipt]:
    """Take in one parcel for all its recipients; without a sender it was handed over."""
    try:
        hashes = [hash_entry(decode_entry(entry)) for entry, _ in parcel.entries]
        create, held = node.database.read(lambda c: (find_entry(c, parcel.instance), keep_held_hashes(c, hashes)))
        opened = open_parcel(parcel, create.entry if create is not None else None, held)
        return node.database.write(
            lambda connection: receive_opened(connection, node, via, opened, is_wanted=is_wanted)
        )
    except ParcelRefused as refused:
        error = refused.error
    except StoreUnavailable:
        raise  # says nothing about the parcel: its sender is to try again
    except InkgroveError as err:
        error = err
    if isinstance(error, LacksCreate) and via is not None:
        refusal = _heed_end(node, via, parcel, error)
        if refusal is None:
            return receive_parcel(node, via, parcel, is_wanted=is_wanted)
        error = refusal
    if isinstance(error, Forked | InvalidSince | PayloadSizeMismatch):
        _keep_evidence(node, via, parcel)
    return [Receipt(parcel.instance, to, DeliveryDecision.REFUSED, error.code) for to in parcel.recipients or (NOBODY,)]


def _keep_evidence(node: Node, via: IdentityId | None, parcel: Parcel) -> None:
    """What proves that an author cheats is kept; payloads only where they are the proof, or a delete.

    Only about logs of which something is held, from those whom somebody here knows: else strangers could fill the disk.
    """
    prepared, _ = prepare_items(parcel.entries)

    def work(connection: Connection) -> None:
        for author, log_id in by_log(prepared):
            if find_log(connection, author, log_id) is None or not _is_for_us(connection, via, author, parcel):
                return
        held = find_held_instance(connection, parcel.instance)
        # Nobody undeletes by forking; one delete of an instance is enough for that.
        can_end = held is not None and not held.is_deleted
        kept = [
            item if item.is_lie or (can_end and item.is_delete) else item._replace(payload=None, content=None)
            for item in prepared
        ]
        ingest_batch(connection, by_log(kept), must_be_next=False)

    node.database.write(work)


def _is_for_us(connection: Connection, via: IdentityId | None, author: PublicKey, parcel: Parcel) -> bool:
    """Whether a parcel was handed over, or is for somebody of this node who knows whoever sends it."""
    owner = find_owner(connection, author)
    return via is None or any(
        read_sender_relation(connection, recipient, via, owner, parcel.instance) is SenderRelation.KNOWN
        for recipient in parcel.recipients
        if lives_here(connection, recipient)
    )


def _heed_end(node: Node, via: IdentityId, parcel: Parcel, lacks: LacksCreate) -> InkgroveError | None:
    """What an end without a create means for what waits or is still to come; why it is refused, if it is.

    None: the create has come meanwhile, and so the end can be taken in.
    """
    try:
        end = read_end(parcel)
    except InkgroveError as error:
        return error
    if end is None:
        return lacks  # what waits stays until all of it comes again: this may be a request from before that
    now = node.clock()

    def work(connection: Connection) -> bool:
        lock_name(connection, parcel.instance)
        if find_held_instance(connection, parcel.instance) is not None:
            return False
        for recipient in parcel.recipients:
            remove_requests(connection, recipient, via, parcel.instance)
        # The create may still be under way, in a request that its sender has given up.
        note_end(connection, *end, now + _EARLY_END_SECONDS * _SECOND, now)
        return True

    return lacks if node.database.write(work) else None

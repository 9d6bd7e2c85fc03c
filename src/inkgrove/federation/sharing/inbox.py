"""The inbox: what other nodes deliver, verified as a whole before anything is stored (docs/protocol.md section 8).

Whom a parcel is for is checked before anything in it is verified, since signatures are costly to check and keys are
cheap to make. Then each parcel is one transaction: it is accepted, refused or put into the request box for each
recipient; its entries are stored, with who may see them and what is to be sent on. A parcel that was received before
changes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from inkgrove.core import Hash, IdentityId, PublicKey, decode_entry, hash_entry
from inkgrove.core.errors import (
    Forked,
    InkgroveError,
    InvalidSince,
    KeyRevoked,
    LacksCreate,
    OtherBranch,
    ParcelError,
    PayloadError,
    PayloadSizeMismatch,
    StoreUnavailable,
)
from inkgrove.federation.errors import FederationError
from inkgrove.federation.peers.signed_requests import MAX_LIFETIME_SECONDS, MAX_SKEW_SECONDS
from inkgrove.federation.sharing.key_proofs import take_key_proofs
from inkgrove.federation.sharing.recipients import require_recipients
from inkgrove.messages import (
    Access,
    Create,
    Delivery,
    OpenedParcel,
    Parcel,
    SchemaId,
    decode_delivery,
    encode_delivery,
    encode_receipts,
    open_parcel,
    read_end,
)
from inkgrove.node.blobs import note_references
from inkgrove.node.errors import DeliveryError, NotAddressed, RecipientLeaving
from inkgrove.node.identity import check_author, find_owner, require_receiving
from inkgrove.node.publishing import (
    ArrivingParcel,
    DeliveryDecision,
    HeldInstance,
    SenderRelation,
    decide_acceptance,
    erase_ended,
    find_box_refusal,
    find_held_instance,
    may_pass_on,
    queue_forwards,
    read_sender_relation,
)
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection, lock_name
from inkgrove.store.federation import (
    RemoteIdentity,
    add_request,
    find_request,
    has_ended,
    list_early_enders,
    lock_box,
    note_end,
    put_remote_identity,
    remove_ended_requests,
    remove_requests,
    use_nonce,
    want_schemas,
)
from inkgrove.store.logs import (
    IngestStatus,
    by_log,
    find_entry,
    find_log,
    ingest_batch,
    is_erased,
    keep_held_hashes,
    make_other_branch,
    prepare_items,
    verified_among,
)
from inkgrove.store.node import (
    add_shares,
    find_identity,
    identities_of,
    is_follower,
    lives_here,
    living_among,
    was_sent,
)

# A verified parcel, in one transaction

NOBODY: Final = IdentityId(b"")
"""The recipient in the receipt of a parcel that is stored for no identity."""


@dataclass(frozen=True, slots=True)
class DeliveryReceipt:
    """The decision on a parcel for one recipient."""

    instance: Hash
    recipient: IdentityId
    decision: DeliveryDecision
    code: str | None = None
    unlisted_key: PublicKey | None = None
    """The author, if it was refused only because this key is not known to be the sender's."""
    doubted_key: PublicKey | None = None
    """The author, a key of the sender's, if a newer document of theirs may let another branch of the log count."""


class ParcelRefused(Exception):
    """The store does not take an entry: nothing of the parcel is to stay."""

    def __init__(self, error: InkgroveError) -> None:
        self.error = error


def receive_opened(
    connection: Connection, node: Node, via: IdentityId | None, opened: OpenedParcel, *, is_wanted: bool = False
) -> list[DeliveryReceipt]:
    """Decide on a parcel for each recipient and store it for those who may have it; returns the receipts.

    `is_wanted`: its recipients have accepted this very parcel, whoever sent it. Raises `ParcelRefused` if nothing of
    it may stay.
    """
    parcel = opened.parcel
    held = find_held_instance(connection, parcel.instance)
    if held is None and is_erased(connection, parcel.instance):
        return _receive_erased(opened)
    if held is None and not opened.has_create:
        raise ParcelRefused(LacksCreate("the create of the instance is not held here: send all of it"))
    if held is None:
        first = opened.messages[0].seq_num
        lock_name(connection, parcel.instance)  # a delete that comes now finds it here, or is found here
        if _has_ended(connection, opened, first):
            raise ParcelRefused(
                ParcelError("parcel.ended-before", "the end of the instance was told before its create came")
            )
    for item in opened.messages:
        check_author(connection, opened.author, opened.log_id, item.seq_num)
    owner = find_owner(connection, opened.author)
    if held is not None and (refused := _refuse_end(connection, via, opened, held)):
        return refused
    arrival = ArrivingParcel(_newest_access(opened, held), via == owner, opened.is_deletion)
    accepted, receipts = [], []
    for recipient in parcel.recipients:
        hosted = find_identity(connection, recipient)
        # An identity that has moved away may still accept, by hand or in the box, what came before.
        if hosted is None or not (hosted.lives_here or is_wanted or via is None):
            code = "federation.unknown-recipient"
            receipts.append(DeliveryReceipt(parcel.instance, recipient, DeliveryDecision.REFUSED, code))
            continue
        refusal: InkgroveError | None
        relation = read_sender_relation(connection, recipient, via, owner, parcel.instance)
        if is_wanted and relation is SenderRelation.STRANGER:
            relation = SenderRelation.KNOWN
        follows = is_follower(connection, recipient, owner)
        decision, refusal = decide_acceptance(arrival, recipient, relation, is_follower=follows)
        is_missed = False
        if refusal is not None and via is not None:  # as if the author were a key of the sender
            own, follows = replace(arrival, is_from_owner=True), is_follower(connection, recipient, via)
            is_missed = decide_acceptance(own, recipient, relation, is_follower=follows)[1] is None
        if isinstance(refusal, NotAddressed) and not opened.has_create and opened.access is None:
            # The access that is held here, for others, may be older than one that waits in the box.
            refusal = LacksCreate("whom the instance is for is not known here: send all of it")
        if decision is DeliveryDecision.HELD and via is not None:
            decision, refusal = _keep_request(connection, node, recipient, via, opened)
        if (
            decision is DeliveryDecision.ACCEPTED
            and via is not None
            and not _can_add(connection, recipient, via, opened)
        ):
            decision, refusal = (
                DeliveryDecision.REFUSED,
                LacksCreate("the recipient has nothing of the instance yet: send all of it"),
            )
        if decision is DeliveryDecision.ACCEPTED:
            accepted.append(recipient)
        unlisted = opened.author if is_missed else None
        receipts.append(_receipt(parcel.instance, recipient, decision, refusal, unlisted))
    if not parcel.recipients:
        decision, refusal = decide_acceptance(arrival, NOBODY, SenderRelation.KNOWN, is_follower=False)
        receipts.append(_receipt(parcel.instance, NOBODY, decision, refusal))
    if any(receipt.decision is DeliveryDecision.ACCEPTED for receipt in receipts):
        if via is not None:
            for recipient in accepted:
                _store_waiting(connection, node, recipient, via, opened, arrival.access)
        store_parcel(connection, node, opened, accepted, arrival.access)
        if via is not None:
            want_schemas(connection, _named_schemas(opened), node.clock(), via)
    return receipts


def _receipt(
    instance: Hash,
    recipient: IdentityId,
    decision: DeliveryDecision,
    refusal: InkgroveError | None,
    unlisted_key: PublicKey | None = None,
) -> DeliveryReceipt:
    code = refusal.code if refusal is not None else None
    return DeliveryReceipt(instance, recipient, decision, code, unlisted_key)


def _has_ended(connection: Connection, opened: OpenedParcel, first: int) -> bool:
    """Whether the end of an instance was told before it came: in its own log, or by another key of its owner."""
    instance, owner = opened.parcel.instance, find_owner(connection, opened.author)
    return has_ended(connection, opened.author, opened.log_id, instance, first) or any(
        find_owner(connection, key) == owner for key in list_early_enders(connection, instance)
    )


def _refuse_end(
    connection: Connection, via: IdentityId | None, opened: OpenedParcel, held: HeldInstance
) -> list[DeliveryReceipt]:
    """Refuse a delete in another log by a key that is not known to be the owner's; empty if there is none.

    If the owner sends it, they are looked up anew. Raises `ParcelRefused` if it names another schema.
    """
    if not opened.is_of_other_log:
        return []
    if any(item.message.schema is None or item.message.schema.schema_id != held.schema for item in opened.messages):
        raise ParcelRefused(ParcelError("parcel.bad", "the instance is of another schema than its end says"))
    owner = find_owner(connection, held.author)
    if find_owner(connection, opened.author) == owner:
        return []
    refusal = DeliveryError(_FOREIGN_END, "a key ended it that is not known to be its owner's")
    unlisted_key = opened.author if via == owner else None
    return [
        DeliveryReceipt(opened.parcel.instance, to, DeliveryDecision.REFUSED, refusal.code, unlisted_key)
        for to in opened.parcel.recipients or (NOBODY,)
    ]


def _receive_erased(opened: OpenedParcel) -> list[DeliveryReceipt]:
    """Take the end of an instance that was erased here, of which nothing is left; raises `ParcelRefused` for more."""
    if not opened.is_deletion:
        raise ParcelRefused(PayloadError("payload.erased", "the content of this instance was erased here"))
    instance = opened.parcel.instance
    return [DeliveryReceipt(instance, to, DeliveryDecision.ACCEPTED) for to in opened.parcel.recipients or (NOBODY,)]


def _can_add(connection: Connection, recipient: IdentityId, via: IdentityId, opened: OpenedParcel) -> bool:
    """Whether the recipient has the instance that a parcel without the create adds to."""
    if opened.has_create or opened.is_deletion or was_sent(connection, opened.parcel.instance, recipient):
        return True
    return find_request(connection, recipient, via, opened.parcel.instance) is not None


def _named_schemas(opened: OpenedParcel) -> dict[SchemaId, int]:
    """The schemas that messages name, each with the newest version."""
    named: dict[SchemaId, int] = {}
    for item in opened.messages:
        if (schema := item.message.schema) is not None:
            named[schema.schema_id] = max(schema.version, named.get(schema.schema_id, 0))
    return named


def _newest_access(opened: OpenedParcel, held: HeldInstance | None) -> Access | None:
    """The newest access of the instance; what arrives can be older than what is held."""
    given = opened.access
    if held is None or (given is not None and given[0] > held.access_seq):
        return given[1] if given is not None else None
    return held.access


def store_parcel(
    connection: Connection, node: Node, opened: OpenedParcel, recipients: Sequence[IdentityId], access: Access | None
) -> None:
    """Store a parcel for recipients who accept it, all of it or nothing; raises `ParcelRefused`."""
    instance = opened.parcel.instance
    payloads = (payload for _, payload in opened.parcel.entries)
    prepared, rejected = prepare_items(zip(opened.signed, payloads, strict=True))
    for refused in rejected:
        raise ParcelRefused(refused.error)
    is_news = False
    for receipt in ingest_batch(connection, by_log(prepared), must_be_next=False).values():
        if receipt.error is not None:
            raise ParcelRefused(receipt.error)
        is_news |= receipt.status in (IngestStatus.STORED, IngestStatus.COMPLETED)
    log = find_log(connection, opened.author, opened.log_id)
    assert log is not None
    verified = verified_among(connection, [item.hash for item in opened.messages])
    for item in opened.messages:  # what is held already, as evidence, is refused like the first time
        if (refusal := log.standing.refusal(item.seq_num)) is not None:
            raise ParcelRefused(refusal)
        if item.hash not in verified:
            raise ParcelRefused(make_other_branch(item.seq_num))
    if opened.is_deletion:
        remove_ended_requests(connection, [instance])
    else:  # that it has ended lets nobody see it who did not
        add_shares(connection, [(instance, recipient) for recipient in recipients], node.clock())
    if is_news:
        for item in opened.messages:
            note_references(node, connection, instance, item.message, opened.author)
        # Only what is news is sent on, so that nothing goes round in circles.
        if opened.is_deletion or may_pass_on(access):
            held = find_held_instance(connection, instance) if opened.is_of_other_log else None
            last_seq = opened.last_seq_num if held is None else held.last_seq
            queue_forwards(connection, instance, last_seq, node.clock())


def _keep_request(
    connection: Connection, node: Node, recipient: IdentityId, via: IdentityId, opened: OpenedParcel
) -> tuple[DeliveryDecision, InkgroveError | None]:
    """Put a stranger's parcel into the request box, in place of an older one of the same instance."""
    parcel = opened.parcel
    lock_box(connection, recipient)  # the same may come twice at once
    if opened.is_deletion:  # of what has ended nothing is left
        remove_requests(connection, recipient, via, parcel.instance)
    if not opened.has_create:
        # A request stands by itself, whatever is held here for others.
        return DeliveryDecision.REFUSED, LacksCreate("a request needs the create of its instance: send all of it")
    waiting = find_request(connection, recipient, via, parcel.instance)
    if waiting is not None and _last_seq_num(waiting) >= opened.last_seq_num:
        return DeliveryDecision.HELD, None  # the same again, or a request that took longer than the one after it
    remove_requests(connection, recipient, via, parcel.instance)
    alone = encode_delivery(Delivery(via, [Parcel(parcel.instance, (recipient,), parcel.entries)]))
    if (full := find_box_refusal(connection, recipient, via, len(alone), node.clock())) is not None:
        return DeliveryDecision.REFUSED, full
    (schema,) = {str(item.message.schema.schema_id) for item in opened.messages if isinstance(item.message, Create)}
    add_request(connection, recipient, via, parcel.instance, alone, schema, node.clock())
    return DeliveryDecision.HELD, None


def _store_waiting(
    connection: Connection,
    node: Node,
    recipient: IdentityId,
    via: IdentityId,
    opened: OpenedParcel,
    access: Access | None,
) -> None:
    """Store what waits of the instance: its sender is no stranger any more and will not send it again."""
    if find_request(connection, recipient, via, opened.parcel.instance) is None:
        return
    lock_box(connection, recipient)  # a newer one may be about to take its place
    waiting = find_request(connection, recipient, via, opened.parcel.instance)
    if waiting is None:
        return
    if not opened.is_deletion:
        (parcel,) = decode_delivery(waiting).parcels
        store_parcel(connection, node, open_parcel(parcel, None), [recipient], access)
    remove_requests(connection, recipient, via, opened.parcel.instance)


def _last_seq_num(waiting: bytes) -> int:
    """The sequence number of the newest message in a parcel that waits, which was checked when it came."""
    (parcel,) = decode_delivery(waiting).parcels
    return max(decode_entry(entry).seq_num for entry, payload in parcel.entries if payload is not None)


# Before verification: a wrong author only makes a parcel look like that of somebody known, and its signature fails then

STRANGER_ENTRIES: Final = 2_000
"""How many entries of a delivery are verified for recipients who do not know the sender."""
_AUTHOR: Final = slice(1, 33)
"""Where the author stands in an entry."""


@dataclass(slots=True)
class StrangerBudget:
    """How many more entries of a delivery are verified for strangers."""

    entries: int = STRANGER_ENTRIES


def refusals_of(
    connection: Connection, via: IdentityId, parcel: Parcel, budget: StrangerBudget
) -> Mapping[IdentityId, InkgroveError]:
    """Find the recipients for whom a parcel is refused unverified, each with why; for the others it is verified.

    Raises `parcel.bad` if its entries are of several authors.
    """
    living = living_among(connection, set(parcel.recipients))
    refused: dict[IdentityId, InkgroveError] = {
        to: FederationError("federation.unknown-recipient", f"{to} does not live here")
        for to in parcel.recipients
        if to not in living
    }
    if not living:
        return refused
    author = decode_entry(parcel.entries[0][0]).author
    if any(encoded[_AUTHOR] != author for encoded, _ in parcel.entries):
        raise ParcelError("parcel.bad", "the entries of a parcel are of one log")
    owner = find_owner(connection, author)
    relations = {to: read_sender_relation(connection, to, via, owner, parcel.instance) for to in living}
    refused |= {
        to: DeliveryError("federation.blocked", "the recipient does not take anything from there")
        for to, relation in relations.items()
        if relation is SenderRelation.BLOCKED
    }
    if SenderRelation.STRANGER in relations.values() and SenderRelation.KNOWN not in relations.values():
        budget.entries -= len(parcel.entries)
        if budget.entries < 0:
            text = f"of strangers at most {STRANGER_ENTRIES:,} entries are taken at once: send less of it"
            refused |= {
                to: FederationError("federation.stranger-sends-too-much", text) for to in relations if to not in refused
            }
    return refused


# Requests and parcels

_SECOND: Final = 1_000_000
_KEY_SECONDS: Final = 3600
"""How long it is remembered that a sender was looked up for a key which is not theirs."""
_ENDS_SECONDS: Final = 60
"""How long a sender is not looked up again for a branch of their log that does not count."""
_LOOK_AGAIN_SECONDS: Final = 10
"""How long a sender is not looked up for another such key."""
_ENTRY_COST: Final = 1024
"""What an entry counts in the sender's quota beside its bytes: to verify it takes longer than to receive it."""
_FOREIGN_END: Final = "federation.foreign-end"
_EARLY_END_SECONDS: Final = MAX_LIFETIME_SECONDS + 2 * MAX_SKEW_SECONDS
"""No request that was signed before the delete came is valid for longer."""


def receive_request(
    node: Node, sender: RemoteIdentity, body: bytes, charge: Callable[[int], None] = lambda _cost: None
) -> bytes:
    """Take in the delivery in a signed request; returns the answer, which holds the receipts.

    `charge` is called with what that will cost, counted like bytes, and raises if it is too much. Raises `parcel.bad`,
    `federation.sender-unproved`, or `identity.moved`; `federation.sender-unreachable` and `identity.recipient-leaving`
    ask the sender to send it again.
    """
    delivery = decode_delivery(body)
    if delivery.via != sender.id:
        raise FederationError(
            "federation.sender-unproved", "the delivery is in the name of another identity than the one that signs it"
        )
    require_recipients(node, {to for parcel in delivery.parcels for to in parcel.recipients})
    charge(_ENTRY_COST * (sum(len(parcel.entries) for parcel in delivery.parcels) + len(delivery.proofs)))
    receipts = receive_delivery(node, delivery)
    if _learn_keys(node, delivery, receipts):
        receipts = receive_delivery(node, delivery)  # what was accepted is recognised
    taken = {receipt.instance for receipt in receipts if receipt.decision is DeliveryDecision.ACCEPTED}
    if delivery.erases:
        erase_ended(node, sender.id, taken)
    erased = node.database.read(lambda connection: {name for name in taken if is_erased(connection, name)})
    for receipt in receipts:
        if receipt.unlisted_key is not None:
            _renew_sender(node, sender, receipt.unlisted_key)
        if receipt.doubted_key is not None:
            _renew_sender(node, sender, receipt.doubted_key, is_theirs=True)
    return encode_receipts(
        [
            {
                "instance": bytes(receipt.instance),
                "recipient": bytes(receipt.recipient),
                "fate": receipt.decision.value,
                **({"code": receipt.code} if receipt.code is not None else {}),
                **({"erased": True} if receipt.instance in erased else {}),
            }
            for receipt in receipts
        ]
    )


def _learn_keys(node: Node, delivery: Delivery, receipts: Sequence[DeliveryReceipt]) -> bool:
    """Take what the delivery brings to prove that keys which end instances are their owners'; whether it did."""
    foreign = {receipt.instance for receipt in receipts if receipt.code == _FOREIGN_END} if delivery.proofs else set()

    def work(connection: Connection) -> bool:
        is_any = False
        for parcel in delivery.parcels:
            create = find_entry(connection, parcel.instance) if parcel.instance in foreign else None
            if create is not None:
                keys = {create.entry.author, decode_entry(parcel.entries[0][0]).author}
                is_any |= take_key_proofs(connection, delivery.proofs, keys)
        return is_any

    return bool(foreign) and node.database.write(work)


def _renew_sender(node: Node, sender: RemoteIdentity, author: PublicKey, *, is_theirs: bool = False) -> None:
    """Have the sender looked up anew and raise an error that makes them send again, once for each key and a while.

    The key may be a new one of theirs; if it is known to be theirs, they may have pinned another branch of its log.
    What was accepted of the delivery is recognised then. A sender who makes up keys is not looked up more often for it.
    """
    now = node.clock()

    def work(connection: Connection) -> bool:
        if not is_theirs and identities_of(connection, [author]):
            return False
        key, seconds = (f"ends {author.hex()}", _ENDS_SECONDS) if is_theirs else (f"key {author.hex()}", _KEY_SECONDS)
        if not use_nonce(connection, sender.fqdn, key, now=now, expires=now + seconds * _SECOND):
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
            "which of the author's entries are the sender's is looked up anew: send it again",
            retry_after=1,
        )


def receive_delivery(node: Node, delivery: Delivery, *, is_wanted: bool = False) -> list[DeliveryReceipt]:
    """Take in a delivery that was signed by the node of the identity that sends it; returns the receipts.

    `is_wanted`: its recipients have accepted what is in it, whoever sent it.
    """
    budget = StrangerBudget()
    return [
        receipt
        for parcel in delivery.parcels
        for receipt in _receive_asked(node, delivery.via, parcel, budget, is_wanted=is_wanted)
    ]


def _receive_asked(
    node: Node, via: IdentityId, parcel: Parcel, budget: StrangerBudget, *, is_wanted: bool
) -> list[DeliveryReceipt]:
    """Take in a parcel for those recipients for whom it is not refused before verification."""
    if is_wanted:
        return receive_parcel(node, via, parcel, is_wanted=True)
    try:
        refused = node.database.read(lambda connection: refusals_of(connection, via, parcel, budget))
    except StoreUnavailable:
        raise
    except InkgroveError as error:
        refused = dict.fromkeys(parcel.recipients, error)
    receipts = [
        DeliveryReceipt(parcel.instance, to, DeliveryDecision.REFUSED, refused[to].code)
        for to in parcel.recipients
        if to in refused
    ]
    rest = tuple(to for to in parcel.recipients if to not in refused)
    return [*receipts, *receive_parcel(node, via, replace(parcel, recipients=rest))] if rest else receipts


def receive_parcel(
    node: Node, via: IdentityId | None, parcel: Parcel, *, is_wanted: bool = False
) -> list[DeliveryReceipt]:
    """Take in one parcel for all its recipients; returns a receipt for each, or one if there are none.

    Without a sender (`via`) it was handed over, in a bundle, and its recipients want it.
    """
    try:
        hashes = [hash_entry(decode_entry(entry)) for entry, _ in parcel.entries]
        create, held = node.database.read(lambda c: (find_entry(c, parcel.instance), keep_held_hashes(c, hashes)))
        opened = open_parcel(parcel, create.entry if create is not None else None, held)

        def receive(connection: Connection) -> list[DeliveryReceipt]:
            require_receiving(connection, parcel.recipients)
            return receive_opened(connection, node, via, opened, is_wanted=is_wanted)

        return node.database.write(receive)
    except ParcelRefused as refused:
        error = refused.error
    except (StoreUnavailable, RecipientLeaving):
        raise  # says nothing about the parcel: its sender is to try again
    except InkgroveError as err:
        error = err
    if isinstance(error, LacksCreate) and via is not None:
        refusal = _note_early_end(node, via, parcel, error)
        if refusal is None:
            return receive_parcel(node, via, parcel, is_wanted=is_wanted)
        error = refusal
    if isinstance(error, Forked | InvalidSince | PayloadSizeMismatch):
        _keep_evidence(node, via, parcel)
    doubted = _find_doubted(node, via, parcel) if isinstance(error, Forked | OtherBranch | KeyRevoked) else None
    return [
        DeliveryReceipt(parcel.instance, to, DeliveryDecision.REFUSED, error.code, doubted_key=doubted)
        for to in parcel.recipients or (NOBODY,)
    ]


def _find_doubted(node: Node, via: IdentityId | None, parcel: Parcel) -> PublicKey | None:
    """The author of a parcel whose branch does not count, if it is a key of the sender's: they know best."""
    author = decode_entry(parcel.entries[0][0]).author
    owner = node.database.read(lambda connection: find_owner(connection, author))
    return author if owner == via else None


def _keep_evidence(node: Node, via: IdentityId | None, parcel: Parcel) -> None:
    """Keep entries that prove that an author cheats; payloads only where they are the proof, or a delete.

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
    """Whether a parcel was handed over, or is for somebody here who knows the sender."""
    owner = find_owner(connection, author)
    return via is None or any(
        read_sender_relation(connection, recipient, via, owner, parcel.instance) is SenderRelation.KNOWN
        for recipient in parcel.recipients
        if lives_here(connection, recipient)
    )


def _note_early_end(node: Node, via: IdentityId, parcel: Parcel, lacks: LacksCreate) -> InkgroveError | None:
    """Remember a delete whose create is not held, so that neither what waits nor what still comes is stored.

    Returns why the parcel is refused; None if the create has come meanwhile, and so the delete can be stored.
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

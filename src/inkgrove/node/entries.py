"""Publishing by entry: a client signs, the node verifies and appends (docs/protocol.md sections 2, 5 and 7)."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from inkgrove.core.errors import BadPattern, InkgroveError, TooManyPatterns
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.core.next_entry import NextEntry
from inkgrove.core.verify import AreSigned
from inkgrove.messages.identity import KeyOf
from inkgrove.messages.ids import SchemaId
from inkgrove.messages.message import decode_message
from inkgrove.messages.schema import SchemaMigration
from inkgrove.node.appending import Appender
from inkgrove.node.caller import Action, Caller
from inkgrove.node.errors import OutOfScope, PublishError, RequestError
from inkgrove.node.identity_log import IDENTITY_LOG
from inkgrove.node.judging import judge
from inkgrove.node.writer import Finish, Reply
from inkgrove.schema.schema import patterns_of
from inkgrove.schema.validation import check_patterns
from inkgrove.signature_process import are_signed
from inkgrove.store.logs import IngestItem, PreparedItem, RejectedItem, keep_held_hashes, prepare_items
from inkgrove.store.node import OwnKey, put_key

MAX_BATCH: Final = 1_000
MAX_CHANGES: Final = 1_024
"""How many fields all migrations of one request create, update and remove."""
WRITING: Final[tuple[Action, ...]] = ("create", "update", "delete")


@dataclass(frozen=True, slots=True)
class Offer:
    """Entries with payloads whose bytes, signatures and hashes have been checked."""

    prepared: Sequence[PreparedItem]
    rejected: Sequence[RejectedItem]


def check_offer(items: Collection[IngestItem], are_signed: AreSigned = are_signed) -> Offer:
    """The first half of the work: all computing, done before the writer is asked."""
    return Offer(*prepare_items(items, are_signed))


def _migrations(offer: Offer) -> list[SchemaMigration]:
    messages = (item.content.message for item in offer.prepared if item.content is not None)
    return [message for message in messages if isinstance(message, SchemaMigration)]


def require_few_changes(offer: Offer) -> None:
    """Refuse several migrations that change more fields than the writer, for whom all others wait, does in a moment."""
    migrations = _migrations(offer)
    if len(migrations) > 1 and sum(len(message.changes) for message in migrations) > MAX_CHANGES:
        raise RequestError(
            "request.invalid",
            f"the migrations of one request change at most {MAX_CHANGES:,} fields: send them in parts",
        )


def patterns_in(offer: Offer) -> list[str]:
    """The patterns that the migrations among the entries bring."""
    return [pattern for message in _migrations(offer) for pattern in patterns_of(message)]


def compile_patterns(offer: Offer) -> None:
    """Compile the patterns of an offer, so that the writer finds them compiled: together as many as a version may have.

    Raises `request.invalid` if several migrations have more than that. What is wrong with one of them its receipt says.
    """
    migrations = len(_migrations(offer))
    try:
        check_patterns(patterns_in(offer))
    except TooManyPatterns as error:
        if migrations > 1:
            raise RequestError(
                "request.invalid",
                f"the migrations of one request have together no more patterns than a version may have: send them in"
                f" parts ({error.message})",
            ) from error
    except BadPattern:
        return


@dataclass(slots=True)
class Receipt:
    """What became of one entry."""

    hash: Hash | None
    status: str = "stored"
    error: InkgroveError | None = None


@dataclass(frozen=True, slots=True)
class PublishEntries:
    """Entries that a client signed, each taken or refused on its own."""

    offer: Offer

    @property
    def entries(self) -> int:
        """How many there are."""
        return len(self.offer.prepared)

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Judge every entry in the order of its log; the answer has `receipts`, in the order given."""
        receipts = {item.number: Receipt(item.hash, "refused", item.error) for item in self.offer.rejected}
        prepared = sorted(self.offer.prepared, key=_order)
        known = keep_held_hashes(appender.connection, [item.signed.hash for item in prepared])
        appender.load_instances(_instances_named(prepared))
        for item in prepared:
            receipt = receipts[item.number] = Receipt(item.signed.hash)
            try:
                if item.signed.hash in known:
                    _require_own(appender, caller, item)
                    receipt.status = "known"
                else:
                    _take(appender, caller, item)
                    known.add(item.signed.hash)
            except InkgroveError as error:
                receipt.status, receipt.error = "refused", error
        ordered = [receipts[number] for number in sorted(receipts)]
        return lambda: Reply(200, {"receipts": ordered})


def _order(item: PreparedItem) -> tuple[bytes, int, int]:
    entry = item.signed.entry
    return entry.author, entry.log_id, entry.seq_num


def _instances_named(prepared: Sequence[PreparedItem]) -> set[Hash]:
    own = {item.signed.hash for item in prepared}
    named = (item.content.instance for item in prepared if item.content is not None)
    return {instance for instance in named if isinstance(instance, Hash) and instance not in own}


def _require_own(appender: Appender, caller: Caller, item: PreparedItem) -> None:
    identity = caller.identity
    assert identity is not None
    appender.require_key(item.signed.entry.author, identity)


def _take(appender: Appender, caller: Caller, item: PreparedItem) -> None:
    entry = item.signed.entry
    assert caller.identity is not None
    message = item.content.message if item.content is not None else None
    if isinstance(message, KeyOf) and entry.log_id == IDENTITY_LOG and entry.author not in appender.keys:
        # The document lists the key, and the key names the identity: now it is one of its own.
        appender.require_listed(entry.author, caller.identity)
    else:
        appender.require_key(entry.author, caller.identity)
    if item.payload_error is not None:
        raise item.payload_error
    if item.payload is None:
        raise PublishError("publish.payload-needed", "an entry is published with its payload")
    if message is None:
        message = decode_message(item.payload)  # raises: it is malformed
    end = appender.end_of(entry.author, entry.log_id)
    appender.require_next(end, entry)
    judge(appender, caller, end, message, item.signed.hash)
    appender.take(caller, end, item, message)
    if isinstance(message, KeyOf):
        put_key(appender.connection, entry.author, caller.identity)
        appender.keys[entry.author] = OwnKey(entry.author, caller.identity, None, False)


# Where to sign


@dataclass(frozen=True, slots=True)
class FindNext:
    """What the next entry of a log must carry: of a schema's instances, of one log, or of a new log."""

    author: PublicKey | None = None
    schema: str | None = None
    log_id: int | None = None
    entries: ClassVar[int] = 0

    def plan(self, appender: Appender, caller: Caller) -> Finish:
        """Find the place."""
        schema = appender.schema_named(self.schema) if self.schema is not None else None
        identity = caller.require_identity() if schema is None else _require_writer(caller, schema)
        own = [key for key in appender.keys.values() if key.identity == identity]
        author = self.author or next(key.author for key in own if key.is_first)
        appender.require_key(author, identity)
        if schema is not None:
            appender.require_schema(schema)
            end = appender.log_of_schema(author, schema) or appender.new_log(author)
        else:
            end = appender.end_of(author, self.log_id) if self.log_id is not None else appender.new_log(author)
        body = render_place(appender.next_place(end))
        return lambda: Reply(200, body)


def _require_writer(caller: Caller, schema: SchemaId) -> IdentityId:
    """Whoever may append something for this schema."""
    for action in WRITING[:-1]:
        with suppress(OutOfScope):
            return caller.require(schema, action)
    return caller.require(schema, WRITING[-1])


def render_place(place: NextEntry) -> dict[str, Any]:
    """The arguments for signing, as JSON."""
    return {
        "author": place.author.hex(),
        "log_id": place.log_id,
        "seq_num": place.seq_num,
        "lipmaa_link": place.lipmaa_link.hex() if place.lipmaa_link is not None else None,
        "backlink": place.backlink.hex() if place.backlink is not None else None,
        "hash": place.flavour.name.lower(),
    }

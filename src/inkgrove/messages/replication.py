"""The questions and answers of replication: heights of logs, then the entries that a node lacks;
and, for who comes from elsewhere, their relations.

docs/protocol.md section 8. All are CBOR, bounded in number and size. Only the form is checked here, with
`parcel.bad-replication` as the error; entries prove themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Literal

from inkgrove.core import KEY_BYTES, Hash, IdentityId, PublicKey, is_hash
from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import cbor
from inkgrove.messages.value_readers import EntryPair, read_entry_pair, read_host, write_entry_pairs

REPLICATION_FORMAT: Final = "inkgrove replication 1"
REPLICATION_MEDIA_TYPE: Final = "application/vnd.inkgrove.replication+cbor"
MAX_LOGS: Final = 2_000
"""How many logs one answer lists, and one question names."""
MAX_RANGES: Final = 4_000
"""How many ranges one question has, of all its logs together."""
MAX_REPLICATION_ENTRIES: Final = 5_000
MAX_REPLICATION_BYTES: Final = 6 * 1024 * 1024
"""How large an answer gets; a single entry with its payload may be larger than what is left."""
MAX_RELATIONS: Final = 1_000
"""How many relations one answer lists."""
MAX_SHARES: Final = 50_000
"""How many shares one answer lists."""
MAX_POSITION: Final = 200
_IDENTITY_BYTES: Final = 32
_MAX_ENTRY_BYTES: Final = 400
"""No entry is as long: three hashes, a key, a signature and a few numbers."""

SeqNumRange = tuple[int, int]
ReplicatedEntry = EntryPair


@dataclass(frozen=True, slots=True)
class AskHeights:
    """The question which logs have changed since a position; `after` is where the next page begins."""

    since: str | None = None
    after: int = 0


@dataclass(frozen=True, slots=True)
class LogHeight:
    """A log of which a node offers something."""

    author: PublicKey
    log_id: int
    height: int
    offered: int
    """About how many payloads are offered: for progress, and to choose between batches and an archive."""
    proof: tuple[bytes, bytes] | None = None
    """Two entries that prove that the log is forked."""


@dataclass(frozen=True, slots=True)
class Heights:
    """The response to `AskHeights`: a page of logs with their heights."""

    logs: Sequence[LogHeight]
    position: str
    """The `since` of the next time, once all pages have been dealt with."""
    next: int | None


@dataclass(frozen=True, slots=True)
class Want:
    """What a node lacks of a log."""

    author: PublicKey
    log_id: int
    ranges: Sequence[SeqNumRange]
    after: int = 0
    """Entries up to this sequence number have been sent already."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The response to a list of `Want`: entries with payloads, in the order of the request."""

    entries: Sequence[ReplicatedEntry]
    next: tuple[int, int] | None
    """The number of the want, and the sequence number in its log after which there is more."""


@dataclass(frozen=True, slots=True)
class ToldRelation:
    """A relation of who asks with somebody who lives on the node that is asked."""

    identity: IdentityId
    """Of the other one."""
    fqdn: str
    side: Literal["followers", "following"]
    """Whether the other one follows who asks, or is followed by them."""
    state: Literal["accepted", "requested"]
    changed: int


@dataclass(frozen=True, slots=True)
class ToldRelations:
    """A page of the relations of who asks with people of the node that is asked."""

    relations: Sequence[ToldRelation]
    next: str | None
    """The `since` of the question for the next page."""


@dataclass(frozen=True, slots=True)
class ToldShare:
    """An instance of who asks that was sent to somebody who lives on the node that is asked."""

    instance: Hash
    identity: IdentityId
    proof: bytes
    """`share_proof`: that the node holds what was sent."""


@dataclass(frozen=True, slots=True)
class ToldShares:
    """A page of what people of the node that is asked were sent of who asks."""

    shares: Sequence[ToldShare]
    next: str | None


def share_proof(payload: bytes, key: PublicKey) -> bytes:
    """Return what only somebody can tell to a key who has the payload of a create."""
    return blake2b(payload, digest_size=32, key=bytes(key)).digest()


# Questions


def encode_ask_heights(question: AskHeights) -> bytes:
    """Encode a request for heights."""
    return cbor.encode({"form": REPLICATION_FORMAT, "since": question.since, "after": question.after})


def decode_ask_heights(body: bytes) -> AskHeights:
    """Decode a request for heights."""
    value = _decode(body, {"form", "since", "after"})
    since = value["since"]
    if since is not None and (type(since) is not str or len(since) > MAX_POSITION):
        raise ParcelError("parcel.bad-replication", "a position is a text that this node gave out")
    return AskHeights(since, _integer(value["after"]))


def encode_wants(wants: Sequence[Want]) -> bytes:
    """Encode a request for entries."""
    asked: list[cbor.Value] = [
        [bytes(want.author), want.log_id, [list(item) for item in want.ranges], want.after] for want in wants
    ]
    return cbor.encode({"form": REPLICATION_FORMAT, "wants": asked})


def decode_wants(body: bytes) -> list[Want]:
    """Decode a request for entries."""
    items = _list(_decode(body, {"form", "wants"})["wants"], MAX_LOGS, "wants")
    wants = [_read_want(item) for item in items]
    if sum(len(want.ranges) for want in wants) > MAX_RANGES:
        raise ParcelError("parcel.bad-replication", f"a question has at most {MAX_RANGES} ranges")
    return wants


def _read_want(value: Any) -> Want:
    author, log_id, ranges, after = _tuple(value, 4)
    pairs = [_tuple(item, 2) for item in _list(ranges, MAX_RANGES, "ranges")]
    read = [(_integer(first), _integer(last)) for first, last in pairs]
    bounds = [bound for pair in read for bound in pair]
    if bounds != sorted(bounds) or any(first < 1 for first, _ in read):
        raise ParcelError(
            "parcel.bad-replication", "ranges come in their order, each with its first and its last place"
        )
    return Want(_author(author), _integer(log_id), read, _integer(after))


# Answers


def encode_heights(answer: Heights) -> bytes:
    """Encode the answer to a request for heights."""
    logs: list[cbor.Value] = [
        [bytes(log.author), log.log_id, log.height, log.offered, list(log.proof or ())] for log in answer.logs
    ]
    return cbor.encode({"form": REPLICATION_FORMAT, "logs": logs, "position": answer.position, "next": answer.next})


def decode_heights(body: bytes) -> Heights:
    """Decode the answer to a request for heights."""
    value = _decode(body, {"form", "logs", "position", "next"})
    logs = []
    # Beside each log there may be log 0 of its author.
    for item in _list(value["logs"], 2 * MAX_LOGS, "logs"):
        author, log_id, height, offered, proof = _tuple(item, 5)
        pair = [_bytes(part) for part in _list(proof, 2, "entries of a proof")]
        if len(pair) == 1:
            raise ParcelError("parcel.bad-replication", "a fork is proved by two entries")
        both = (pair[0], pair[1]) if pair else None
        logs.append(LogHeight(_author(author), _integer(log_id), _integer(height), _integer(offered), both))
    position, following = value["position"], value["next"]
    if type(position) is not str or len(position) > MAX_POSITION:
        raise ParcelError("parcel.bad-replication", "a position is a short text")
    return Heights(logs, position, _integer(following) if following is not None else None)


def encode_entries(answer: Entries) -> bytes:
    """Encode the answer to a request for entries; it is large, and so not decoded again to check it."""
    following = list(answer.next) if answer.next is not None else None
    return cbor.encode_unchecked(
        {"form": REPLICATION_FORMAT, "entries": write_entry_pairs(answer.entries), "next": following}
    )


def decode_entries(body: bytes) -> Entries:
    """Decode the answer to a request for entries."""
    value = _decode(body, {"form", "entries", "next"})
    # Beside each entry there may be those of its pool.
    items = _list(value["entries"], 100 * MAX_REPLICATION_ENTRIES, "entries")
    entries = [read_entry_pair(item, "parcel.bad-replication") for item in items]
    if value["next"] is None:
        return Entries(entries, None)
    number, seq_num = _tuple(value["next"], 2)
    return Entries(entries, (_integer(number), _integer(seq_num)))


# Reading


def _decode(body: bytes, keys: set[str]) -> dict[str, Any]:
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise ParcelError("parcel.bad-replication", f"the bytes are no CBOR of ours: {err.message}") from err
    if type(value) is not dict or value.keys() != keys or value["form"] != REPLICATION_FORMAT:
        raise ParcelError("parcel.bad-replication", f"the bytes are not of the form {REPLICATION_FORMAT!r}")
    return value


def encode_told_relations(answer: ToldRelations) -> bytes:
    """Encode the answer to a request for one's own relations."""
    told: list[cbor.Value] = [
        [bytes(item.identity), item.fqdn, item.side, item.state, item.changed] for item in answer.relations
    ]
    return cbor.encode({"form": REPLICATION_FORMAT, "relations": told, "next": answer.next})


def decode_told_relations(body: bytes) -> ToldRelations:
    """Decode the answer to a request for one's own relations."""
    value = _decode(body, {"form", "relations", "next"})
    following = value["next"]
    if following is not None and (type(following) is not str or len(following) > MAX_POSITION):
        raise ParcelError("parcel.bad-replication", "the place of the next page is a short text")
    return ToldRelations(
        [_read_relation(item) for item in _list(value["relations"], MAX_RELATIONS, "relations")], following
    )


def encode_told_shares(answer: ToldShares) -> bytes:
    """Encode the answer to a request for what was sent to people of a node."""
    told: list[cbor.Value] = [[bytes(item.instance), bytes(item.identity), item.proof] for item in answer.shares]
    return cbor.encode({"form": REPLICATION_FORMAT, "shares": told, "next": answer.next})


def decode_told_shares(body: bytes) -> ToldShares:
    """Decode the answer to a request for what was sent to people of a node."""
    value = _decode(body, {"form", "shares", "next"})
    following = value["next"]
    if following is not None and (type(following) is not str or len(following) > MAX_POSITION):
        raise ParcelError("parcel.bad-replication", "the place of the next page is a short text")
    return ToldShares([_read_share(item) for item in _list(value["shares"], MAX_SHARES, "shares")], following)


def _read_share(value: Any) -> ToldShare:
    instance, identity, proof = _tuple(value, 3)
    if type(identity) is not bytes or len(identity) != _IDENTITY_BYTES or type(proof) is not bytes or len(proof) != 32:
        raise ParcelError(
            "parcel.bad-replication", f"identities and proofs are byte strings of {_IDENTITY_BYTES} bytes"
        )
    if type(instance) is not bytes or not is_hash(instance):
        raise ParcelError("parcel.bad-replication", "an instance is named by a hash")
    return ToldShare(Hash(instance), IdentityId(identity), proof)


def _read_relation(value: Any) -> ToldRelation:
    identity, fqdn, side, state, changed = _tuple(value, 5)
    if type(identity) is not bytes or len(identity) != _IDENTITY_BYTES:
        raise ParcelError("parcel.bad-replication", f"an identity is a byte string of {_IDENTITY_BYTES} bytes")
    if side not in ("followers", "following") or state not in ("accepted", "requested"):
        raise ParcelError("parcel.bad-replication", "a relation has a side or a state that is not known")
    return ToldRelation(IdentityId(identity), read_host(fqdn, "fqdn"), side, state, _integer(changed))


def _list(value: Any, most: int, what: str) -> list[Any]:
    if type(value) is not list or len(value) > most:
        raise ParcelError("parcel.bad-replication", f"{what} come as a list of at most {most}")
    return value


def _tuple(value: Any, length: int) -> list[Any]:
    if type(value) is not list or len(value) != length:
        raise ParcelError("parcel.bad-replication", f"a list has not the {length} items that it should have")
    return value


def _integer(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_STORED_INTEGER:
        raise ParcelError("parcel.bad-replication", "a number is negative or too large, or no number")
    return value


def _bytes(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > _MAX_ENTRY_BYTES:
        raise ParcelError("parcel.bad-replication", "an entry is a short byte string")
    return value


def _author(value: Any) -> PublicKey:
    if type(value) is not bytes or len(value) != KEY_BYTES:
        raise ParcelError("parcel.bad-replication", f"an author is a byte string of {KEY_BYTES} bytes")
    return PublicKey(value)

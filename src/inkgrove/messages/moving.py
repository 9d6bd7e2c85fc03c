"""What two nodes say to each other when an identity moves from one to the other (docs/protocol.md section 7.10).

The old node describes the move (`MoveOffer`), the new one asks for its end (`MoveCommit`), and is answered with the
document (`MoveAnswer`). All are CBOR; only the form is checked here, with `parcel.bad-move` as the error.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from inkgrove.core import KEY_BYTES, IdentityId, PublicKey
from inkgrove.core.errors import InkgroveError, ParcelError
from inkgrove.messages import cbor
from inkgrove.messages.value_readers import EntryPair, read_endpoint, read_entry_pair, read_host, write_entry_pairs

MOVE_FORMAT: Final = "inkgrove move 1"
MOVE_MEDIA_TYPE: Final = "application/vnd.inkgrove.move+cbor"
DIGEST_BYTES: Final = 64
MoveState = Literal["preparing", "ready", "moved", "failed"]
"""The file is being written; it can be fetched; the move is done; the file could not be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOffer:
    """What the old node says of a move to whoever has its grant."""

    state: MoveState
    identity: IdentityId
    key: PublicKey
    """The first key."""
    lives_at: str
    """The name that the identity has on the old node."""
    fqdn: str
    """The name that it is to have on the new one."""
    endpoint: str
    """Where it is to be reached there."""
    has_words: bool
    """Whether somebody else than the old node has the first key, which is destroyed there."""
    size: int = 0
    """How many bytes the file has."""
    digest: bytes = b""
    """BLAKE2b-512 of everything before its seal."""


@dataclass(frozen=True, slots=True)
class MoveCommit:
    """The new node has the file and asks for the document that makes it the home of the identity."""

    key_of: EntryPair
    """Entry 1 of log 0 of the key that it will speak with, with its payload."""
    digest: bytes


@dataclass(frozen=True, slots=True)
class MoveAnswer:
    """The entry of log 0 that names the new node, with its payload."""

    document: EntryPair


def encode_move_offer(offer: MoveOffer) -> bytes:
    """Encode what the old node says of a move."""
    return cbor.encode(
        {
            "form": MOVE_FORMAT,
            "state": offer.state,
            "identity": bytes(offer.identity),
            "key": bytes(offer.key),
            "lives_at": offer.lives_at,
            "fqdn": offer.fqdn,
            "endpoint": offer.endpoint,
            "has_words": offer.has_words,
            "size": offer.size,
            "digest": offer.digest,
        }
    )


def decode_move_offer(body: bytes) -> MoveOffer:
    """Decode what the old node says of a move; raises `parcel.bad-move`."""
    value = _decode(body, {"state", "identity", "key", "lives_at", "fqdn", "endpoint", "has_words", "size", "digest"})
    if value["state"] not in ("preparing", "ready", "moved", "failed") or type(value["has_words"]) is not bool:
        raise _bad("the state of the move is none that is known")
    if type(value["size"]) is not int or value["size"] < 0:
        raise _bad("the size of the file is no number")
    try:
        return MoveOffer(
            state=value["state"],
            identity=IdentityId(_read_bytes(value["identity"], KEY_BYTES)),
            key=PublicKey(_read_bytes(value["key"], KEY_BYTES)),
            lives_at=read_host(value["lives_at"], "lives_at"),
            fqdn=read_host(value["fqdn"], "fqdn"),
            endpoint=read_endpoint(value["endpoint"], "endpoint"),
            has_words=value["has_words"],
            size=value["size"],
            digest=_read_bytes(value["digest"], DIGEST_BYTES) if value["digest"] != b"" else b"",
        )
    except ParcelError:
        raise
    except InkgroveError as err:
        raise _bad(err.message) from err


def encode_move_commit(commit: MoveCommit) -> bytes:
    """Encode the question for the end of a move."""
    (key_of,) = write_entry_pairs([commit.key_of])
    return cbor.encode({"form": MOVE_FORMAT, "key_of": key_of, "digest": commit.digest})


def decode_move_commit(body: bytes) -> MoveCommit:
    """Decode the question for the end of a move; raises `parcel.bad-move`."""
    value = _decode(body, {"key_of", "digest"})
    return MoveCommit(_read_pair(value["key_of"]), _read_bytes(value["digest"], DIGEST_BYTES))


def encode_move_answer(answer: MoveAnswer) -> bytes:
    """Encode the end of a move."""
    (document,) = write_entry_pairs([answer.document])
    return cbor.encode({"form": MOVE_FORMAT, "document": document})


def decode_move_answer(body: bytes) -> MoveAnswer:
    """Decode the end of a move; raises `parcel.bad-move`."""
    return MoveAnswer(_read_pair(_decode(body, {"document"})["document"]))


def _read_pair(value: Any) -> EntryPair:
    entry, payload = read_entry_pair(value, "parcel.bad-move")
    if payload is None:
        raise _bad("an entry of a move comes with its payload")
    return entry, payload


def _read_bytes(value: Any, size: int) -> bytes:
    if type(value) is not bytes or len(value) != size:
        raise _bad(f"{size} bytes are wanted")
    return value


def _decode(body: bytes, names: set[str]) -> dict[str, Any]:
    try:
        value: Any = cbor.decode(body)
    except InkgroveError as err:
        raise _bad(f"no CBOR of ours: {err.message}") from err
    if type(value) is not dict or value.get("form") != MOVE_FORMAT or value.keys() != {"form", *names}:
        raise _bad(f"not of the form {MOVE_FORMAT!r}, with {', '.join(sorted(names))}")
    return value


def _bad(reason: str) -> ParcelError:
    return ParcelError("parcel.bad-move", reason)

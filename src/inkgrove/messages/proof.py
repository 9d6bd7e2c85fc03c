"""The proof of an instance: its entries with payloads, and the payload-free entries that lead from them to entry 1.

docs/protocol.md sections 2, 6 and 8. Nothing else is needed to check a proof. Its bytes have exactly one form, as CBOR
and as JSON, so that no bit of it can be changed unnoticed.
"""

import json
from binascii import hexlify
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from inkgrove.core import (
    Hash,
    HeldEntry,
    PublicKey,
    VerifiedEntry,
    decode_entry,
    union_of_pools,
    verify_log,
    verify_signed,
)
from inkgrove.core.errors import ProofError
from inkgrove.messages import cbor
from inkgrove.messages.instance import Create, Delete, InstanceMessage, Update
from inkgrove.messages.message import decode_message
from inkgrove.messages.value_readers import EntryPair, write_entry_pairs

PROOF_FORMAT: Final = "inkgrove proof 1"
PROOF_MEDIA_TYPE: Final = "application/vnd.inkgrove.proof+cbor"
_KEYS: Final = frozenset({"form", "instance", "entries"})


@dataclass(frozen=True, slots=True)
class Proof:
    """Entries of one log in their order, those of the instance with payloads."""

    instance: Hash
    entries: Sequence[EntryPair]


@dataclass(frozen=True, slots=True)
class ProvedMessage:
    """A message that its author is proven to have signed, at this sequence number of the log."""

    seq_num: int
    hash: Hash
    message: InstanceMessage


@dataclass(frozen=True, slots=True)
class ProvedInstance:
    """An instance that a proof has proved, with its messages."""

    instance: Hash
    author: PublicKey
    log_id: int
    messages: Sequence[ProvedMessage]
    height: int
    """The greatest sequence number among the entries: the log has at least this many."""


def encode_proof(proof: Proof) -> bytes:
    """Encode the proof as CBOR."""
    entries = write_entry_pairs(proof.entries)
    return cbor.encode({"form": PROOF_FORMAT, "instance": bytes(proof.instance), "entries": entries})


def render_proof(proof: Proof) -> bytes:
    """Render the proof as JSON, bytes in hex; as `json.dumps` does with an indent of 1, without a second copy."""
    text = BytesIO()
    text.write(
        f'{{\n "form": {json.dumps(PROOF_FORMAT)},\n "instance": "{proof.instance.hex()}",\n "entries": ['.encode()
    )
    for number, item in enumerate(proof.entries):
        text.write(b",\n  [" if number else b"\n  [")
        for index, part in enumerate(part for part in item if part is not None):
            text.write(b',\n   "' if index else b'\n   "')
            text.write(hexlify(part))
            text.write(b'"')
        text.write(b"\n  ]")
    text.write(b"\n ]\n}\n" if proof.entries else b"]\n}\n")
    return text.getvalue()


def read_proof(data: bytes) -> Proof:
    """Read a proof from CBOR or JSON; raises `proof.bad-form` for anything but the one way to write it."""
    is_json = data[:1] == b"{"
    try:
        value: Any = json.loads(data) if is_json else cbor.decode(data)
    except (ValueError, RecursionError) as err:
        raise ProofError("proof.bad-form", "the file is neither JSON nor CBOR") from err
    if not isinstance(value, Mapping) or value.keys() != _KEYS or value["form"] != PROOF_FORMAT:
        raise ProofError("proof.bad-form", f"the file is not of the form {PROOF_FORMAT!r}")
    entries = value["entries"]
    if not isinstance(entries, list) or not all(isinstance(item, list) and 1 <= len(item) <= 2 for item in entries):
        raise ProofError("proof.bad-form", "the entries are not a list of [entry] and [entry, payload]")
    pairs = [[_read_bytes(part, is_json=is_json) for part in item] for item in entries]
    instance = Hash(_read_bytes(value["instance"], is_json=is_json))
    proof = Proof(instance, [(item[0], item[1] if len(item) > 1 else None) for item in pairs])
    if (render_proof(proof) if is_json else encode_proof(proof)) != data:
        raise ProofError("proof.bad-form", "the file says the right things in another form than a proof is written in")
    return proof


def _read_bytes(value: object, *, is_json: bool) -> bytes:
    if is_json and isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError as err:
            raise ProofError("proof.bad-form", "bytes are written in hex") from err
    if not is_json and isinstance(value, bytes):
        return value
    raise ProofError("proof.bad-form", "an entry, payload or instance is not a byte string")


def verify_proof(proof: Proof) -> ProvedInstance:
    """Check signatures, links, the path to entry 1 and payloads; returns what is proved, or raises why it is not."""
    held = [HeldEntry(verify_signed(decode_entry(entry)), payload) for entry, payload in proof.entries]
    logs = [(item.signed.entry.author, item.signed.entry.log_id) for item in held]
    seq_nums = [item.signed.entry.seq_num for item in held]
    if len(set(logs)) != 1:
        raise ProofError("proof.incomplete", "the entries of a proof are of exactly one log")
    if sorted(set(seq_nums)) != seq_nums:
        raise ProofError("proof.bad-form", "the entries of a proof come in their order, each once")
    for verdict in verify_log(held, partial=True).verdicts:
        if not isinstance(verdict, VerifiedEntry):
            raise verdict
    messages = _read_messages(proof.instance, held)
    # The last entry may be one that the owner of the log has pinned: its pool comes with everything of the log.
    if not set(seq_nums) <= set(union_of_pools([*(item.seq_num for item in messages), seq_nums[-1]])):
        raise ProofError("proof.of-other", "the proof holds entries that prove nothing about the instance")
    author, log_id = logs[0]
    return ProvedInstance(proof.instance, author, log_id, messages, seq_nums[-1])


def _read_messages(instance: Hash, held: Sequence[HeldEntry]) -> list[ProvedMessage]:
    messages: list[ProvedMessage] = []
    for item in held:
        if item.payload is None:
            continue
        seq_num, entry_hash, message = item.signed.entry.seq_num, item.signed.hash, decode_message(item.payload)
        if not messages:
            if not isinstance(message, Create) or entry_hash != instance:
                raise ProofError("proof.of-other", "the first entry with a payload is not the create of the instance")
        elif not isinstance(message, Update | Delete) or message.instance not in (instance, messages[0].seq_num):
            raise ProofError("proof.of-other", f"entry {seq_num} is no message of the instance")
        messages.append(ProvedMessage(seq_num, entry_hash, message))
    if not messages:
        raise ProofError("proof.incomplete", "the proof holds no payload")
    return messages

"""One core: decode an entry, verify signature, links and payload, decode the message; against bare signature checks."""

import hashlib
from collections.abc import Iterator

from nacl.bindings import crypto_sign_open

from bench.harness import Row, compare
from inkgrove.core import (
    Hash,
    SecretKey,
    VerifiedEntry,
    decode_entry,
    has_lipmaa_link,
    hash_entry,
    lipmaa,
    sign_entry,
    verify_entry,
    verify_payload,
    verify_signed,
)
from inkgrove.messages import Create, SchemaVersion, Timestamp, cbor, decode_message, encode_message, with_salt
from inkgrove.messages.cbor import Value

ENTRIES = 2000
BATCH = 500


def slothmails(count: int) -> Iterator[bytes]:
    """Payloads as a slothmail client writes them: four fields, salted and padded."""
    author = SecretKey.from_seed(b"\1" * 32).public
    for number in range(count):
        fields: dict[str, Value] = {
            "subject": f"Greetings number {number}",
            "body": "The weather up here in the canopy is fine, and we hang on.",
            "recipient": b"\0\x40" + hashlib.blake2b(str(number).encode()).digest(),
            "created": Timestamp(1_590_148_730_000_000 + number),
        }
        message = Create(SchemaVersion(author, 12, 4), fields)
        yield encode_message(with_salt(message, lambda size: hashlib.shake_128(b"salt").digest(size)))


def signed_log(payloads: list[bytes]) -> list[bytes]:
    """The encoded entries of one log."""
    key = SecretKey.from_seed(b"\2" * 32)
    hashes: list[Hash] = []
    encoded = []
    for seq_num, payload in enumerate(payloads, start=1):
        entry = sign_entry(
            key,
            payload,
            log_id=1,
            seq_num=seq_num,
            lipmaa_link=hashes[lipmaa(seq_num) - 1] if has_lipmaa_link(seq_num) else None,
            backlink=hashes[-1] if hashes else None,
        )
        hashes.append(hash_entry(entry))
        encoded.append(entry.encoded)
    return encoded


def rows() -> Iterator[Row]:
    payloads = list(slothmails(ENTRIES))
    encoded = signed_log(payloads)
    lines = list(zip(encoded, payloads, strict=True))
    author = decode_entry(encoded[0]).author
    signatures = [data[-64:] + data[:-64] for data in encoded]

    def raw() -> None:
        for signed in signatures:
            crypto_sign_open(signed, author)

    def verified_and_decoded() -> None:
        # Step by step over a batch, as the pipeline does it: each step finds its code and data in the caches.
        for start in range(0, ENTRIES, BATCH):
            batch = lines[start : start + BATCH]
            entries = [decode_entry(data) for data, _ in batch]
            for entry in entries:
                verify_signed(entry)
            for entry, (_, payload) in zip(entries, batch, strict=True):
                cbor.decode(verify_payload(entry, payload))

    def whole() -> None:
        verified: dict[int, VerifiedEntry] = {}
        for data, payload in lines:
            entry = decode_entry(data)
            seq_num = entry.seq_num
            verified[seq_num] = verify_entry(
                entry,
                backlink=verified.get(seq_num - 1),
                lipmaa_link=verified[lipmaa(seq_num)] if entry.lipmaa_link else None,
            )
            decode_message(verify_payload(entry, payload))

    about = f"one core; payloads of {len(payloads[0])} bytes"
    rate, raw_rate, ratio = compare(verified_and_decoded, raw, ENTRIES)
    name = "entries: decode, verify, payload hash, CBOR"
    yield Row(name, rate, "libsodium verifies", raw_rate, ratio, ">= 0.80", ratio >= 0.80, about)
    rate, raw_rate, ratio = compare(whole, raw, ENTRIES)
    name = "the same with links, to a message"
    yield Row(name, rate, "libsodium verifies", raw_rate, ratio, "-", True, about)

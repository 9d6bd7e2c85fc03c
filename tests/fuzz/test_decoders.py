"""Hostile bytes: whatever comes in, nothing but an InkgroveError comes out, and never a wrong acceptance.

A bounded number of inputs, from a seed that a failure prints. INKGROVE_FUZZ_INPUTS raises the number.
"""

import os
import random
from collections.abc import Callable

from inkgrove.core import Flavour, decode_entry, hash_entry, verify_signed
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import decode_message, encode_message
from inkgrove.messages.yaml_form import parse_messages
from tests.support.logs import LogBuilder, key
from tests.support.tiers import amount

INPUTS = amount(10_000, 100_000, "INKGROVE_FUZZ_INPUTS")
SEED = int(os.environ.get("INKGROVE_FUZZ_SEED", "20200522"))

ENTRIES = [
    entry.encoded
    for flavour in Flavour
    for log_id in (0, 300)
    for entry in LogBuilder(key(3), log_id=log_id, flavour=flavour).grow(14).entries
]
MESSAGES = [
    encode_message(message)
    for message in parse_messages(
        f"""
kind: create
schema: ["{"88" * 32}", 12, 1]
fields: [subject: "Hello!", body: , created: 2020-05-22T11:58:50Z, n: -7, f: 1.5, b: !hex "00ff", l: [true, {{a: 1}}]]
access: {{mode: closed, to: ["{"11" * 32}"]}}
expires: 2030-01-01T00:00:00Z
salt: !hex "{"00" * 16}"
---
kind: update
schema: ["{"88" * 32}", 12, 4]
instance: "0040{"99" * 64}"
fields: [subject: Hello]
---
kind: delete
instance: 300
---
kind: schema-meta
name: slothmail
spec: 1
---
kind: schema-migration
fields: [a: {{action: create, type: text, validation: "a+", default: a}}, b: {{action: remove}}]
---
kind: schema-revert
target: 3
---
kind: identity
fqdn: jane.haiku.ink
endpoint: https://haiku.ink
keys: [{{key: "{"22" * 32}", label: phone, revoked: [[1, 2], [3, 4, "0040{"44" * 64}"]]}}, {{key: "{"55" * 32}"}}]
controller: "{"55" * 32}"
under: "0020{"66" * 32}"
closed: true
---
kind: key-of
identity: "{"33" * 32}"
"""
    )
]


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to three edits: bits, bytes, cuts, repetitions, insertions of lengths that lie."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(result) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(result):
            result[at] = rng.randrange(256)
        elif kind == 2:
            del result[at : at + rng.randint(1, 8)]
        elif kind == 3:
            result[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 4:
            result[at:at] = result[at : at + rng.randint(1, 40)]
        else:
            result[at:at] = rng.choice(
                [b"\xff", b"\x9b" + b"\xff" * 8, b"\x5b\x7f" + b"\xff" * 7, b"\x81" * 20, b"\xbf"]
            )
    return bytes(result)


def refuses_or_reads(reader: Callable[[bytes], object], data: bytes) -> object | None:
    try:
        return reader(data)
    except InkgroveError:
        return None


def verify_bytes(data: bytes) -> object:
    return verify_signed(decode_entry(data))


def test_random_bytes_raise_nothing_but_our_errors() -> None:
    rng = random.Random(SEED)
    for number in range(INPUTS):
        data = rng.randbytes(rng.randrange(200))
        if number % 2:
            data = b"\0" + data  # past the tag
        assert refuses_or_reads(verify_bytes, data) is None
        refuses_or_reads(decode_message, data)


def test_mutated_entries_are_never_accepted() -> None:
    rng = random.Random(SEED)
    originals = set(ENTRIES)
    for _ in range(INPUTS):
        data = mutate(rng, rng.choice(ENTRIES))
        accepted = refuses_or_reads(verify_bytes, data)
        assert accepted is None or data in originals, data.hex()


def test_mutated_messages_are_refused_or_read_the_same_again() -> None:
    rng = random.Random(SEED)
    for _ in range(INPUTS):
        data = mutate(rng, rng.choice(MESSAGES))
        message = refuses_or_reads(decode_message, data)
        if message is not None:
            assert decode_message(encode_message(message)) == message, data.hex()  # type: ignore[arg-type]


def test_decoded_entries_keep_the_bytes_they_came_from() -> None:
    for encoded in ENTRIES:
        entry = decode_entry(encoded)
        assert entry.encoded == encoded
        assert hash_entry(entry) == hash_entry(decode_entry(entry.encoded))

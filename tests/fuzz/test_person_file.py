"""Hostile bytes for the readers of a person's file: each is read, or refused with a code of files."""

import random
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from inkgrove.core import identity_of
from inkgrove.core.errors import PersonFileError
from inkgrove.messages import Timestamp, cbor
from inkgrove.messages.person_file import (
    ROWS,
    PersonHeader,
    decode_record,
    encode_head,
    encode_header,
    encode_record,
    encode_seal,
    read_blob,
    read_copy,
    read_counts,
    read_entries,
    read_log,
    read_part,
    read_rows,
    read_secret,
)
from inkgrove.node.person_file import FileReader, verify_person
from inkgrove.store.logs import open_store
from tests.support.logs import key
from tests.support.tiers import amount

INPUTS = amount(2_000, 50_000, "INKGROVE_FUZZ_INPUTS")
READERS = (read_blob, read_copy, read_counts, read_entries, read_log, read_part, read_rows, read_secret)
KINDS = ("person", "log", "entries", "copy", "rows", "secret", "blob", "bytes", "end", "other", "")
KEYS = (
    *("of", "author", "log_id", "height", "count", "whole", "entries", "instance", "create", "table", "rows", "salt"),
    *("operations", "memory", "sealed", "hash", "size", "type", "bytes", "counts"),
)


def any_value(chance: random.Random, depth: int = 0) -> Any:
    """Something of the CBOR profile, often nearly right."""
    simple = (
        None,
        chance.random() < 0.5,
        chance.choice((0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1)),
        chance.randbytes(chance.choice((0, 1, 16, 32, 66, 72))),
        b"\0\x40" + chance.randbytes(64),
        chance.choice(("own", "schema", "accepted", *ROWS)),
        1.5,
    )
    if depth > 3 or chance.random() < 0.6:
        return chance.choice(simple)
    if chance.random() < 0.5:
        return [any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(KEYS): any_value(chance, depth + 1) for _ in range(chance.randrange(4))}


def any_record(chance: random.Random) -> bytes:
    names = chance.sample(KEYS, chance.randrange(7))
    body = encode_record(chance.choice(KINDS), **{name: any_value(chance) for name in names})
    if chance.random() < 0.3:
        place = chance.randrange(len(body))
        body = body[:place] + chance.randbytes(chance.randrange(3)) + body[place + chance.randrange(3) :]
    return body


def test_any_record_is_read_or_refused_with_a_code() -> None:
    chance = random.Random(17)
    for _ in range(INPUTS):
        try:
            record = decode_record(any_record(chance))
        except PersonFileError:
            continue
        for read in READERS:
            with suppress(PersonFileError):
                read(record)


def test_any_file_of_any_records_is_refused_with_a_code(tmp_path: Path) -> None:
    chance = random.Random(18)
    header = PersonHeader(identity_of(key(1).public), key(1).public, "jane.haiku.ink", "https://x", Timestamp(0))
    path = tmp_path / "any.person"
    with open_store(tmp_path / "store") as store:
        for _ in range(INPUTS // 10):
            bodies = [encode_header(header), *(any_record(chance) for _ in range(chance.randrange(6)))]
            written = b"".join(encode_head(len(body)) + body for body in bodies)
            path.write_bytes(written + encode_seal(len(written), blake2b(written).digest()))
            try:
                with FileReader(path) as reader:
                    verify_person(reader, store)
            except PersonFileError:
                continue
            assert cbor.decode(bodies[-1]) == {"kind": "end", "counts": {}}, bodies

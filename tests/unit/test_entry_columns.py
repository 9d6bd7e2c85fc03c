"""Entries decoded by the column are what `decode_entry` says of each: values, and reasons for refusing."""

import random

import pyarrow as pa

from inkgrove.core import Entry, Flavour, check_storable, decode_entry, lipmaa
from inkgrove.core.errors import InkgroveError
from inkgrove.pipeline.archive import decode_columns
from tests.support.logs import LogBuilder, key


def _entries() -> list[bytes]:
    found = []
    for number, log_id in enumerate([0, 1, 247, 248, 255, 256, 65_535, 2**32, 2**63 - 1, 2**63, 2**64 - 1]):
        flavour = Flavour.YAMF if number % 2 else Flavour.YASMF
        log = LogBuilder(key(number), log_id, flavour).grow(14 if number else 300)
        log.append(b"x" * (number * 30), is_end_of_log=True)
        found += [entry.encoded for entry in log.entries]
    return found


def _mutants(rng: random.Random, entries: list[bytes]) -> list[bytes | None]:
    mutants: list[bytes | None] = [None, b"", b"\0", b"\1" * 33, b"\2" * 400]
    for data in entries:
        changed = bytearray(data)
        kind = rng.randrange(5)
        if kind == 0:
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[33 + rng.randrange(5)] = rng.choice([0, 1, 247, 248, 249, 255])
        elif kind == 2:
            del changed[rng.randrange(len(data)) :]
        elif kind == 3:
            changed += bytes(rng.randrange(1, 70))
        else:
            at = rng.randrange(33, len(data))
            changed[at:at] = rng.randbytes(rng.randrange(1, 4))
        mutants.append(bytes(changed))
    return mutants


def _decode(data: bytes | None) -> tuple[str | None, Entry | None]:
    try:
        entry = decode_entry(data or b"")
        check_storable(entry)
    except InkgroveError as error:
        return error.code, None
    return None, entry


def test_columns_equal_entries_decoded_one_by_one() -> None:
    rng = random.Random(3)
    whole = _entries()
    lines: list[bytes | None] = [*whole, *(mutant for _ in range(8) for mutant in _mutants(rng, whole))]
    rng.shuffle(lines)
    # A slice, so that offsets do not begin at zero.
    found = decode_columns(pa.array([b"before", *lines, b"behind"], pa.binary()).slice(1, len(lines)))
    refused = 0
    for row, data in enumerate(lines):
        code, entry = _decode(data)
        assert (found.refused[row].code if row in found.refused else None) == code
        if entry is None:
            refused += 1
            continue
        links_at = entry.encoded.index(entry.lipmaa_link or entry.backlink or b"") if entry.backlink else None
        assert found.log[row].as_py() == entry.author + entry.log_id.to_bytes(8, "big")
        assert found.seq_num[row] == entry.seq_num
        assert found.lipmaa_seq[row] == (lipmaa(entry.seq_num) if entry.lipmaa_link else 0)
        assert found.hash_size[row] == len(entry.payload_hash)
        assert found.payload_size[row] == entry.payload_size
        assert found.is_end[row] == entry.is_end_of_log
        if links_at is not None:
            assert found.links_at[row] == links_at
    assert refused > len(whole)


def test_no_entries_at_all_are_no_columns() -> None:
    found = decode_columns(pa.array([], pa.binary()))
    assert len(found.log) == len(found.seq_num) == 0
    assert found.refused == {}

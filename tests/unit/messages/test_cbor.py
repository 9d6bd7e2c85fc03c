"""The CBOR profile: one reader in two speeds, and what it refuses."""

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Timestamp, cbor, parse_timestamp
from tests.support.errors import raises
from tests.support.tiers import amount

TIMESTAMPS = st.integers(-62135596800000000, 253402300799999999).map(Timestamp)
TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.binary(max_size=40),
    TIMESTAMPS,
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def same(a: object, b: object) -> bool:
    """Equality that tells 1 from 1.0 and True, and 0.0 from -0.0."""
    return repr(a) == repr(b)


@given(VALUES)
def test_decode_after_encode_is_identity(value: cbor.Value) -> None:
    data = cbor.encode(value)
    assert same(sorted_maps(cbor.decode(data)), sorted_maps(value))
    assert cbor.encode(cbor.decode(data)) == data


def sorted_maps(value: object) -> object:
    if isinstance(value, dict):
        return {key: sorted_maps(value[key]) for key in sorted(value)}
    return [sorted_maps(item) for item in value] if isinstance(value, list) else value


def result_of(reader: object, data: bytes) -> object:
    try:
        return repr(reader(data))  # type: ignore[operator]
    except InkgroveError as error:
        return error.code


@settings(max_examples=amount(150, 500))
@given(st.binary(max_size=60) | VALUES.map(cbor.encode) | st.tuples(VALUES.map(cbor.encode), st.binary()).map(b"".join))
@example(b"\x81" * 16 + b"\0")
@example(b"\x81" * 17 + b"\0")
@example(b"\x81" * 15 + b"\x80")
@example(b"\x81" * 16 + b"\x80")
@example(b"\x81" * 16 + b"\xa0")
@example(b"\x81" * 15 + b"\xc1\x00")
@example(b"\x81" * 16 + b"\xc1\x00")
@example(bytes.fromhex("a16161d81c818001"))
@example(bytes.fromhex("d81c81d81d00"))
def test_fast_and_strict_reader_agree(data: bytes) -> None:
    assert result_of(cbor.decode, data) == result_of(cbor.decode_strictly, data)


@settings(max_examples=amount(150, 500))
@given(VALUES.map(cbor.encode), st.data())
def test_fast_and_strict_reader_agree_on_damaged_values(encoded: bytes, data: st.DataObject) -> None:
    damaged = bytearray(encoded)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    assert result_of(cbor.decode, bytes(damaged)) == result_of(cbor.decode_strictly, bytes(damaged))


@pytest.mark.parametrize("tag", [*range(2, 400), 1004, 43000, 55799, 2**32, 2**64 - 1])
def test_no_tag_but_0_and_1_is_read(tag: int) -> None:
    head = bytes([0xDB]) + tag.to_bytes(8, "big")
    for content in (b"\x60", b"\x00", b"\x80", b"\x41\x01", b"\xa0", b"\x82\x01\x02"):
        assert result_of(cbor.decode, head + content) == ("cbor.bignum" if tag in (2, 3) else "cbor.forbidden-tag")


@pytest.mark.parametrize(
    "payload", [b"\xc0" * 5000, b"\xc1" * 400_000 + b"\0", b"\xa1\x64kind" + b"\xc0" * 1000 + b"\x60"]
)
def test_chain_of_tags_is_not_followed(payload: bytes) -> None:
    assert result_of(cbor.decode, payload) == result_of(cbor.decode_strictly, payload) == "cbor.bad-timestamp"


DEEP = st.integers(12, 19).flatmap(
    lambda depth: st.tuples(
        st.lists(st.sampled_from([b"\x81", b"\xa1\x61a", b"\x82\x00"]), min_size=depth, max_size=depth).map(b"".join),
        st.sampled_from([b"\x80", b"\xa0", b"\x00", b"\xc1\x00", b"\x60"]),
    ).map(b"".join)
)


@given(DEEP)
def test_fast_and_strict_reader_agree_on_depth(data: bytes) -> None:
    assert result_of(cbor.decode, data) == result_of(cbor.decode_strictly, data)


def test_keys_that_collide_cost_no_more_than_others() -> None:
    # Hashes of tuples can be made to collide; such keys must be refused before they are put into a dict.
    keys = b"".join(b"\x82" + bytes([0x1A]) + (n * 7919).to_bytes(4, "big") + b"\x00" + b"\x00" for n in range(20_000))
    payload = b"\xba" + (20_000).to_bytes(4, "big") + keys
    assert result_of(cbor.decode, payload) == "cbor.key-not-text"


def test_longer_forms_and_any_key_order_are_read() -> None:
    assert cbor.decode(bytes.fromhex("a2 6162 1900ff 6161 fb3ff0000000000000")) == {"b": 255, "a": 1.0}


def test_deterministic_encoding_sorts_keys_and_shortens_floats() -> None:
    assert cbor.encode({"bb": 1.5, "a": 100000.0, "c": 0.1}).hex() == (
        "a3" "6161" "fa47c35000" "6163" "fb3fb999999999999a" "626262" "f93e00"
    )  # fmt: skip


@pytest.mark.parametrize("prefix", ["9b", "bb", "5b", "7b"])
def test_claimed_lengths_are_not_allocated(prefix: str) -> None:
    tracemalloc.start()
    assert str(result_of(cbor.decode, bytes.fromhex(prefix + "0000000fffffffff") + b"\0" * 100)).startswith("cbor.")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2**64, "cbor.bignum"),
        (float("nan"), "cbor.not-finite"),
        ({"a\0": 1}, "cbor.nul-character"),
        ("\ud800", "cbor.bad-utf8"),
        ([[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]], "cbor.too-deep"),
    ],
)
def test_what_no_reader_takes_is_not_written(value: cbor.Value, error: str) -> None:
    with raises(error):
        cbor.encode(value)


def test_foreign_objects_are_a_programming_error() -> None:
    with pytest.raises(TypeError):
        cbor.encode(object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("c1 00", "1970-01-01T00:00:00Z"),
        ("c1 20", "1969-12-31T23:59:59Z"),
        ("c1 fb41d452d9ec200000", "2013-03-21T20:04:00.500000Z"),
        # 0.0000005 rounds to even: 0; 0.0000015 is a little less than the half: 1.
        ("c1 fb3ea0c6f7a0b5ed8d", "1970-01-01T00:00:00Z"),
        ("c1 f93e00", "1970-01-01T00:00:01.500000Z"),
        ("c0 74 323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
    ],
)
def test_tagged_timestamps(data: str, text: str) -> None:
    assert cbor.decode(bytes.fromhex(data)) == parse_timestamp(text)


@pytest.mark.parametrize(
    "data", [b"\x9a\x00\x20\x00\x00" + b"\0" * 0x200000, b"\x5a\x00\x20\x00\x00" + b"\0" * 0x200000 + b"\xff"]
)
def test_more_than_a_message_must_be_simple_and_without_fault(data: bytes) -> None:
    with raises("cbor.too-complex"):
        cbor.decode(data)


def test_more_than_a_message_in_few_parts_is_read() -> None:
    assert cbor.decode(b"\x5a\x00\x20\x00\x00" + b"\0" * 0x200000) == bytes(0x200000)

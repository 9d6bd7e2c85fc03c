"""VarU64, hashes, lipmaa, keys and the entry codec: round trips, edges, and what each refuses."""

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inkgrove.core import (
    Entry,
    Flavour,
    Hash,
    SecretKey,
    certificate_pool,
    check_storable,
    decode_entry,
    decode_varu64,
    encode_varu64,
    has_lipmaa_link,
    hash_bytes,
    hash_entry,
    hash_yamf,
    hash_yasmf,
    identity_of,
    least_repunit_at_or_above,
    lipmaa,
    parse_hash,
    parse_public_key,
    parse_secret_key,
    sign_entry,
    verify_signature,
    verify_signed,
)
from inkgrove.core.errors import BadHashText, BadSignature, InkgroveError, IntegerTooLarge, MissingLink, UnexpectedLink
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key

U64 = st.integers(0, 2**64 - 1)


@given(U64)
def test_varu64_round_trip(value: int) -> None:
    assert decode_varu64(b"x" + encode_varu64(value) + b"y", 1) == (value, 1 + len(encode_varu64(value)))


@given(U64, st.integers(1, 8))
def test_varu64_has_one_encoding(value: int, width: int) -> None:
    if value < 256**width:
        data = bytes([247 + width]) + value.to_bytes(width, "big")
        if data != encode_varu64(value):
            with raises("varu64.not-shortest"):
                decode_varu64(data)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_varu64_out_of_range_is_refused(value: int) -> None:
    with raises("varu64.out-of-range"):
        encode_varu64(value)


def lipmaa_by_the_text(n: int) -> int:
    """The rule of section 2 once more, as it reads."""
    repunits = [(3**k - 1) // 2 for k in range(1, 44)]
    if n in repunits:
        return n - 3 ** repunits.index(n)
    x = n
    while x not in repunits:
        x -= max(r for r in repunits if r < x)
    return n - x


def test_lipmaa_of_the_first_forty() -> None:
    assert [lipmaa(n) for n in range(1, 41)] == [
        0, 1, 2, 1, 4, 5, 6, 4, 8, 9, 10, 8, 4, 13, 14, 15, 13, 17, 18, 19,
        17, 21, 22, 23, 21, 13, 26, 27, 28, 26, 30, 31, 32, 30, 34, 35, 36, 34, 26, 13,
    ]  # fmt: skip


@given(st.integers(2, 2**64 - 1))
def test_lipmaa_follows_the_text_up_to_u64(n: int) -> None:
    assert lipmaa(n) == lipmaa_by_the_text(n)
    assert 1 <= lipmaa(n) < n


@pytest.mark.parametrize("function", [lipmaa, has_lipmaa_link, least_repunit_at_or_above, certificate_pool])
@pytest.mark.parametrize(
    ("number", "refusal"),
    [
        (0, "entry.zero-seq-num"),
        (-1, "entry.zero-seq-num"),
        (-(2**70), "entry.zero-seq-num"),
        (3**42 // 2 + 1, "varu64.out-of-range"),
        (3**60, "varu64.out-of-range"),
    ],
)
def test_what_is_no_sequence_number_is_refused_at_once(
    function: Callable[[int], object], number: int, refusal: str
) -> None:
    with raises(refusal):
        function(number)


@pytest.mark.parametrize("function", [lipmaa, has_lipmaa_link, least_repunit_at_or_above, certificate_pool])
def test_the_greatest_sequence_number_is_one(function: Callable[[int], object]) -> None:
    function(2**64 - 1)


def test_hashes_carry_their_headers() -> None:
    assert hash_yamf(b"").hex().startswith("0040786a02f742015903c6c6fd852552d272912f4740e15847618a86e217f71f5419")
    assert hash_yasmf(b"").hex() == "0020af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert parse_hash(str(hash_yasmf(b"a"))) == hash_yasmf(b"a")


@pytest.mark.parametrize("text", ["", "zz", "0040", "00 40", "ab" * 66, "0040" + "ab" * 32, "0020" + "ab" * 64])
def test_hash_text_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadHashText):
        parse_hash(text)


def test_identity_is_the_rfc_7638_thumbprint_of_the_key() -> None:
    # RFC 8037 appendix A.3: the thumbprint of the key of A.2.
    public = parse_public_key("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    assert identity_of(public).hex() == "90facafea9b1556698540f70c0117a22ea37bd5cf3ed3c47093c1707282b4b89"


def test_secret_key_hides_its_seed() -> None:
    secret = key(7)
    assert "07" * 4 not in repr(secret)
    with raises("key.bad-key") as caught:
        parse_secret_key("07" * 31)
    assert "07" not in str(caught.value)
    with raises("key.bad-key"):
        parse_secret_key("not hex")


@pytest.mark.parametrize(("author", "signature"), [(b"\1" * 31, b"\1" * 64), (b"\1" * 32, b"\1" * 63)])
def test_signature_or_key_of_wrong_length_is_a_bad_signature(author: bytes, signature: bytes) -> None:
    with pytest.raises(BadSignature):
        verify_signature(author, b"", signature)  # type: ignore[arg-type]


FLAVOURS = st.sampled_from(list(Flavour))


@st.composite
def entries(draw: st.DrawFn) -> tuple[Entry, dict[str, object], bytes]:
    flavour = draw(FLAVOURS)
    seq_num = draw(st.one_of(st.integers(1, 200), st.integers(1, 2**64 - 1)))
    payload = draw(st.binary(max_size=300))
    facts: dict[str, object] = {
        "log_id": draw(U64),
        "seq_num": seq_num,
        "lipmaa_link": hash_bytes(draw(st.binary(max_size=4)), flavour) if has_lipmaa_link(seq_num) else None,
        "backlink": hash_bytes(draw(st.binary(max_size=4)), flavour) if seq_num > 1 else None,
        "is_end_of_log": draw(st.booleans()),
    }
    secret = SecretKey.from_seed(draw(st.binary(min_size=32, max_size=32)))
    return sign_entry(secret, payload, flavour=flavour, **facts), {"author": secret.public, **facts}, payload  # type: ignore[arg-type]


@given(entries())
def test_entry_round_trip(made: tuple[Entry, dict[str, object], bytes]) -> None:
    entry, facts, payload = made
    again = decode_entry(entry.encoded)
    assert again == entry
    assert {name: getattr(again, name) for name in facts} == facts
    assert again.payload_size == len(payload)
    assert again.payload_hash == hash_bytes(payload, again.flavour)
    verify_signed(again)
    assert pickle.loads(pickle.dumps(again)) == again


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("seq_num", [1, 2, 4])
def test_every_flipped_bit_is_refused(flavour: Flavour, seq_num: int) -> None:
    encoded = LogBuilder(flavour=flavour).grow(seq_num).entry(seq_num).encoded
    for bit in range(len(encoded) * 8):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(InkgroveError):
            verify_signed(decode_entry(bytes(flipped)))


@pytest.mark.parametrize("seq_num", [1, 2, 4])
def test_every_truncation_and_every_extension_is_refused(seq_num: int) -> None:
    encoded = LogBuilder().grow(seq_num).entry(seq_num).encoded
    for size in range(len(encoded)):
        with pytest.raises(InkgroveError):
            decode_entry(encoded[:size])
    with pytest.raises(InkgroveError):
        decode_entry(encoded + b"\0")


def sign(**facts: object) -> Entry:
    return sign_entry(key(1), b"", **{"log_id": 1, **facts})  # type: ignore[arg-type]


def test_signing_demands_the_links_of_the_sequence_number() -> None:
    link = hash_yamf(b"")
    with pytest.raises(MissingLink):
        sign(seq_num=2)
    with pytest.raises(MissingLink):
        sign(seq_num=4, backlink=link)
    with pytest.raises(UnexpectedLink):
        sign(seq_num=1, backlink=link)
    with pytest.raises(UnexpectedLink):
        sign(seq_num=2, backlink=link, lipmaa_link=link)
    with raises("entry.mixed-hashes"):
        sign(seq_num=2, backlink=hash_yasmf(b""))
    with raises("entry.zero-seq-num"):
        sign(seq_num=0)


def test_numbers_above_2_63_are_not_storable() -> None:
    check_storable(sign(log_id=2**63 - 1, seq_num=1))
    with pytest.raises(IntegerTooLarge):
        check_storable(sign(log_id=2**63, seq_num=1))


def test_errors_survive_pickling_with_their_data() -> None:
    error = pickle.loads(pickle.dumps(MissingLink("a reason", seq_num=3)))
    assert (error.code, error.message, error.data) == ("entry.missing-link", "a reason", {"seq_num": 3})


def test_hash_of_an_entry_is_in_the_flavour_of_its_log() -> None:
    assert isinstance(hash_entry(LogBuilder().grow(1).entry(1)), Hash)
    assert hash_entry(LogBuilder(flavour=Flavour.YASMF).grow(1).entry(1))[:2] == b"\x00\x20"

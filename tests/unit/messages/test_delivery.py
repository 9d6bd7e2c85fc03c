"""What travels between nodes: read back as written, and refused when anything in it is not as it should be."""

from collections.abc import Sequence

import pytest

from inkgrove.core import Hash, IdentityId, identity_of, union_of_pools
from inkgrove.core.errors import InkgroveError, LacksCreate, PayloadHashMismatch
from inkgrove.messages import (
    DELIVERY_FORMAT,
    Access,
    Create,
    Delete,
    Delivery,
    IdentityDocument,
    Message,
    Parcel,
    SchemaVersion,
    Update,
    cbor,
    decode_delivery,
    encode_delivery,
    encode_message,
    open_parcel,
)
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(7).public, 1, 2)
JOHN = identity_of(key(2).public)
CREATE_AT, UPDATE_AT, OTHER_AT, DELETE_AT, HEIGHT = 6, 9, 10, 12, 14


def build(log_id: int = 1, number: int = 1) -> LogBuilder:
    """A log with one instance at 6 (changed at 9, ended at 12) among creates of others."""
    log = LogBuilder(key(number), log_id)
    for seq_num in range(1, HEIGHT + 1):
        message: Message = Create(SCHEMA, {"subject": f"other {seq_num}"})
        if seq_num == CREATE_AT:
            message = Create(SCHEMA, {"subject": "Hello"})
        elif seq_num == UPDATE_AT:
            message = Update(SCHEMA, log.hash(CREATE_AT), {"subject": "Again"}, Access("closed", (JOHN,)))
        elif seq_num == DELETE_AT:
            message = Delete(CREATE_AT)
        log.append(encode_message(message))
    return log


LOG = build()
INSTANCE = LOG.hash(CREATE_AT)


def parcel(
    payloads: Sequence[int], *, log: LogBuilder = LOG, extra: Sequence[int] = (), instance: Hash = INSTANCE
) -> Parcel:
    """The entries that prove some messages, these with payloads."""
    places = sorted({*union_of_pools(payloads, HEIGHT), *extra})
    entries = [(log.entry(n).encoded, log.payloads[n - 1] if n in payloads else None) for n in places]
    return Parcel(instance, (JOHN,), entries)


def test_delivery_is_read_as_it_was_written() -> None:
    delivery = Delivery(IdentityId(b"v" * 32), [parcel([CREATE_AT, UPDATE_AT]), parcel([DELETE_AT])])
    assert decode_delivery(encode_delivery(delivery)) == delivery


def test_parcel_is_opened() -> None:
    opened = open_parcel(parcel([CREATE_AT, UPDATE_AT, DELETE_AT]), None)
    assert (opened.author, opened.log_id) == (key(1).public, 1)
    assert [item.seq_num for item in opened.messages] == [6, 9, 12]
    assert opened.has_create
    assert not opened.is_deletion
    assert opened.last_seq_num == 12
    assert opened.access == (9, Access("closed", (JOHN,)))


def test_changes_alone_need_a_create_that_is_held() -> None:
    opened = open_parcel(parcel([DELETE_AT]), LOG.entry(CREATE_AT))
    assert opened.is_deletion
    assert not opened.has_create
    assert opened.access is None
    for place in (UPDATE_AT, DELETE_AT):  # one names it by hash, the other by place
        with pytest.raises(LacksCreate):
            open_parcel(parcel([place]), None)


def test_any_flipped_bit_is_refused() -> None:
    whole = parcel([CREATE_AT])
    for number, (entry, payload) in enumerate(whole.entries):
        for part, content in enumerate((entry, payload)):
            for place in range(len(content or b"")):
                bent = bytearray(content or b"")
                bent[place] ^= 1
                changed = list(whole.entries)
                changed[number] = (bytes(bent), payload) if part == 0 else (entry, bytes(bent))
                with pytest.raises(InkgroveError):
                    open_parcel(Parcel(INSTANCE, (JOHN,), changed), None)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(parcel([CREATE_AT, OTHER_AT]), id="a second instance"),
        pytest.param(parcel([CREATE_AT], instance=LOG.hash(OTHER_AT)), id="the create of another one"),
        pytest.param(parcel([CREATE_AT], extra=[11]), id="an entry outside of the pools"),
        pytest.param(Parcel(INSTANCE, (JOHN,), parcel([CREATE_AT]).entries[::-1]), id="not in order"),
        pytest.param(Parcel(INSTANCE, (JOHN,), [*parcel([CREATE_AT]).entries[:1]] * 2), id="an entry twice"),
        pytest.param(Parcel(INSTANCE, (JOHN,), [(LOG.entry(6).encoded, None)]), id="no payload"),
        pytest.param(
            Parcel(INSTANCE, (JOHN,), [*parcel([CREATE_AT]).entries, (build(2).entry(9).encoded, None)]),
            id="two logs",
        ),
    ],
)
def test_parcel_with_anything_but_one_instance_is_refused(wrong: Parcel) -> None:
    with raises("parcel.bad"):
        open_parcel(wrong, None)


def test_payload_of_another_entry_is_refused() -> None:
    entries = [(entry, LOG.payloads[0] if payload else None) for entry, payload in parcel([CREATE_AT]).entries]
    with pytest.raises(PayloadHashMismatch):
        open_parcel(Parcel(INSTANCE, (JOHN,), entries), None)


def test_other_people_say_nothing_about_an_instance() -> None:
    theirs = LogBuilder(key(3))
    theirs.append(encode_message(Create(SCHEMA, {})))
    for number in range(2, HEIGHT + 1):
        reference = INSTANCE if number % 2 else CREATE_AT
        theirs.append(encode_message(Update(SCHEMA, reference, {"subject": "Mine"}, Access("public"))))
    for place in (6, 7):
        with raises("parcel.bad", match="another log"):
            open_parcel(parcel([place], log=theirs), LOG.entry(CREATE_AT))


def test_change_that_stands_before_its_create_is_refused() -> None:
    log = LogBuilder()
    log.append(encode_message(Update(SCHEMA, 2, {"subject": "Early"})))
    log.append(encode_message(Create(SCHEMA, {})))
    entries = [(log.entry(n).encoded, log.payloads[n - 1]) for n in (1, 2)]
    with pytest.raises(InkgroveError):
        open_parcel(Parcel(log.hash(2), (JOHN,), entries), None)
    with raises("parcel.bad"):
        open_parcel(Parcel(log.hash(2), (JOHN,), entries), log.entry(2))


def test_identities_do_not_travel_in_parcels() -> None:
    for log_id in (0, 1):
        log = LogBuilder(key(1), log_id)
        log.append(encode_message(IdentityDocument("jane.haiku.ink", "https://evil.ink")))
        with raises("parcel.bad"):
            open_parcel(Parcel(log.hash(1), (JOHN,), [(log.entry(1).encoded, log.payloads[0])]), None)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"form": DELIVERY_FORMAT},
        {"form": "inkgrove delivery 2", "via": b"v" * 32, "parcels": [{}]},
        {"form": DELIVERY_FORMAT, "via": b"v" * 31, "parcels": [{}]},
        {"form": DELIVERY_FORMAT, "via": b"v" * 32, "parcels": []},
        {"form": DELIVERY_FORMAT, "via": b"v" * 32, "parcels": [{}]},
        {
            "form": DELIVERY_FORMAT,
            "via": b"v" * 32,
            "parcels": [{"instance": b"i", "recipients": [], "entries": [[b"e"]]}],
        },
        {
            "form": DELIVERY_FORMAT,
            "via": b"v" * 32,
            "parcels": [{"instance": b"i", "recipients": [b"r" * 32], "entries": [[]]}],
        },
        {
            "form": DELIVERY_FORMAT,
            "via": b"v" * 32,
            "parcels": [{"instance": 1, "recipients": [b"r" * 32], "entries": [[b"e"]]}],
        },
    ],
)
def test_delivery_of_another_form_is_refused(value: cbor.Value) -> None:
    with raises("parcel.bad"):
        decode_delivery(cbor.encode(value))


def test_delivery_that_is_no_cbor_is_refused() -> None:
    with raises("parcel.bad"):
        decode_delivery(b"\xff")

"""Messages: CBOR and YAML round trips, the lenient forms that are read, salt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import (
    UNSET,
    Access,
    Create,
    Delete,
    FieldChange,
    FurtherKey,
    IdentityDocument,
    InstanceMessage,
    KeyOf,
    Message,
    RevokedLog,
    SchemaId,
    SchemaMeta,
    SchemaMigration,
    SchemaRevert,
    SchemaVersion,
    Update,
    cbor,
    decode_message,
    encode_message,
    encode_salted,
    parse_timestamp,
    with_salt,
)
from inkgrove.messages.yaml_form import parse_messages, parse_values, render_messages
from tests.support.errors import raises
from tests.support.tiers import amount
from tests.unit.messages.test_cbor import TEXTS, TIMESTAMPS, VALUES

AUTHOR = PublicKey(bytes.fromhex("88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"))
PLACEHOLDER = Hash(bytes.fromhex("98e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"))
SEEDS = """\
kind: create
schema: ["88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb", 12, 1]
fields:
  - subject: "Hello!\\n...friend"
  - body:                                  # fields may be empty
  - created: 2020-05-22T11:58:50+0000
---
kind: update
schema: ["88e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb", 12, 4]
instance: "98e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"
fields:
  - subject: Hello! ...friend
---
kind: delete
instance: "98e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"
"""


def test_the_seeds_three_messages_round_trip_through_cbor() -> None:
    messages = parse_messages(SEEDS)
    assert messages == [
        Create(
            SchemaVersion(AUTHOR, 12, 1),
            {
                "subject": "Hello!\n...friend",
                "body": None,
                "created": parse_timestamp("2020-05-22T11:58:50Z"),
            },
        ),
        Update(SchemaVersion(AUTHOR, 12, 4), PLACEHOLDER, {"subject": "Hello! ...friend"}),
        Delete(PLACEHOLDER),
    ]
    assert [decode_message(encode_message(message)) for message in messages] == messages
    assert parse_messages(render_messages(messages)) == messages


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,10}", fullmatch=True)
KEYS = st.binary(min_size=32, max_size=32).map(PublicKey)
IDENTITIES = st.binary(min_size=32, max_size=32).map(IdentityId)
VERSIONS = st.builds(SchemaVersion, KEYS, st.integers(1, 2**63 - 1), st.integers(1, 2**63 - 1))
INSTANCE_IDS = st.binary(min_size=1, max_size=66).map(Hash)
HASHES = st.binary(min_size=64, max_size=64).map(lambda data: Hash(b"\0\x40" + data)) | st.binary(
    min_size=32, max_size=32
).map(lambda data: Hash(b"\0\x20" + data))
REFS = st.integers(1, 2**63 - 1) | INSTANCE_IDS
FIELDS = st.dictionaries(NAMES, VALUES, max_size=4)
ACCESS = st.one_of(
    st.builds(Access, st.sampled_from(["self", "relations", "public", "listed"])),
    st.builds(Access, st.sampled_from(["closed", "listed"]), st.lists(IDENTITIES, max_size=3).map(tuple)),
)
MAYBE_SALT = st.none() | st.binary(max_size=512)
HOSTS = st.sampled_from(["jane.haiku.ink", "messages.schema.ink", "a.b"])
CHANGES = st.one_of(
    st.builds(FieldChange, NAMES, st.just("remove")),
    st.builds(
        FieldChange,
        NAMES,
        st.just("create"),
        TEXTS,
        st.none() | st.builds(SchemaId, KEYS, st.integers(1, 2**63 - 1)),
        st.none() | st.booleans(),
        st.just(UNSET) | st.none() | TEXTS,
        st.just(UNSET) | VALUES,
    ),
    st.builds(FieldChange, NAMES, st.just("update"), default=VALUES),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        Create,
        VERSIONS,
        FIELDS,
        st.none() | ACCESS,
        st.none() | TIMESTAMPS,
        st.none() | INSTANCE_IDS,
        MAYBE_SALT,
        st.none() | INSTANCE_IDS,
    ),
    st.builds(Update, VERSIONS, REFS, FIELDS, st.none() | ACCESS, st.just(UNSET) | st.none() | TIMESTAMPS, MAYBE_SALT),
    st.builds(Update, VERSIONS, REFS, st.just(UNSET), ACCESS, st.just(UNSET), MAYBE_SALT),
    st.builds(Delete, REFS, st.none() | VERSIONS, MAYBE_SALT),
    st.builds(SchemaMeta, NAMES, *[st.none() | TEXTS] * 4, st.none() | HOSTS),
    st.lists(CHANGES, min_size=1, max_size=4, unique_by=lambda change: change.name).map(tuple).map(SchemaMigration),
    st.builds(SchemaRevert, st.integers(1, 2**63 - 1)),
    st.builds(
        IdentityDocument,
        HOSTS,
        st.sampled_from(["https://haiku.ink", "http://127.0.0.1:8080/x"]),
        st.none() | TEXTS,
        st.dictionaries(TEXTS, TEXTS, max_size=3),
        st.lists(
            st.builds(
                FurtherKey,
                KEYS,
                st.none()
                | st.lists(
                    st.builds(RevokedLog, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
                    | st.builds(RevokedLog, st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1), HASHES),
                    max_size=3,
                    unique_by=lambda end: end.log_id,
                ).map(tuple),
                st.none() | TEXTS,
            ),
            max_size=3,
            unique_by=lambda item: item.key,
        ).map(tuple),
        st.none() | KEYS,
        st.none() | HASHES,
        st.booleans(),
    ),
    st.builds(KeyOf, IDENTITIES),
)


@given(MESSAGES)
def test_every_message_round_trips_through_cbor(message: Message) -> None:
    payload = encode_message(message)
    assert decode_message(payload) == message
    assert encode_message(decode_message(payload)) == payload


@settings(max_examples=amount(60, 200))
@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_every_message_round_trips_through_yaml(messages: list[Message]) -> None:
    again = parse_messages(render_messages(messages))
    assert [encode_message(message) for message in again] == [encode_message(message) for message in messages]


def test_lenient_forms_are_read() -> None:
    message = decode_message(
        cbor.encode(
            {
                "kind": "create",
                "schema": [AUTHOR.hex().upper(), 12, 1],
                "fields": {"b": 1, "a": 2},
                "copied_from": PLACEHOLDER.hex(),
                "continues": PLACEHOLDER.hex().upper(),
                "access": {"mode": "closed", "to": ["11" * 32]},
                "expires": "2030-01-01T00:00:00+0000",
            }
        )
    )
    assert message == Create(
        SchemaVersion(AUTHOR, 12, 1),
        {"b": 1, "a": 2},
        Access("closed", (IdentityId(b"\x11" * 32),)),
        parse_timestamp("2030-01-01T00:00:00Z"),
        PLACEHOLDER,
        continues=PLACEHOLDER,
    )


def test_fields_are_written_as_a_list_of_one_key_maps() -> None:
    payload = encode_message(Create(SchemaVersion(AUTHOR, 1, 1), {"z": 1, "a": 2}))
    assert cbor.decode(payload)["fields"] == [{"z": 1}, {"a": 2}]  # type: ignore[index, call-overload]


def test_payload_of_more_than_512_kib_is_refused_both_ways() -> None:
    create = Create(SchemaVersion(AUTHOR, 1, 1), {"a": "x" * 524_288})
    with raises("message.too-large"):
        encode_message(create)
    with raises("message.too-large"):
        decode_message(b"\0" * 524_289)
    with raises("message.over-limit"):
        decode_message(
            cbor.encode(
                {
                    "kind": "create",
                    "schema": [AUTHOR, 1, 1],
                    "fields": [],
                    "access": {"mode": "closed", "to": [AUTHOR] * 1025},
                }
            )
        )


INSTANCE_MESSAGES: st.SearchStrategy[InstanceMessage] = st.one_of(
    st.builds(Create, VERSIONS, FIELDS), st.builds(Update, VERSIONS, REFS, FIELDS), st.builds(Delete, REFS)
)


@settings(max_examples=amount(100, 300))
@given(INSTANCE_MESSAGES, st.integers(0, 600))
def test_salt_pads_to_a_multiple_of_128_bytes(message: InstanceMessage, extra: int) -> None:
    if isinstance(message, Create):
        message = Create(message.schema, {**message.fields, "padding": "x" * extra})
    salted = with_salt(message, lambda size: b"\7" * size)
    assert len(encode_message(salted)) % 128 == 0
    assert salted.salt is not None
    assert 16 <= len(salted.salt) <= 512


def test_message_without_room_for_salt_is_refused() -> None:
    with raises("message.too-large"):
        with_salt(Create(SchemaVersion(AUTHOR, 1, 1), {"a": "x" * 524_200}), lambda size: b"\7" * size)


@pytest.mark.parametrize("size", range(0, 300, 7))
def test_salted_payload_is_that_of_the_salted_message(size: int) -> None:
    def random_bytes(count: int) -> bytes:
        return b"\x64salt\x40"[:count].ljust(count, b"\7")

    for message in (
        Create(SchemaVersion(AUTHOR, 1, 1), {"a": "\x64salt@" * size, "b": b"\x64salt\x40"}),
        Delete(Hash(b"\x64salt\x40" * (size % 11 + 1))),
    ):
        payload = encode_salted(message, random_bytes)
        assert payload == encode_message(with_salt(message, random_bytes))
        assert len(payload) % 128 == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", "yaml.syntax"),
        ("a: &x 1\nb: *x", "yaml.syntax"),
        ("a: .nan", "yaml.syntax"),
        ("a: 1\na: 2", "yaml.duplicate-key"),
        ("1: 2", "yaml.syntax"),
        ("? [a]\n: 2", "yaml.syntax"),
        ("!!python/object:os.system {}", "yaml.syntax"),
        ("[" * 40, "yaml.syntax"),
        ("\0", "yaml.syntax"),
        ('a: !hex "zz"', "yaml.syntax"),
        ("a: 2020-13-01T00:00:00Z", "message.bad-timestamp"),
        ("a" * (2 * 524_288 + 1), "yaml.syntax"),
        ("a: !!bool foo", "yaml.syntax"),
        ('a: !!int ""', "yaml.syntax"),
        ("a: !!float x", "yaml.syntax"),
        ("a: !!map [x]", "yaml.syntax"),
        ("a: !!seq {x: 1}", "yaml.syntax"),
        ("a: !!str [x]", "yaml.syntax"),
        ("a: !!timestamp 2001-01-01 10:00:00", "yaml.syntax"),
        ("a: !!omap [x: 1]", "yaml.syntax"),
        ("a: !!binary aGk=", "yaml.syntax"),
        ('a: "\\UFFFFFFFF"', "yaml.syntax"),
        ("a: " + "9" * 5000, "yaml.syntax"),
    ],
)
def test_yaml_that_is_no_message_is_refused(text: str, error: str) -> None:
    with raises(error) as caught:
        parse_values(text)
    assert "\n" not in caught.value.message


def test_yaml_scalars_are_those_of_yaml_1_2() -> None:
    text = 'a: [no, yes, 012, 1_000, 1:30, 1e3, "2020-05-22T11:58:50Z", 2020-05-22, ~, true, -7, !hex "00ff"]'
    assert parse_values(text) == [
        {
            "a": [
                "no",
                "yes",
                "012",
                "1_000",
                "1:30",
                1000.0,
                "2020-05-22T11:58:50Z",
                "2020-05-22",
                None,
                True,
                -7,
                b"\0\xff",
            ]
        }
    ]


def test_unquoted_all_digit_key_gets_a_hint() -> None:
    with pytest.raises(InkgroveError, match="quoted"):
        parse_messages(f"kind: delete\nschema: [{'1' * 64}, 1, 1]\ninstance: 1")

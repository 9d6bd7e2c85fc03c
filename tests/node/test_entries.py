"""Publishing by entry: a client signs, the node verifies; forgeries and stale entries are refused and not stored."""

import threading
from base64 import b64encode
from typing import Any

import cbor2
import httpx
import pytest

from inkgrove.core import Flavour, IdentityId, SecretKey, decode_entry, hash_entry, parse_hash
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    FieldChange,
    FurtherKey,
    IdentityDocument,
    KeyOf,
    Message,
    RevokedLog,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Timestamp,
    Update,
    encode_message,
)
from inkgrove.node.identity import Caller, SchemaScope
from inkgrove.node.publishing import Appender, PublishEntries, PublishingCache, check_entries
from inkgrove.store.logs import IngestItem, find_entry, find_fork_proof, find_log, read_entries
from inkgrove.store.node import lock_keys, shares_of
from tests.support.logs import resign
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import Signer, as_json, count_entries, create, mail, make_schema, refusal, schema_id


@pytest.fixture
def signer(shared: RunningNode, jane: Person) -> Signer:
    """Jane, signing by herself."""
    return Signer(jane, shared.node.secret_key(jane.key))


def version(schema: str, number: int = 2) -> SchemaVersion:
    return SchemaVersion(*schema_id(schema), number)


def test_entry_signed_for_the_place_given_is_stored(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    place = signer.place(schema=schema)
    assert (place["log_id"], place["seq_num"], place["backlink"], place["lipmaa_link"]) == (2, 1, None, None)
    for seq_num in range(1, 6):
        place = signer.place(schema=schema)
        assert (place["log_id"], place["seq_num"]) == (2, seq_num)
        assert (place["lipmaa_link"] is not None) == (seq_num == 4)
        entry, payload = signer.sign(mail(schema, f"number {seq_num}"), place)
        answer = signer.post(entry, payload)
        assert (answer.status_code, answer.json()["status"]) == (201, "stored"), answer.text
        assert answer.json()["hash"] == hash_entry(entry).hex()
        assert answer.json()["position"]
    stored = shared.node.store.read(read_entries, signer.secret.public, 2)
    assert [item.entry.seq_num for item in stored] == [1, 2, 3, 4, 5]
    assert all(item.refusal is None for item in stored)


def test_both_ways_write_the_same_log(signer: Signer) -> None:
    schema = make_schema(signer.client)
    first = create(signer.client, schema, fields={"subject": "by content"})
    assert signer.publish(mail(schema, "by entry"), schema).status_code == 201
    third = create(signer.client, schema, fields={"subject": "by content"})
    assert (first["log_id"], first["seq_num"]) == (2, 1)
    assert (third["log_id"], third["seq_num"]) == (2, 3)


def test_schemas_are_published_by_entry_too(shared: RunningNode, signer: Signer) -> None:
    place = signer.place()
    assert signer.post(*signer.sign(SchemaMeta("notes"), place)).status_code == 201
    migration = SchemaMigration((FieldChange("subject", "create", "text"),))
    assert signer.post(*signer.sign(migration, signer.place(log_id=place["log_id"]))).status_code == 201
    schema = f"{place['author']}/{place['log_id']}"
    assert shared.anybody.get(f"/schemas/{schema}").json()["version"] == 2
    assert signer.publish(mail(schema), schema).status_code == 201
    invalid = signer.post(*signer.sign(migration, signer.place(log_id=place["log_id"])))
    assert refusal(invalid) == (422, "schema.field-exists")
    stray = signer.post(*signer.sign(migration, signer.place()))
    assert refusal(stray) == (422, "schema.not-a-schema")


@pytest.mark.parametrize("media_type", ["application/json", "application/cbor"])
def test_batch_gets_a_receipt_for_each_entry_in_the_order_given(
    shared: RunningNode, signer: Signer, media_type: str
) -> None:
    schema = make_schema(signer.client)
    items = log_of(signer, schema, 40)
    bad = items[10][0].encoded[:-1] + bytes([items[10][0].encoded[-1] ^ 1])
    offered = [(entry.encoded, payload) for entry, payload in [*items[5:], *items[:5]]] + [
        (bad, items[10][1]),
        (b"", b""),
    ]
    if media_type == "application/json":
        answer = signer.client.post("/entries", json={"entries": [as_json(*item) for item in offered]})
    else:
        body = cbor2.dumps({"entries": [{"entry": entry, "payload": payload} for entry, payload in offered]})
        answer = signer.client.post("/entries", content=body, headers={"Content-Type": media_type})
    assert answer.status_code == 200, answer.text
    receipts = answer.json()["receipts"]
    assert [receipt["status"] for receipt in receipts] == ["stored"] * 40 + ["refused"] * 2
    assert [receipt["hash"] for receipt in receipts[:35]] == [hash_entry(entry).hex() for entry, _ in items[5:]]
    assert [receipt["problem"]["code"] for receipt in receipts[40:]] == ["entry.bad-signature", "entry.truncated"]
    state = shared.node.store.read(find_log, signer.secret.public, 2)
    assert state is not None
    assert (state.height, state.held) == (40, 40)


def log_of(signer: Signer, schema: str, count: int) -> list[tuple[Any, bytes]]:
    """A log of creates, signed without asking for each place."""
    from tests.support.logs import LogBuilder

    log = LogBuilder(signer.secret, signer.place(schema=schema)["log_id"])
    return [(log.append(encode_message(mail(schema, f"number {n}"))), log.payloads[-1]) for n in range(count)]


def test_gap_in_a_batch_refuses_what_is_behind_it(signer: Signer) -> None:
    schema = make_schema(signer.client)
    items = log_of(signer, schema, 6)
    body = {"entries": [as_json(*item) for n, item in enumerate(items) if n != 3]}
    receipts = signer.client.post("/entries", json=body).json()["receipts"]
    assert [receipt["status"] for receipt in receipts] == ["stored"] * 3 + ["refused"] * 2
    for receipt in receipts[3:]:
        assert receipt["problem"]["code"] == "log.stale"
        assert receipt["problem"]["next"]["seq_num"] == 4


@pytest.mark.parametrize("count", [0, 1001])
def test_batches_have_1_to_1000_entries(signer: Signer, count: int) -> None:
    answer = signer.client.post("/entries", json={"entries": [{"entry": ""}] * count})
    assert refusal(answer) == (400, "request.invalid")


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"entry": 5},
        {"entry": "!!"},
        {"entry": "AA==", "more": 1},
        {"entries": {}},
        {"entries": [[]]},
        {"entries": [{}]},
    ],
)
def test_malformed_bodies_are_refused(signer: Signer, body: Any) -> None:
    assert refusal(signer.client.post("/entries", json=body)) == (400, "request.invalid")


# Stale clients


def test_stale_client_gets_the_new_arguments(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    place = signer.place(schema=schema)
    entry, payload = signer.sign(mail(schema, "first"), place)
    second, other = signer.sign(mail(schema, "second"), place)
    assert signer.post(entry, payload).status_code == 201
    answer = signer.post(second, other)
    assert refusal(answer) == (409, "log.stale")
    again = answer.json()["next"]
    assert (again["seq_num"], again["backlink"]) == (2, hash_entry(entry).hex())
    assert signer.post(*signer.sign(mail(schema, "second"), again)).status_code == 201
    assert shared.node.store.read(find_fork_proof, signer.secret.public, place["log_id"]) is None


def test_replayed_entry_is_known_and_stored_once(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    entry, payload = signer.sign(mail(schema), signer.place(schema=schema))
    assert signer.post(entry, payload).status_code == 201
    before = count_entries(shared)
    for _ in range(2):
        answer = signer.post(entry, payload)
        assert (answer.status_code, answer.json()["status"]) == (200, "known")
    answer = signer.client.post("/entries", json={"entries": [as_json(entry, payload)] * 3})
    assert [receipt["status"] for receipt in answer.json()["receipts"]] == ["known"] * 3
    assert count_entries(shared) == before


def test_twice_the_same_entry_in_a_batch_is_stored_once(signer: Signer) -> None:
    schema = make_schema(signer.client)
    item = signer.sign(mail(schema), signer.place(schema=schema))
    receipts = signer.client.post("/entries", json={"entries": [as_json(*item)] * 2}).json()["receipts"]
    assert [receipt["status"] for receipt in receipts] == ["stored", "known"]


# Forgeries: refused with their code, nothing stored


def refused(shared: RunningNode, answer: httpx.Response, before: int) -> tuple[int, str]:
    assert count_entries(shared) == before
    return refusal(answer)


def test_entry_of_another_hosted_identity_is_refused(shared: RunningNode, signer: Signer, john: Person) -> None:
    schema = make_schema(signer.client)
    entry, payload = signer.sign(mail(schema), signer.place(schema=schema))
    before = count_entries(shared)
    # John's token with Jane's good signature; then John's key under Jane's name.
    assert refused(shared, john.post("/entries", json=as_json(entry, payload)), before) == (
        403,
        "publish.foreign-author",
    )
    forged = resign(shared.node.secret_key(john.key), entry.encoded)
    for client in (john, signer.client):
        answer = client.post("/entries", json=as_json(forged, payload))
        assert refused(shared, answer, before) == (422, "entry.bad-signature")
    assert refusal(john.get("/publish/next", params={"author": signer.secret.public.hex(), "schema": schema})) == (
        403,
        "publish.foreign-author",
    )


def test_stranger_cannot_sign_for_a_hosted_identity(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    stranger = Signer(signer.client, SecretKey.from_seed(b"\x55" * 32))
    entry, payload = stranger.sign(mail(schema), signer.place(schema=schema))
    before = count_entries(shared)
    # A key of his own, good in itself but nobody's here; and his signature under her name.
    assert refused(shared, stranger.post(entry, payload), before) == (403, "publish.foreign-author")
    forged = entry.encoded[:1] + signer.secret.public + entry.encoded[33:]
    assert refused(shared, stranger.post(forged, payload), before) == (422, "entry.bad-signature")


def test_key_taken_from_the_message_is_not_believed(shared: RunningNode, signer: Signer) -> None:
    stranger = Signer(signer.client, SecretKey.from_seed(b"\x56" * 32))
    first = {"log_id": 0, "seq_num": 1, "lipmaa_link": None, "backlink": None, "hash": "yamf"}
    before = count_entries(shared)
    claim = stranger.post(*stranger.sign(KeyOf(signer.client.id), first))  # type: ignore[attr-defined]
    assert refused(shared, claim, before) == (403, "publish.foreign-author")
    fqdn: str = signer.client.fqdn  # type: ignore[attr-defined]
    document = IdentityDocument(fqdn, f"https://{fqdn}", keys=(FurtherKey(stranger.secret.public),))
    assert refused(shared, stranger.post(*stranger.sign(document, first)), before) == (403, "publish.foreign-author")


@pytest.mark.parametrize("position", [0, 1, 33, 34, 40, 60, 110, -64, -1])
def test_flipped_bit_is_refused(shared: RunningNode, signer: Signer, position: int) -> None:
    schema = make_schema(signer.client)
    assert signer.publish(mail(schema), schema).status_code == 201
    entry, payload = signer.sign(mail(schema), signer.place(schema=schema))
    flipped = bytearray(entry.encoded)
    flipped[position] ^= 1
    before = count_entries(shared)
    answer = signer.post(bytes(flipped), payload)
    assert refused(shared, answer, before)[0] in (403, 422)


def test_payload_must_be_the_one_that_was_signed(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    entry, payload = signer.sign(mail(schema), signer.place(schema=schema))
    before = count_entries(shared)
    assert refused(shared, signer.post(entry, payload + b"x"), before) == (422, "payload.hash-mismatch")
    assert refused(shared, signer.post(entry, None), before) == (422, "publish.payload-needed")
    # A size that the payload does not have would make the whole log invalid: it must not even become evidence.
    at = len(entry.encoded) - 64 - 66 - 1
    lie = bytearray(entry.encoded)
    assert lie[at] == entry.payload_size == 128
    lie[at] = 129
    answer = signer.post(resign(signer.secret, bytes(lie)), payload)
    assert refused(shared, answer, before) == (422, "payload.size-mismatch")


def test_lower_revision_is_refused(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    for _ in range(3):
        assert signer.publish(mail(schema), schema).status_code == 201
    old = {**signer.place(schema=schema), "seq_num": 1, "backlink": None, "lipmaa_link": None}
    before = count_entries(shared)
    assert refused(shared, signer.post(*signer.sign(mail(schema, "other"), old)), before) == (409, "log.stale")


def test_wrong_links_are_refused(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    assert signer.publish(mail(schema), schema).status_code == 201
    place = {**signer.place(schema=schema), "backlink": "0040" + "ab" * 64}
    before = count_entries(shared)
    assert refused(shared, signer.post(*signer.sign(mail(schema), place)), before) == (409, "log.stale")
    other = {**signer.place(schema=schema), "hash": "yasmf"}
    with pytest.raises(Exception, match="flavour"):
        signer.sign(mail(schema), other)


def test_fork_by_two_writers_cannot_come_about(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    place = signer.place(schema=schema)
    branches = [signer.sign(mail(schema, f"branch {n}"), place) for n in range(8)]
    answers: list[httpx.Response] = []

    def post(item: Any) -> None:
        with httpx.Client(base_url=shared.url, headers=dict(signer.client.headers), timeout=60) as client:
            answers.append(client.post("/entries", json=as_json(*item)))

    threads = [threading.Thread(target=post, args=(item,)) for item in branches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 7
    state = shared.node.store.read(find_log, signer.secret.public, place["log_id"])
    assert state is not None
    assert (state.height, state.held, state.invalid_from) == (1, 1, None)


def test_update_to_a_foreign_instance_is_refused(shared: RunningNode, signer: Signer, john: Person) -> None:
    schema = make_schema(signer.client)
    foreign = parse_hash(create(john, schema, fields={"subject": "John's"})["instance"])
    assert signer.publish(mail(schema), schema).status_code == 201
    nowhere = parse_hash("0040" + "ab" * 64)
    before = count_entries(shared)
    messages: list[Message] = [
        Update(version(schema), foreign, {"subject": "mine"}),
        Update(version(schema), nowhere, {"subject": "mine"}),
        Update(version(schema), 7, {"subject": "mine"}),
        Delete(foreign),
        Delete(nowhere, version(schema)),
    ]
    for message in messages:
        assert refused(shared, signer.publish(message, schema), before) == (403, "publish.foreign-instance")


# What a node does not write


def test_second_log_for_a_schema_is_refused_with_the_right_place(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    assert signer.publish(mail(schema), schema).status_code == 201
    before = count_entries(shared)
    answer = signer.post(*signer.sign(mail(schema), signer.place()))
    assert refused(shared, answer, before) == (409, "publish.second-log")
    assert signer.post(*signer.sign(mail(schema), answer.json()["next"])).status_code == 201


def test_schemas_are_not_mixed_in_a_log(shared: RunningNode, signer: Signer) -> None:
    mails, notes = make_schema(signer.client), make_schema(signer.client, "notes")
    assert signer.publish(mail(mails), mails).status_code == 201
    before = count_entries(shared)
    answer = signer.post(*signer.sign(mail(notes), signer.place(schema=mails)))
    assert refused(shared, answer, before) == (409, "publish.mixed-schemas")
    assert signer.post(*signer.sign(mail(notes), answer.json()["next"])).status_code == 201


def test_messages_in_the_wrong_kind_of_log_are_refused(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    assert signer.publish(mail(schema), schema).status_code == 201
    person: Any = signer.client
    document = IdentityDocument(person.fqdn, f"https://{person.fqdn}")
    before = count_entries(shared)
    cases: list[tuple[Message, dict[str, Any]]] = [
        (mail(schema), signer.place(log_id=0)),
        (SchemaMeta("a"), signer.place(log_id=0)),
        (mail(schema), signer.place(log_id=schema_id(schema).log_id)),
        (SchemaMeta("a"), signer.place(schema=schema)),
        (document, signer.place(schema=schema)),
        (KeyOf(person.id), signer.place(log_id=0)),
    ]
    for message, place in cases:
        assert refused(shared, signer.post(*signer.sign(message, place)), before) == (422, "publish.wrong-log")


@pytest.mark.parametrize(
    ("fields", "number", "status", "code"),
    [
        ({"subject": 5}, 2, 422, "instance.wrong-type"),
        ({"none": 5}, 2, 422, "instance.unknown-field"),
        ({"subject": "#"}, 2, 422, "instance.failed-validation"),
        ({"subject": "a"}, 9, 422, "publish.would-not-apply"),
    ],
)
def test_messages_that_would_be_quarantined_are_refused(
    shared: RunningNode, signer: Signer, fields: dict[str, Any], number: int, status: int, code: str
) -> None:
    schema = make_schema(signer.client)
    before = count_entries(shared)
    answer = signer.publish(Create(version(schema, number), fields), schema)
    assert refused(shared, answer, before) == (status, code)


def test_malformed_payloads_are_refused(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    before = count_entries(shared)
    for payload, code in [(b"\xff", "cbor.indefinite-length"), (b"\xa0", "message.unknown-kind")]:
        answer = signer.post(*signer.sign(payload, signer.place(schema=schema)))
        assert refused(shared, answer, before) == (422, code)


def test_older_version_on_the_live_path_is_taken_and_others_are_not(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    for body in ({"fields": [{"mood": {"action": "create", "type": "text"}}]}, {"target": 2}):
        assert signer.client.post(f"/schemas/{schema}/versions", json=body).status_code == 201
    assert signer.publish(mail(schema, version=2), schema).status_code == 201
    before = count_entries(shared)
    answer = signer.publish(mail(schema, version=3), schema)
    assert refused(shared, answer, before) == (422, "publish.would-not-apply")
    assert (answer.json()["outcome"], answer.json()["reason"]) == ("obsolete", "schema.off-live-path")


def test_changes_in_one_batch_see_each_other(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    from tests.support.logs import LogBuilder

    log = LogBuilder(signer.secret, signer.place(schema=schema)["log_id"])
    log.append(encode_message(mail(schema)))
    instance = hash_entry(log.entry(1))
    elsewhere = IdentityId(bytes(range(32)))
    messages: list[Message] = [
        Update(version(schema), instance, {"stars": 1}),
        Update(version(schema), 1, {"stars": 2}, Access("closed", (elsewhere,))),
        Update(version(schema), instance, expires=Timestamp(0)),
        Delete(1),
    ]
    for message in messages:
        log.append(encode_message(message))
    after = LogBuilder(signer.secret, log.log_id)
    after.entries, after.payloads = [*log.entries], [*log.payloads]
    after.append(encode_message(Update(version(schema), instance, {"stars": 3})))
    items = zip(after.entries, after.payloads, strict=True)
    receipts = signer.client.post("/entries", json={"entries": [as_json(*item) for item in items]}).json()["receipts"]
    assert [receipt["status"] for receipt in receipts] == ["stored"] * 5 + ["refused"]
    assert receipts[5]["problem"]["reason"] == "instance.after-delete"
    with shared.node.database.reading() as connection:
        assert shares_of(connection, instance) == [elsewhere]


def test_ended_log_takes_no_more(signer: Signer) -> None:
    schema = make_schema(signer.client)
    place = signer.place(schema=schema)
    assert signer.post(*signer.sign(mail(schema), place, is_end_of_log=True)).status_code == 201
    answer = signer.client.get("/publish/next", params={"schema": schema})
    assert refusal(answer) == (422, "log.ended")
    assert refusal(signer.client.post("/instances", json={"schema": schema})) == (422, "log.ended")


def test_yasmf_log_is_carried_on_in_its_own_hash(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    place = {**signer.place(schema=schema), "hash": "yasmf"}
    assert signer.post(*signer.sign(mail(schema), place)).status_code == 201
    second = create(signer.client, schema, fields={"subject": "by the node"})
    stored = shared.node.store.read(find_entry, parse_hash(second["entry"]))
    assert stored is not None
    assert (stored.entry.flavour, stored.entry.seq_num) == (Flavour.YASMF, 2)


# Further keys


def add_document(signer: Signer, *keys: FurtherKey) -> httpx.Response:
    person: Any = signer.client
    document = IdentityDocument(person.fqdn, f"https://{person.fqdn}", keys=keys)
    return signer.post(*signer.sign(document, signer.place(log_id=0)))


def test_further_key_publishes_until_it_is_revoked(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    second = Signer(signer.client, SecretKey.from_seed(b"\x60" + shared.node.random_bytes(31)))
    person: Any = signer.client
    first = {"log_id": 0, "seq_num": 1, "lipmaa_link": None, "backlink": None, "hash": "yamf"}
    claim = second.sign(KeyOf(person.id), first)
    assert refusal(second.post(*claim)) == (403, "publish.foreign-author")
    assert add_document(signer, FurtherKey(second.secret.public)).status_code == 201
    assert second.post(*claim).status_code == 201
    assert second.publish(mail(schema), schema).status_code == 201
    entry, payload = second.sign(mail(schema), second.place(schema=schema))
    assert (
        add_document(signer, FurtherKey(second.secret.public, (RevokedLog(0, 1), RevokedLog(1, 1)))).status_code == 201
    )
    before = count_entries(shared)
    assert refused(shared, second.post(entry, payload), before) == (403, "publish.revoked-key")


def test_document_keeps_the_name_that_the_node_serves(shared: RunningNode, signer: Signer) -> None:
    document = IdentityDocument("other.haiku.ink", "https://other.haiku.ink")
    answer = signer.post(*signer.sign(document, signer.place(log_id=0)))
    assert refusal(answer) == (403, "auth.not-allowed")


def test_document_names_no_other_node_than_the_one_that_serves_it(shared: RunningNode, signer: Signer) -> None:
    before = count_entries(shared)
    document = IdentityDocument(signer.client.fqdn, "https://mallory.ink")  # type: ignore[attr-defined]
    answer = signer.post(*signer.sign(document, signer.place(log_id=0)))
    assert refused(shared, answer, before) == (422, "identity.bad-document")


# Services


def plan_as(shared: RunningNode, caller: Caller, items: list[IngestItem]) -> list[str | None]:
    """The codes that a caller gets for entries; nothing is written."""
    offer = check_entries(items)
    with shared.node.database.reading() as connection:
        identity = caller.identity
        assert identity is not None
        keys = {}
        for key in shared.node.database.write(lambda c: lock_keys(c, [identity])).values():
            keys[key.author] = key
        appender = Appender(shared.node, connection, keys, PublishingCache(), 10)
        finish = PublishEntries(offer).plan(appender, caller)
        return [receipt.error.code if receipt.error else None for receipt in finish().body["receipts"]]


def test_service_publishes_only_what_its_scopes_say(shared: RunningNode, signer: Signer) -> None:
    schema = make_schema(signer.client)
    person: Any = signer.client
    instance = parse_hash(create(signer.client, schema, fields={"subject": "a"})["instance"])
    place = signer.place(schema=schema)
    offers: dict[str, IngestItem] = {
        "create": signer.sign(mail(schema), place),
        "update": signer.sign(Update(version(schema), instance, {"stars": 1}), place),
        "delete": signer.sign(Delete(instance), place),
    }
    for granted in ("create", "update", "delete", "read"):
        scope = SchemaScope(schema_id(schema), granted)  # type: ignore[arg-type]
        caller = Caller(person.id, grant=1, client="mailer", scopes=frozenset({scope}))
        for action, item in offers.items():
            expected = None if action == granted else "auth.out-of-scope"
            assert plan_as(shared, caller, [item]) == [expected], (granted, action)
    everything = frozenset(SchemaScope(schema_id(schema), action) for action in ("create", "update", "delete"))  # type: ignore[arg-type]
    caller = Caller(person.id, grant=1, client="mailer", scopes=everything)
    assert plan_as(shared, caller, [signer.sign(SchemaMeta("a"), signer.place())]) == ["auth.not-allowed"]


def test_json_needs_standard_base64(signer: Signer) -> None:
    schema = make_schema(signer.client)
    entry, payload = signer.sign(mail(schema), signer.place(schema=schema))
    spaced = b64encode(entry.encoded).decode() + "\n"
    answer = signer.client.post("/entries", json={**as_json(entry, payload), "entry": spaced})
    assert refusal(answer) == (400, "request.invalid")
    assert decode_entry(entry.encoded) == entry

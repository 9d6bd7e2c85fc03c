"""Publishing by content: the node checks, signs and appends."""

import json
import threading
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from inkgrove.core import IdentityId, parse_hash, parse_public_key
from inkgrove.messages import UNSET, Access, Create, Delete, Update, decode_message, parse_timestamp
from inkgrove.store.db import idempotency
from inkgrove.store.logs import find_entry, find_log
from inkgrove.store.node import shares_of
from tests.support.built_views import add_row, build_view
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import FIELDS, count_entries, create, make_schema, refusal

BLOB = {"hash": "0040" + "ab" * 64, "size": 12, "type": "image/png"}
EVERYTHING = {
    "subject": "Hello",
    "stars": 5,
    "sent": "2020-05-22T14:38:50+02:00",
    "answers": "0040" + "cd" * 64,
    "picture": BLOB,
    "tags": ["slow", "green"],
    "weight": 4,
    "read": True,
}


def message_of(shared: RunningNode, entry: str) -> Any:
    stored = shared.node.store.read(find_entry, parse_hash(entry))
    assert stored is not None
    assert stored.refusal is None
    assert stored.payload is not None
    return decode_message(stored.payload)


def patch(client: httpx.Client, instance: str, operations: Any, **query: str) -> httpx.Response:
    headers = {"Content-Type": "application/json-patch+json"}
    return client.patch(f"/instances/{instance}", content=json.dumps(operations), headers=headers, params=query)


def merge(client: httpx.Client, instance: str, change: Any, **query: str) -> httpx.Response:
    headers = {"Content-Type": "application/merge-patch+json"}
    return client.patch(f"/instances/{instance}", content=json.dumps(change), headers=headers, params=query)


def test_new_instance_is_a_signed_create_with_typed_values(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    answer = create(jane, schema, fields=EVERYTHING, expires="2030-01-01T00:00:00Z")
    assert answer.keys() == {"instance", "entry", "author", "log_id", "seq_num", "position"}
    assert (answer["instance"], answer["log_id"], answer["seq_num"]) == (answer["entry"], 2, 1)
    message = message_of(shared, answer["entry"])
    assert isinstance(message, Create)
    assert message.schema.version == 2
    assert message.fields == {
        "subject": "Hello",
        "stars": 5,
        "sent": parse_timestamp("2020-05-22T12:38:50Z"),
        "answers": bytes.fromhex("0040" + "cd" * 64),
        "picture": {"hash": bytes.fromhex("0040" + "ab" * 64), "size": 12, "type": "image/png"},
        "tags": ["slow", "green"],
        "weight": 4.0,
        "read": True,
    }
    assert message.expires == parse_timestamp("2030-01-01T00:00:00Z")


def test_all_payloads_are_salted_and_padded_public_ones_too(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    hidden = create(jane, schema, fields={"subject": "a"})
    shown = create(jane, schema, fields={"subject": "a"}, access={"mode": "public"})
    updated = merge(jane, shown["instance"], {"fields": {"stars": 1}}).json()
    narrowed = merge(jane, shown["instance"], {"access": {"mode": "listed"}}).json()
    deleted = jane.delete(f"/instances/{shown['instance']}").json()
    salts = [message_of(shared, answer["entry"]).salt for answer in (hidden, shown, updated, narrowed, deleted)]
    for answer, salt in zip((hidden, shown, updated, narrowed, deleted), salts, strict=True):
        stored = shared.node.store.read(find_entry, parse_hash(answer["entry"]))
        assert stored is not None
        assert salt is not None
        assert len(salt) >= 16
        assert stored.entry.payload_size % 128 == 0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"nothing": 1}, "instance.unknown-field"),
        ({"stars": "5"}, "instance.wrong-type"),
        ({"stars": 5.0}, "instance.wrong-type"),
        ({"stars": True}, "instance.wrong-type"),
        ({"stars": 2**63}, "instance.wrong-type"),
        ({"sent": "2020-05-22T14:38:50"}, "instance.wrong-type"),
        ({"answers": "xyz"}, "instance.wrong-type"),
        ({"picture": {"hash": "00"}}, "instance.wrong-type"),
        ({"tags": ["x" * 256]}, "instance.wrong-type"),
        ({"tags": [None]}, "instance.wrong-type"),
        ({"subject": "#no"}, "instance.failed-validation"),
        ({"subject": "x" * 600_000}, "message.too-large"),
    ],
)
def test_what_the_schema_refuses_is_not_signed(
    shared: RunningNode, jane: Person, fields: dict[str, Any], code: str
) -> None:
    schema = make_schema(jane)
    before = count_entries(shared)
    answer = jane.post("/instances", json={"schema": schema, "fields": fields})
    assert refusal(answer) == (422, code)
    assert count_entries(shared) == before


def test_unknown_schema_and_schema_without_fields_are_refused(shared: RunningNode, jane: Person) -> None:
    nobody = "ab" * 32
    assert refusal(jane.post("/instances", json={"schema": f"{nobody}/1"})) == (404, "publish.unknown-schema")
    assert refusal(jane.post("/instances", json={"schema": "slothmail"})) == (404, "view.unknown")
    bare = jane.post("/schemas", json={"name": "bare"}).json()["schema"]
    answer = jane.post("/instances", json={"schema": bare})
    assert refusal(answer) == (422, "publish.would-not-apply")
    assert answer.json()["reason"] == "schema.no-fields-yet"


def test_publishing_needs_a_token_that_holds(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    body = {"schema": schema, "fields": {"subject": "a"}}
    assert refusal(shared.anybody.post("/instances", json=body)) == (401, "auth.required")
    assert refusal(shared.client("0" * 64).post("/instances", json=body)) == (401, "auth.bad-token")
    jane.delete("/sessions/current")
    assert refusal(jane.post("/instances", json=body)) == (401, "auth.bad-token")


def test_one_log_for_each_schema_and_author(shared: RunningNode, jane: Person, john: Person) -> None:
    mails, notes = make_schema(jane), make_schema(jane, "notes")
    places = [
        (answer["author"] == mails[:64], answer["log_id"], answer["seq_num"])
        for client, schema in [(jane, mails), (jane, notes), (jane, mails), (john, mails), (john, notes), (john, mails)]
        for answer in [create(client, schema, fields={"subject": "a"})]
    ]
    assert places == [(True, 3, 1), (True, 4, 1), (True, 3, 2), (False, 1, 1), (False, 2, 1), (False, 1, 2)]


# Changes


def test_json_patch_becomes_one_update_with_only_what_changed(shared: RunningNode, jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields=EVERYTHING)["instance"]
    operations = [
        {"op": "test", "path": "/fields/stars", "value": 5},
        {"op": "replace", "path": "/fields/subject", "value": "Hello again"},
        {"op": "add", "path": "/fields/tags/1", "value": "new"},
        {"op": "remove", "path": "/fields/picture"},
        {"op": "replace", "path": "/fields/weight", "value": 4.0},
        {"op": "replace", "path": "/fields/sent", "value": "2020-05-22T12:38:50Z"},
    ]
    answer = patch(jane, instance, operations)
    assert answer.status_code == 200, answer.text
    message = message_of(shared, answer.json()["entry"])
    assert isinstance(message, Update)
    assert message.instance == parse_hash(instance)
    assert message.fields == {"subject": "Hello again", "picture": None, "tags": ["slow", "new", "green"]}
    assert (message.access, message.expires) == (None, UNSET)


def test_patch_that_changes_nothing_makes_no_entry(shared: RunningNode, jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields=EVERYTHING)["instance"]
    before = count_entries(shared)
    for answer in (
        patch(jane, instance, []),
        merge(jane, instance, {"fields": {"stars": 5}, "expires": None}),
        jane.put(f"/instances/{instance}", json={"fields": EVERYTHING}),
    ):
        assert answer.status_code == 200, answer.text
        assert (answer.json()["instance"], answer.json()["changed"]) == (instance, False)
    assert count_entries(shared) == before


@pytest.mark.parametrize(
    ("operations", "status", "code"),
    [
        ([{"op": "test", "path": "/fields/stars", "value": 4}], 409, "publish.patch-failed"),
        ([{"op": "replace", "path": "/fields/none", "value": 4}], 409, "publish.patch-failed"),
        ([{"op": "jump", "path": "/fields"}], 400, "publish.bad-patch"),
        ({"op": "add"}, 400, "publish.bad-patch"),
        # Counted before anything is done for each step: nobody looks for these people.
        (
            [{"op": "add", "path": "/access/to/-", "value": f"n{n}.nowhere.example"} for n in range(1_001)],
            400,
            "publish.bad-patch",
        ),
        ([{"op": "add", "path": "/fields/none", "value": 1}], 422, "instance.unknown-field"),
        ([{"op": "replace", "path": "/fields/stars", "value": "x"}], 422, "instance.wrong-type"),
        ([{"op": "add", "path": "/instance", "value": "x"}], 422, "publish.bad-document"),
        ([{"op": "replace", "path": "", "value": 7}], 422, "publish.bad-document"),
        ([{"op": "replace", "path": "/fields", "value": []}], 422, "publish.bad-document"),
        ([{"op": "replace", "path": "/expires", "value": 7}], 422, "publish.bad-document"),
        ([{"op": "replace", "path": "/expires", "value": "soon"}], 422, "message.bad-timestamp"),
        ([{"op": "replace", "path": "/access", "value": {"mode": "all"}}], 422, "publish.bad-document"),
        ([{"op": "replace", "path": "/access", "value": {"mode": "self", "to": []}}], 422, "publish.bad-document"),
    ],
)
def test_patches_that_cannot_be_are_refused_whole(
    shared: RunningNode, jane: Person, operations: Any, status: int, code: str
) -> None:
    instance = create(jane, make_schema(jane), fields=EVERYTHING)["instance"]
    before = count_entries(shared)
    assert refusal(patch(jane, instance, operations)) == (status, code)
    assert count_entries(shared) == before


def test_merge_patch_sets_and_clears(shared: RunningNode, jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields=EVERYTHING, expires="2030-01-01T00:00:00Z")["instance"]
    answer = merge(jane, instance, {"fields": {"stars": None, "subject": "x"}, "expires": None})
    message = message_of(shared, answer.json()["entry"])
    assert message.fields == {"subject": "x", "stars": None}
    assert message.expires is None


def test_put_replaces_all_fields_and_keeps_access(shared: RunningNode, jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "a", "stars": 1}, access={"mode": "public"})[
        "instance"
    ]
    message = message_of(shared, jane.put(f"/instances/{instance}", json={"fields": {"subject": "b"}}).json()["entry"])
    assert message.fields == {"subject": "b", "stars": None}
    assert message.access is None


def test_patch_of_another_media_type_is_refused(jane: Person) -> None:
    answer = jane.patch(f"/instances/0040{'ab' * 64}", json=[])
    assert refusal(answer) == (415, "request.unsupported-media-type")


def test_change_is_judged_by_the_newest_version(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    instance = create(jane, schema, fields={"subject": "a", "stars": 1})["instance"]
    change = {"stars": {"action": "update", "type": "text", "default": None}}
    jane.post(f"/schemas/{schema}/versions", json={"fields": [change, {"mood": {"action": "create", "type": "text"}}]})
    assert refusal(merge(jane, instance, {"fields": {"stars": 2}})) == (422, "instance.wrong-type")
    answer = patch(
        jane,
        instance,
        [{"op": "test", "path": "/fields/stars", "value": "1"}, {"op": "add", "path": "/fields/mood", "value": "good"}],
    )
    message = message_of(shared, answer.json()["entry"])
    assert (message.schema.version, message.fields) == (3, {"mood": "good"})


def test_deleted_instance_is_gone(shared: RunningNode, jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "a"})["instance"]
    answer = jane.delete(f"/instances/{instance}")
    assert answer.status_code == 200
    assert isinstance(message_of(shared, answer.json()["entry"]), Delete)
    assert refusal(jane.delete(f"/instances/{instance}")) == (404, "view.unknown-instance")
    assert refusal(merge(jane, instance, {"fields": {"subject": "b"}})) == (404, "view.unknown-instance")


def test_foreign_instance_cannot_be_changed_and_does_not_show(shared: RunningNode, jane: Person, john: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "a"})["instance"]
    before = count_entries(shared)
    unseen = (404, "view.unknown-instance")
    assert refusal(merge(john, instance, {"fields": {"subject": "b"}})) == unseen
    assert refusal(john.put(f"/instances/{instance}", json={"fields": {}})) == unseen
    assert refusal(john.delete(f"/instances/{instance}")) == unseen
    assert refusal(john.post(f"/instances/{instance}/copy", json={})) == unseen
    assert refusal(john.post(f"/instances/{instance}/share", json={"recipients": [john.fqdn]})) == unseen
    assert refusal(john.delete("/instances/nonsense")) == unseen
    assert count_entries(shared) == before


# Access and shares


def test_widening_is_refused_unless_the_history_may_show(shared: RunningNode, jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "a"}, access={"mode": "self"})["instance"]
    for mode in ("listed", "public"):
        answer = merge(jane, instance, {"access": {"mode": mode}})
        assert refusal(answer) == (409, "publish.shows-history")
        assert "copy" in answer.json()["detail"]
    answer = merge(jane, instance, {"access": {"mode": "public"}}, history="show")
    assert message_of(shared, answer.json()["entry"]).access == Access("public")
    assert merge(jane, instance, {"access": {"mode": "self"}}).status_code == 200


NEW_WORDS: dict[str, tuple[str, str | None]] = {
    "self": ("self", None),
    "closed to nobody": ("closed", ""),
    "closed to jane": ("closed", "jane"),
    "closed to john": ("closed", "john"),
    "closed to the follower": ("closed", "follower"),
    "closed to mary": ("closed", "mary"),
    "closed to john and mary": ("closed", "john mary"),
    "listed": ("listed", None),
    "listed to john": ("listed", "john"),
    "listed to the follower": ("listed", "follower"),
    "listed to mary": ("listed", "mary"),
    "relations": ("relations", None),
    "public": ("public", None),
}
NEWCOMERS = {"closed to mary", "closed to john and mary"}
WIDER: dict[str, set[str]] = {
    "self": NEW_WORDS.keys() - {"self", "closed to nobody", "closed to jane"},
    "closed": NEW_WORDS.keys() - {"self", "closed to nobody", "closed to jane", "closed to john"},
    "listed": {*NEWCOMERS, "closed to the follower", "relations", "public"},
    "relations": {*NEWCOMERS, "closed to john", "listed to john", "listed to mary", "public"},
    "public": set(),
}
"""For each mode so far the new words that let somebody see the past who could not: mary is new, john was sent it."""


@pytest.mark.parametrize("mode", WIDER)
def test_word_that_lets_somebody_new_see_the_past_is_refused(shared: RunningNode, jane: Person, mode: str) -> None:
    with Person(shared, f"john.{jane.fqdn}") as john, Person(shared, f"follower.{jane.fqdn}") as follower:
        ids = {"jane": jane.id.hex(), "john": john.id.hex(), "follower": follower.id.hex(), "mary": "07" * 32}
        follower.put(f"/me/following/{jane.fqdn}", json={})
        jane.put(f"/me/followers/{follower.fqdn}", json={"state": "accepted"})
    schema = make_schema(jane)
    sent = {} if mode in ("self", "relations") else {"recipients": [ids["john"]]}
    found = set()
    for name, (new, named) in NEW_WORDS.items():
        instance = create(jane, schema, fields={"subject": "a"}, access={"mode": mode}, **sent)["instance"]
        word = {"mode": new} if named is None else {"mode": new, "to": [ids[to] for to in named.split()]}
        change = [{"op": "replace", "path": "/access", "value": word}]
        answer = patch(jane, instance, change)
        if answer.status_code != 200:
            assert refusal(answer) == (409, "publish.shows-history"), name
            assert patch(jane, instance, change, history="show").status_code == 200
            found.add(name)
    assert found == WIDER[mode]


def test_whoever_was_just_sent_an_instance_is_not_new_to_it(shared: RunningNode, jane: Person, john: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "a"})["instance"]
    assert jane.post(f"/instances/{instance}/share", json={"recipients": [john.fqdn]}).status_code == 200
    assert merge(jane, instance, {"access": {"mode": "closed", "to": [john.fqdn]}}).status_code == 200


def test_word_on_access_cannot_be_taken_back(jane: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "a"}, access={"mode": "public"})["instance"]
    assert refusal(merge(jane, instance, {"access": None})) == (422, "publish.bad-document")


def test_recipients_are_named_by_id_or_by_name_and_kept(shared: RunningNode, jane: Person, john: Person) -> None:
    stranger = IdentityId(b"\7" * 32)
    schema = make_schema(jane)
    listed = create(jane, schema, fields={}, recipients=[john.fqdn, stranger.hex(), john.id.hex()])
    closed = create(jane, schema, fields={}, access={"mode": "closed"}, recipients=[john.fqdn])
    later = create(jane, schema, fields={})
    answer = jane.post(f"/instances/{later['instance']}/share", json={"recipients": [john.fqdn]})
    assert answer.json()["recipients"] == [john.id.hex()]
    with shared.node.database.reading() as connection:
        found = [shares_of(connection, parse_hash(item["instance"])) for item in (listed, closed, later)]
    assert found == [sorted([john.id, stranger]), [john.id], [john.id]]
    assert message_of(shared, closed["entry"]).access == Access("closed", (john.id,))


def test_recipients_that_access_shuts_out_are_refused(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    other = "07" * 32
    before = count_entries(shared)
    for access in ({"mode": "self"}, {"mode": "closed", "to": ["08" * 32]}):
        body = {"schema": schema, "fields": {}, "access": access, "recipients": [other]}
        assert refusal(jane.post("/instances", json=body)) == (422, "publish.not-shareable")
    body = {"schema": schema, "fields": {}, "recipients": ["nobody.haiku.ink"]}
    assert refusal(jane.post("/instances", json=body)) == (404, "identity.unknown")
    assert count_entries(shared) == before


def test_expired_instance_is_not_passed_on(jane: Person, john: Person) -> None:
    schema = make_schema(jane)
    facts = {"fields": {"subject": "a"}, "recipients": [john.fqdn]}
    instance = create(jane, schema, expires="2001-01-01T00:00:00Z", **facts)["instance"]
    later = create(jane, schema, **facts)["instance"]
    assert merge(jane, later, {"expires": "2001-01-01T00:00:00Z"}).status_code == 200
    for expired in (instance, later):
        answer = john.post(f"/instances/{expired}/pass-on", json={"recipients": ["07" * 32]})
        assert refusal(answer) == (404, "view.unknown-instance")
    assert merge(jane, later, {"expires": None}).status_code == 200
    assert john.post(f"/instances/{later}/pass-on", json={"recipients": ["07" * 32]}).status_code == 200


def test_own_instance_can_be_copied(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    source = create(jane, schema, fields=EVERYTHING, access={"mode": "self"})
    answer = jane.post(f"/instances/{source['instance']}/copy", json={"access": {"mode": "public"}})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/instances/{answer.json()['instance']}"
    copy, original = (message_of(shared, item["entry"]) for item in (answer.json(), source))
    assert copy.fields == original.fields
    assert (copy.copied_from, copy.access) == (parse_hash(source["instance"]), Access("public"))


def test_instance_that_one_sees_can_be_copied_and_not_changed(shared: RunningNode, jane: Person, john: Person) -> None:
    schema = make_schema(jane)
    view = build_view(shared.node, schema)
    sent = create(jane, schema, fields={"subject": "to John", "stars": 3}, recipients=[john.fqdn])
    kept = create(jane, schema, fields={"subject": "to nobody"})
    add_row(shared.node, view, sent, subject="to John", stars=3)
    add_row(shared.node, view, kept, subject="to nobody")
    answer = john.post(f"/instances/{sent['instance']}/copy", json={})
    assert answer.status_code == 201, answer.text
    copy = message_of(shared, answer.json()["entry"])
    assert {name: value for name, value in copy.fields.items() if value is not None} == {
        "subject": "to John",
        "stars": 3,
    }
    assert (answer.json()["author"], copy.copied_from) == (john.key.hex(), parse_hash(sent["instance"]))
    assert refusal(john.delete(f"/instances/{sent['instance']}")) == (403, "publish.foreign-instance")
    assert refusal(john.post(f"/instances/{kept['instance']}/copy", json={})) == (404, "view.unknown-instance")
    assert refusal(john.delete(f"/instances/{kept['instance']}")) == (404, "view.unknown-instance")


@pytest.mark.parametrize("mode", ["closed", "listed", "relations", "public"])
def test_copy_of_somebody_elses_keeps_its_access_unless_one_says_so(
    shared: RunningNode, jane: Person, john: Person, mode: str
) -> None:
    schema = make_schema(jane)
    view = build_view(shared.node, schema)
    mary = "07" * 32
    sent = {"recipients": [john.fqdn, mary]} if mode in ("closed", "listed") else {}
    john.put(f"/me/following/{jane.fqdn}", json={})
    jane.put(f"/me/followers/{john.fqdn}", json={"state": "accepted"})
    source = create(jane, schema, fields={"subject": "a"}, access={"mode": mode}, **sent)
    add_row(shared.node, view, source, message_of(shared, source["entry"]).access, subject="a")

    def copied(source_word: str | None = None, **facts: Any) -> Any:
        """The access of a copy, made both ways, or why there is none."""
        params = {} if source_word is None else {"source": source_word}
        answers = (
            john.post(f"/instances/{source['instance']}/copy", json=facts, params=params),
            john.post(
                "/instances",
                json={"schema": schema, "fields": {}, "copied_from": source["instance"], **facts},
                params=params,
            ),
        )
        found = [
            message_of(shared, answer.json()["entry"]).access if answer.status_code == 201 else refusal(answer)
            for answer in answers
        ]
        assert found[0] == found[1]
        return found[0]

    shown = (409, "publish.shows-source")
    stranger = "08" * 32
    assert copied() == (Access("closed") if mode == "closed" else None)
    assert copied(access={"mode": "self"}) == Access("self")
    assert copied(recipients=[jane.id.hex()]) == (Access("closed", (jane.id,)) if mode == "closed" else None)
    assert copied(recipients=[stranger]) == (shown if mode in ("closed", "relations") else None)
    assert copied(access={"mode": "listed"}) == (shown if mode == "closed" else Access("listed"))
    for wide in ("relations", "public"):
        assert copied(access={"mode": wide}) == (Access(wide) if mode == "public" else shown)
        assert copied("show", access={"mode": wide}) == Access(wide)
    if mode == "closed":
        assert copied(recipients=[mary]) == Access("closed", (IdentityId(b"\7" * 32),))
        assert copied("show", recipients=[stranger]) == Access("closed", (IdentityId(b"\10" * 32),))


@pytest.mark.parametrize("mode", ["listed", "relations", "public"])
def test_copy_of_somebody_elses_is_held_to_its_source_when_it_is_shared_later(
    shared: RunningNode, jane: Person, john: Person, mode: str
) -> None:
    schema = make_schema(jane)
    john.put(f"/me/following/{jane.fqdn}", json={})
    jane.put(f"/me/followers/{john.fqdn}", json={"state": "accepted"})
    sent = {"recipients": [john.fqdn]} if mode == "listed" else {}
    source = create(jane, schema, fields={"subject": "a"}, access={"mode": mode}, **sent)["instance"]

    def copy() -> str:
        """A copy that is for nobody else yet."""
        made = {"schema": schema, "fields": {"subject": "a"}, "copied_from": source}
        return str(john.post("/instances", json=made).json()["instance"])

    def outcome(answer: httpx.Response) -> object:
        return answer.status_code if answer.status_code == 200 else refusal(answer)

    shown, stranger = (409, "publish.shows-source"), {"recipients": ["08" * 32]}
    as_merge = {"Content-Type": "application/merge-patch+json"}
    for address in ("share", "pass-on"):
        answer = john.post(f"/instances/{copy()}/{address}", json=stranger)
        assert outcome(answer) == (shown if mode == "relations" else 200), address
    mine = copy()
    assert outcome(john.post(f"/instances/{mine}/share", json=stranger, params={"source": "show"})) == 200
    assert outcome(john.post(f"/instances/{mine}/share", json={"recipients": [jane.id.hex()]})) == 200
    wide = {"fields": {"subject": "a"}, "access": {"mode": "public"}}
    words = {"history": "show"}
    for method in ("PATCH", "PUT"):
        headers = as_merge if method == "PATCH" else {}
        mine = copy()
        answer = john.request(method, f"/instances/{mine}", json=wide, params=words, headers=headers)
        assert outcome(answer) == (200 if mode == "public" else shown), method
        said = {**words, "source": "show"}
        assert outcome(john.request(method, f"/instances/{mine}", json=wide, params=said, headers=headers)) == 200
    # One's own copies are one's own to show.
    own = create(jane, schema, fields={"subject": "a"}, copied_from=source)["instance"]
    assert outcome(jane.post(f"/instances/{own}/share", json=stranger)) == 200


def test_schema_is_found_by_name_if_only_one_has_it(shared: RunningNode, jane: Person, john: Person) -> None:
    first = make_schema(jane, "postcards")
    build_view(shared.node, first)
    answer = create(jane, "postcards", fields={"subject": "a"})
    assert str(message_of(shared, answer["entry"]).schema.schema_id) == first
    second = make_schema(john, "postcards")
    build_view(shared.node, second)
    refused = jane.post("/instances", json={"schema": "postcards", "fields": {}})
    assert refusal(refused) == (409, "view.ambiguous-name")
    assert sorted(refused.json()["candidates"]) == sorted([first, second])


# Idempotency


def test_key_is_kept_for_a_set_time(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    headers = {"Idempotency-Key": "k"}
    first = jane.post("/instances", json={"schema": schema, "fields": {"stars": 1}}, headers=headers)
    an_hour_too_old = shared.node.clock() - (shared.node.settings.idempotency_seconds + 3600) * 1_000_000
    with shared.node.database.writing() as connection:
        connection.execute(update(idempotency).where(idempotency.c.identity == jane.id).values(at=an_hour_too_old))
    second = jane.post("/instances", json={"schema": schema, "fields": {"stars": 2}}, headers=headers)
    assert (first.json()["seq_num"], second.json()["seq_num"]) == (1, 2)


def test_same_key_and_request_get_the_same_answer_once_done(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    body = {"schema": schema, "fields": {"subject": "a"}}
    headers = {"Idempotency-Key": "first"}
    answers = [jane.post("/instances", json=body, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 201]
    assert len({answer.text for answer in answers}) == 1
    other = jane.post("/instances", json={**body, "fields": {"subject": "b"}}, headers=headers)
    assert refusal(other) == (422, "publish.key-reused")
    assert refusal(jane.delete(f"/instances/{answers[0].json()['instance']}", headers=headers)) == (
        422,
        "publish.key-reused",
    )
    state = shared.node.store.read(find_log, parse_public_key(answers[0].json()["author"]), answers[0].json()["log_id"])
    assert state is not None
    assert state.height == 1


def test_refused_request_does_not_use_up_its_key(jane: Person) -> None:
    schema = make_schema(jane)
    headers = {"Idempotency-Key": "k"}
    assert (
        jane.post("/instances", json={"schema": schema, "fields": {"stars": "x"}}, headers=headers).status_code == 422
    )
    assert jane.post("/instances", json={"schema": schema, "fields": {"stars": 1}}, headers=headers).status_code == 201


def test_keys_of_two_identities_are_two_keys(jane: Person, john: Person) -> None:
    schema = make_schema(jane)
    body = {"schema": schema, "fields": {}}
    answers = [client.post("/instances", json=body, headers={"Idempotency-Key": "k"}) for client in (jane, john)]
    assert answers[0].json()["instance"] != answers[1].json()["instance"]


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_bad_keys_are_refused(jane: Person, key: str) -> None:
    answer = jane.post("/schemas", json={"name": "a"}, headers={"Idempotency-Key": key})
    assert refusal(answer) == (400, "request.invalid")


def test_concurrent_duplicates_are_done_once(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    body = {"schema": schema, "fields": {"subject": "a"}}
    texts: list[str] = []

    def post() -> None:
        with httpx.Client(base_url=shared.url, headers=dict(jane.headers)) as client:
            texts.append(client.post("/instances", json=body, headers={"Idempotency-Key": "k"}).text)

    threads = [threading.Thread(target=post) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 12
    assert len(set(texts)) == 1
    assert json.loads(texts[0])["seq_num"] == 1


# Schemas


def test_schema_shows_its_versions(jane: Person, shared: RunningNode) -> None:
    schema = make_schema(jane)
    assert (
        jane.post(f"/schemas/{schema}/versions", json={"fields": [{"stars": {"action": "remove"}}]}).json()["version"]
        == 3
    )
    assert jane.post(f"/schemas/{schema}/versions", json={"target": 2}).json()["version"] == 4
    shown = shared.anybody.get(f"/schemas/{schema}").json()
    assert (shown["name"], shown["version"], shown["live_path"]) == ("slothmail", 4, [1, 2, 4])
    assert [field["name"] for field in shown["fields"]] == [name for item in FIELDS for name in item]
    assert [len(version["fields"]) for version in shown["versions"]] == [0, 8, 7, 8]
    assert [version["parent"] for version in shown["versions"]] == [None, 1, 2, 2]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ({"fields": [{"subject": {"action": "create", "type": "text"}}]}, "schema.field-exists"),
        ({"fields": [{"none": {"action": "remove"}}]}, "schema.no-such-field"),
        ({"fields": [{"mood": {"action": "create", "type": "feeling"}}]}, "schema.unknown-type"),
        ({"fields": [{"mood": {"action": "create", "type": "integer", "default": "x"}}]}, "schema.bad-default"),
        ({"fields": [{"mood": {"action": "create", "type": "text", "validation": "("}}]}, "schema.bad-pattern"),
        ({"target": 3}, "schema.bad-revert-target"),
        ({"target": 0}, "message.bad-value"),
        ({"fields": []}, "message.bad-value"),
        ({"fields": [{"9": {"action": "remove"}}]}, "message.bad-name"),
    ],
)
def test_invalid_version_is_refused_and_not_signed(
    shared: RunningNode, jane: Person, version: dict[str, Any], code: str
) -> None:
    schema = make_schema(jane)
    before = count_entries(shared)
    assert refusal(jane.post(f"/schemas/{schema}/versions", json=version)) == (422, code)
    assert count_entries(shared) == before


def test_only_the_owner_adds_versions(shared: RunningNode, jane: Person, john: Person) -> None:
    schema = make_schema(jane)
    body = {"fields": [{"mood": {"action": "create", "type": "text"}}]}
    assert refusal(john.post(f"/schemas/{schema}/versions", json=body)) == (403, "publish.foreign-author")
    assert refusal(jane.post(f"/schemas/{schema[:64]}/99/versions", json=body)) == (404, "publish.unknown-schema")
    assert refusal(shared.anybody.get(f"/schemas/{schema[:64]}/99")) == (404, "publish.unknown-schema")
    assert refusal(jane.post(f"/schemas/{schema}/versions", json={"what": 1})) == (400, "request.invalid")


def test_relation_names_its_schema(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    fields = [{"mail": {"action": "create", "type": "relation", "schema": schema, "cascade": True}}]
    notes = make_schema(jane, "notes", fields)
    assert shared.anybody.get(f"/schemas/{notes}").json()["fields"][0]["schema"] == schema


def test_instances_never_go_into_the_log_of_a_schema(jane: Person) -> None:
    schema = make_schema(jane)
    instance = create(jane, schema, fields={"subject": "a"})
    assert (instance["author"], instance["log_id"]) != (schema[:64], int(schema[65:]))


def test_bodies_of_another_type_or_form_are_refused(shared: RunningNode, jane: Person) -> None:
    headers = {"Content-Type": "text/plain"}
    assert refusal(jane.post("/instances", content="{}", headers=headers)) == (415, "request.unsupported-media-type")
    assert refusal(jane.post("/entries", content="{}", headers=headers)) == (415, "request.unsupported-media-type")
    bodies: list[Any] = [{}, {"schema": 5}, {"schema": "a", "more": 1}, [], {"schema": "a", "access": {"mode": "all"}}]
    for body in bodies:
        assert refusal(jane.post("/instances", json=body)) == (400, "request.invalid")


def test_document_of_the_routes_can_be_made(shared: RunningNode) -> None:
    document = shared.anybody.get("/openapi.json").json()
    body = document["paths"]["/instances"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"].keys() == {"schema", "fields", "access", "expires", "recipients", "copied_from"}
    assert "$ref" not in json.dumps(body)

"""`dry_run=true`: what publishing would do, or why it would be refused; nothing is signed, stored or sent."""

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from inkgrove.node.identity import change_limits
from inkgrove.store.db import accesses, deliveries, entries, idempotency, ingests, logs, pending_recipients, shares
from inkgrove.store.logs import register_schema
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import create, make_schema, refusal, schema_id

TABLES = (entries, ingests, logs, shares, idempotency, accesses, deliveries, pending_recipients)
MERGE = {"Content-Type": "application/merge-patch+json"}


def rows(shared: RunningNode) -> list[int]:
    shared.node.access_log.flush()
    return [
        shared.node.database.read(lambda connection, table=table: connection.scalar(select(func.count(table.c[0]))))  # type: ignore[misc]
        for table in TABLES
    ]


def test_migration_is_tried_and_then_published_as_it_was_said(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    other = make_schema(jane, "other")
    author, other_log = other.split("/")
    change = {
        "fields": [
            {"colour": {"action": "create", "type": "text"}},
            {"stars": {"action": "update", "type": "text", "default": None}},
            {"sent": {"action": "remove"}},
            {"about": {"action": "create", "type": "relation", "schema": other, "cascade": True}},
        ]
    }
    shared.node.store.write(register_schema, schema_id(schema))
    before = rows(shared)
    answer = jane.post(f"/schemas/{schema}/versions", json=change, params={"dry_run": "true"})
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert {key: said[key] for key in ("dry_run", "changed", "schema", "version", "seq_num", "only_adds")} == {
        "dry_run": True,
        "changed": True,
        "schema": schema,
        "version": 3,
        "seq_num": 3,
        "only_adds": False,
    }
    assert {item["field"]: item["effect"] for item in said["findings"]} == {
        "colour": "adds",
        "stars": "keeps",
        "sent": "loses",
        "about": "adds",
    }
    # The node knows what its views would wait for.
    assert (said["materialised"], said["view_version"], said["waits_for"]) == (True, 2, [f"{author}/{other_log}"])
    assert "entry" not in said
    assert rows(shared) == before
    shared.node.store.write(register_schema, schema_id(other))
    again = jane.post(f"/schemas/{schema}/versions", json=change, params={"dry_run": "true"}).json()
    assert (again["view_version"], again["waits_for"]) == (3, [])
    done = jane.post(f"/schemas/{schema}/versions", json=change)
    assert done.status_code == 201
    assert (done.json()["version"], done.json()["log_id"]) == (said["version"], said["log_id"])


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fields": [{"subject": {"action": "create", "type": "text"}}]}, "schema.field-exists"),
        ({"fields": [{"nothing": {"action": "remove"}}]}, "schema.no-such-field"),
        ({"target": 7}, "schema.bad-revert-target"),
        ({"fields": [{"x": {"action": "create", "type": "colour"}}]}, "schema.unknown-type"),
    ],
)
def test_invalid_version_is_refused_by_a_trial_as_in_earnest(
    shared: RunningNode, jane: Person, change: dict[str, Any], code: str
) -> None:
    address = f"/schemas/{make_schema(jane)}/versions"
    tried = jane.post(address, json=change, params={"dry_run": "true"})
    done = jane.post(address, json=change)
    assert refusal(tried) == refusal(done)
    assert refusal(tried)[1] == code


def test_revert_and_first_version_can_be_tried(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    said = jane.post(f"/schemas/{schema}/versions", json={"target": 1}, params={"dry_run": "true"}).json()
    assert said["findings"] == [
        {
            "field": "*",
            "effect": "may-lose",
            "reason": "messages of versions that leave the live path become obsolete: 2",
        }
    ]
    before = rows(shared)
    new = jane.post("/schemas", json={"name": "another"}, params={"dry_run": "true"}).json()
    assert (new["version"], new["seq_num"], new["only_adds"]) == (1, 1, True)
    assert rows(shared) == before


def test_instance_is_tried_and_then_published_as_it_was_said(shared: RunningNode, jane: Person, john: Person) -> None:
    schema = make_schema(jane)
    create(jane, schema, fields={"subject": "first"})
    body = {"schema": schema, "fields": {"weight": 4, "subject": "Hello"}, "recipients": [john.fqdn]}
    before = rows(shared)
    answer = jane.post("/instances", json=body, params={"dry_run": "true"}, headers={"Idempotency-Key": "one"})
    assert answer.status_code == 200, answer.text
    assert "location" not in answer.headers
    said = answer.json()
    assert said["fields"] == {"subject": "Hello", "weight": 4.0}
    assert (said["version"], said["seq_num"], said["bytes"] % 128) == (2, 2, 0)
    assert rows(shared) == before
    done = jane.post("/instances", json=body, headers={"Idempotency-Key": "one"}).json()
    assert (done["author"], done["log_id"], done["seq_num"]) == (said["author"], said["log_id"], said["seq_num"])


def test_changes_and_the_end_of_an_instance_can_be_tried(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    instance = create(jane, schema, fields={"subject": "first", "stars": 3})["instance"]
    before = rows(shared)
    address, trial = f"/instances/{instance}", {"dry_run": "true"}
    merge = {"fields": {"subject": "second", "stars": 3}}
    said = jane.patch(address, content=json.dumps(merge), headers=MERGE, params=trial).json()
    assert (said["changed"], said["seq_num"], said["fields"]) == (True, 2, ["subject"])
    same = {"fields": {"stars": 3}}
    assert jane.patch(address, content=json.dumps(same), headers=MERGE, params=trial).json() == {
        "dry_run": True,
        "changed": False,
    }
    assert jane.put(address, json={"fields": {"subject": "x"}}, params=trial).json()["fields"] == ["stars", "subject"]
    assert jane.delete(address, params=trial).json()["seq_num"] == 2
    assert rows(shared) == before
    assert jane.get(address, params={"at_least": "0"}).status_code != 410


def test_recipient_that_is_not_found_yet_is_told_and_not_noted(shared: RunningNode, jane: Person) -> None:
    body = {"schema": make_schema(jane), "fields": {"subject": "Hello"}, "recipients": ["nobody.elsewhere.ink"]}
    before = rows(shared)
    tried = jane.post("/instances", json=body, params={"dry_run": "true"})
    assert rows(shared) == before
    done = jane.post("/instances", json=body)
    assert done.status_code == 201, done.text
    assert tried.json()["not_found_yet"] == done.json()["not_found_yet"] == ["nobody.elsewhere.ink"]


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"subject": 7}, 422), ({"weight": 10**400}, 400), ({"nothing": 1}, 422), ({"subject": "x" * 600_000}, 422)],
)
def test_instance_that_does_not_fit_is_refused_by_a_trial_as_in_earnest(
    shared: RunningNode, jane: Person, fields: dict[str, Any], status: int
) -> None:
    body = {"schema": make_schema(jane), "fields": fields}
    tried = jane.post("/instances", json=body, params={"dry_run": "true"})
    done = jane.post("/instances", json=body)
    assert refusal(tried) == refusal(done)
    assert tried.status_code == status


def test_trial_needs_the_rights_of_the_real_thing(shared: RunningNode, jane: Person, john: Person) -> None:
    schema = make_schema(jane)
    instance = create(jane, schema, fields={"subject": "private"})["instance"]
    trial = {"dry_run": "true"}
    version = {"fields": [{"x": {"action": "create", "type": "text"}}]}
    for client in (john, shared.anybody):
        for tried, done in (
            (client.delete(f"/instances/{instance}", params=trial), client.delete(f"/instances/{instance}")),
            (
                client.post(f"/schemas/{schema}/versions", json=version, params=trial),
                client.post(f"/schemas/{schema}/versions", json=version),
            ),
        ):
            assert refusal(tried) == refusal(done)
            assert tried.status_code >= 400


def test_trial_is_held_against_the_quota(shared: RunningNode, jane: Person) -> None:
    body = {"schema": make_schema(jane), "fields": {"subject": "Hello"}}
    change_limits(shared.node, jane.id, {"entries": 1})
    tried = jane.post("/instances", json=body, params={"dry_run": "true"})
    assert refusal(tried) == refusal(jane.post("/instances", json=body)) == (403, "quota.exceeded")


def test_what_cannot_be_tried_is_refused_and_not_done(shared: RunningNode, jane: Person, john: Person) -> None:
    instance = create(jane, make_schema(jane), fields={"subject": "first"})["instance"]
    before = rows(shared)
    body = {"recipients": [john.fqdn]}
    answers: list[httpx.Response] = [
        jane.post(f"/instances/{instance}/share", json=body, params={"dry_run": "true"}),
        jane.post(f"/instances/{instance}/copy", json={}, params={"dry_run": "true"}),
        jane.delete(f"/instances/{instance}", params={"dry_run": "perhaps"}),
    ]
    assert [answer.status_code for answer in answers] == [400] * 3
    assert rows(shared) == before
    assert jane.delete(f"/instances/{instance}", params={"dry_run": "false"}).status_code == 200

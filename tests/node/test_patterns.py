"""Patterns of new versions are compiled before the one writer is asked: nobody's publishing waits for them."""

import threading
from itertools import count
from typing import Any

import pytest
import re2

from inkgrove.messages import FieldChange, Message, SchemaMeta, SchemaMigration, encode_message
from inkgrove.node.runtime import SchemaCache
from inkgrove.schema import Schema
from inkgrove.schema import schema as folding
from tests.support.logs import LogBuilder
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import Signer, as_json, make_schema, refusal, schema_id

_NUMBERS = count(1)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which patterns were compiled, one for each time."""
    seen: list[str] = []
    compile_one = re2.compile

    def compile_noted(pattern: str, options: object = None) -> object:
        seen.append(threading.current_thread().name)
        return compile_one(pattern, options=options)

    monkeypatch.setattr(re2, "compile", compile_noted)
    return seen


def fresh(many: int) -> list[str]:
    """Patterns that nobody has used before."""
    return [f"number{next(_NUMBERS)}-[0-9]{{1,9}}" for _ in range(many)]


def fields_with(patterns: list[str], **more: Any) -> list[dict[str, Any]]:
    return [
        {f"f{next(_NUMBERS)}": {"action": "create", "type": "text", "validation": pattern, **more}}
        for pattern in patterns
    ]


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
def test_patterns_of_a_version_are_not_compiled_by_the_writer(jane: Person, threads: list[str], query: str) -> None:
    schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
    threads.clear()
    answer = jane.post(f"/schemas/{schema}/versions{query}", json={"fields": fields_with(fresh(20))})
    assert answer.status_code == (200 if query else 201), answer.text
    assert len(threads) == 20
    assert {name.partition("_")[0] for name in threads} == {"large-answers"}


def test_patterns_of_signed_entries_are_not_compiled_by_the_writer(
    shared: RunningNode, jane: Person, threads: list[str]
) -> None:
    signer = Signer(jane, shared.node.secret_key(jane.key))
    schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
    threads.clear()
    place = signer.place(log_id=schema.partition("/")[2])
    changes = [FieldChange(f"f{n}", "create", "text", validation=pattern) for n, pattern in enumerate(fresh(20))]
    answer = signer.post(*signer.sign(SchemaMigration(tuple(changes)), place))
    assert answer.status_code == 201, answer.text
    assert len(threads) == 20
    assert {name.partition("_")[0] for name in threads} == {"large-answers"}


def test_what_is_no_pattern_is_not_compiled_by_the_writer_either(
    shared: RunningNode, jane: Person, threads: list[str]
) -> None:
    signer = Signer(jane, shared.node.secret_key(jane.key))
    schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
    bad = [f"{pattern}(" for pattern in fresh(1)]
    threads.clear()
    answer = jane.post(f"/schemas/{schema}/versions", json={"fields": fields_with([*fresh(2), *bad])})
    assert refusal(answer) == (422, "schema.bad-pattern")
    place = signer.place(log_id=schema.partition("/")[2])
    change = FieldChange("f", "create", "text", validation=bad[0])
    assert refusal(signer.post(*signer.sign(SchemaMigration((change,)), place))) == (422, "schema.bad-pattern")
    assert {name.partition("_")[0] for name in threads} == {"large-answers"}


def test_nobody_has_patterns_compiled_without_a_token(shared: RunningNode, jane: Person, threads: list[str]) -> None:
    schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
    threads.clear()
    body = {"fields": fields_with(fresh(20))}
    assert refusal(shared.anybody.post(f"/schemas/{schema}/versions", json=body)) == (401, "auth.required")
    wrong = {"Authorization": "Bearer igs_wrong"}
    assert shared.anybody.post(f"/schemas/{schema}/versions", json=body, headers=wrong).status_code == 401
    assert not threads


def test_version_with_too_many_patterns_is_refused(jane: Person) -> None:
    schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
    answer = jane.post(f"/schemas/{schema}/versions", json={"fields": fields_with(fresh(129))})
    assert refusal(answer) == (422, "schema.too-many-patterns")
    answer = jane.post(f"/schemas/{schema}/versions", json={"fields": fields_with(fresh(1) * 200)})
    assert answer.status_code == 201, answer.text


def test_migrations_of_one_request_have_together_the_patterns_of_one_version(
    shared: RunningNode, jane: Person, threads: list[str]
) -> None:
    signer = Signer(jane, shared.node.secret_key(jane.key))
    items = []
    for _ in range(2):
        schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
        changes = [FieldChange(f"f{n}", "create", "text", validation=item) for n, item in enumerate(fresh(80))]
        place = signer.place(log_id=schema.partition("/")[2])
        items.append(as_json(*signer.sign(SchemaMigration(tuple(changes)), place)))
    threads.clear()
    refused = jane.post("/entries", json={"entries": items})
    assert refusal(refused) == (400, "request.invalid")
    assert "in parts" in refused.json()["detail"]
    assert not threads
    for item in items:
        assert jane.post("/entries", json={"entries": [item]}).json()["receipts"][0]["status"] == "stored"


# Versions are not folded again and again


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each version that a fold has made."""
    seen: list[int] = []
    append_one = folding.append_version

    def append_noted(schema: Schema, message: object) -> Schema:
        after = append_one(schema, message)
        seen.append(len(after.versions))
        return after

    monkeypatch.setattr(folding, "append_version", append_noted)
    return seen


def test_schema_that_has_grown_is_folded_from_there_on(shared: RunningNode, jane: Person, folded: list[int]) -> None:
    schema = make_schema(jane, f"patterns{next(_NUMBERS)}")
    schemas = SchemaCache(shared.node.database)
    for number in range(3, 9):
        change = {f"f{number}": {"action": "create", "type": "text", "validation": "x", "default": "x"}}
        body = {"fields": [change]} if number % 2 else {"name": f"name{number}"}
        assert jane.post(f"/schemas/{schema}/versions", json=body).status_code == 201
        folded.clear()
        read = schemas.read(schema_id(schema))
        assert folded == (list(range(1, number + 1)) if number == 3 else [number])
        assert read == SchemaCache(shared.node.database).read(schema_id(schema))
    assert read.meta is not None
    assert read.meta.name == "name8"


def log_of_versions(shared: RunningNode, jane: Person, versions: list[tuple[FieldChange, ...]]) -> list[dict[str, str]]:
    """A new log that defines a schema, as it is posted."""
    signer = Signer(jane, shared.node.secret_key(jane.key))
    log = LogBuilder(signer.secret, signer.place()["log_id"])
    messages: list[Message] = [SchemaMeta("many"), *map(SchemaMigration, versions)]
    for message in messages:
        log.append(encode_message(message))
    return [as_json(item.signed.entry, item.payload) for item in log.held()]


def test_versions_of_one_request_do_not_fold_those_before_them(
    shared: RunningNode, jane: Person, folded: list[int]
) -> None:
    changes: list[tuple[FieldChange, ...]] = [(FieldChange(f"f{number}", "create", "text"),) for number in range(60)]
    receipts = jane.post("/entries", json={"entries": log_of_versions(shared, jane, changes)}).json()["receipts"]
    assert [item["status"] for item in receipts] == ["stored"] * 61
    assert len(folded) <= 61


def test_migrations_of_one_request_change_so_many_fields(shared: RunningNode, jane: Person) -> None:
    several = [tuple(FieldChange(f"f{n}x{number}", "create", "text") for n in range(100)) for number in range(2)]
    several += [tuple(FieldChange(change.name, "remove") for change in version) for version in several]
    assert jane.post("/entries", json={"entries": log_of_versions(shared, jane, several)}).status_code == 200
    refused = jane.post("/entries", json={"entries": log_of_versions(shared, jane, several * 3)})
    assert refusal(refused) == (400, "request.invalid")
    assert "1,024 fields" in refused.json()["detail"]

"""Pages that list things are bounded in rows and in bytes, however many things there are and however long."""

import json
import re

import pytest

from inkgrove.messages import SchemaId
from inkgrove.node.runtime import SchemaCache
from inkgrove.pages import instances
from inkgrove.pages.schemas import ROWS
from inkgrove.store.logs import read_registered, register_schema
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id


def test_page_of_schemas_is_bounded_in_rows_and_bytes(shared: RunningNode, jane: Person) -> None:
    answer = jane.post("/schemas", json={"name": "aaaLongest", "description": "d" * 400_000})
    assert answer.status_code == 201, answer.text
    wanted = schema_id(answer.json()["schema"])
    others = [SchemaId(jane.key, number) for number in range(100, 100 + 2 * ROWS)]
    for name in (wanted, *others):
        shared.node.store.write(register_schema, name)
    shared.node.views.sync(shared.node.store.read(read_registered))
    address, seen = "/pages/schemas", set[str]()
    for _ in range(3):
        page = shared.anybody.get(address).text
        assert len(page) < 60_000
        found = set(re.findall(r'<h2><a href="/pages/schemas/([0-9a-f]{64}/[0-9]+)"', page))
        assert 0 < len(found) <= ROWS
        assert not found & seen
        seen |= found
        address = next(iter(re.findall(r'href="(/pages/schemas[?]page=[0-9]+)" rel="next"', page)), "")
    assert address == ""
    assert seen >= {str(name) for name in (wanted, *others)}
    beyond = shared.anybody.get("/pages/schemas?page=1000")
    assert beyond.status_code == 200
    assert "no more schemas" in beyond.text


def test_schemas_that_are_kept_are_bounded_in_bytes(shared: RunningNode, jane: Person) -> None:
    schemas = SchemaCache(shared.node.database, max_bytes=900_000)
    names = []
    for number in range(3):
        answer = jane.post("/schemas", json={"name": f"long{number}", "description": "d" * 400_000})
        names.append(schema_id(answer.json()["schema"]))
    first = schemas.read(names[0])
    assert schemas.read(names[1]) is not None
    assert schemas.read(names[0]) is first  # both fit
    schemas.read(names[2])
    assert schemas.read(names[0]) is not first
    large = schema_id(make_schema(jane, "small"))
    assert SchemaCache(shared.node.database, max_bytes=1).read(large) == schemas.read(large)


def test_page_of_a_value_makes_words_of_that_field_alone_and_cuts_earlier_ones(
    shared: RunningNode, jane: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["asked", *(f"other{number}" for number in range(5))]
    schema = make_schema(jane, "longPast", [{name: {"action": "create", "type": "text"}} for name in names])
    shared.node.store.write(register_schema, schema_id(schema))
    access = {"mode": "public"}
    row = create(jane, schema, fields=dict.fromkeys(names, "a" * 10_000), access=access)["instance"]
    for letter in "bcdefg":
        headers = {"Content-Type": "application/merge-patch+json"}
        change = {"fields": dict.fromkeys(names, letter * 10_000)}
        answer = jane.patch(f"/instances/{row}", content=json.dumps(change), headers=headers)
        assert answer.status_code < 300, answer.text
    build_views(shared.node)
    worded: list[str] = []
    cell = instances.cell  # type: ignore[attr-defined]

    def count(value: str, length: int) -> str:
        worded.append(value[0])
        return cell(value, length)

    monkeypatch.setattr(instances, "cell", count)
    page = shared.anybody.get(f"/pages/instances/{row}/fields/asked").text
    assert sorted(set(worded)) == list("abcdefg")
    assert len(worded) <= 8  # the one that the value came from is told twice
    assert page.count("g" * 10_000) == 1  # the value itself is whole
    assert "f" * 300 + "…" in page
    assert "f" * 301 not in page
    assert "wrote something else" not in page
    assert len(page) < 30_000
    assert len(shared.anybody.get(f"/pages/instances/{row}").text) < 10_000 * len(names) + 60_000

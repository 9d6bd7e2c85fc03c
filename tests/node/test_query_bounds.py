"""Questions of strangers are bounded: how many values they name, and what is kept of each question afterwards."""

import json
import subprocess
import sys
from typing import Any

import pytest
from sqlalchemy import Connection, select

from inkgrove.core import IdentityId, PublicKey
from inkgrove.node.reading import ViewQuery, query_view
from inkgrove.store.db import Compiled
from inkgrove.store.views import (
    MAX_CONDITIONS_OF_FIELD,
    MAX_VALUES,
    Reader,
    index_fields,
    is_among,
    list_parameter,
    page_queries,
    row_indexes,
    views_called,
)
from tests.node.test_reading_bounds import PUBLIC, show
from tests.support.nodes import RunningNode
from tests.support.publishing import create, make_schema, refusal

FIELDS = {
    "short": "varchar",
    "long": "text",
    "number": "integer",
    "part": "float",
    "done": "boolean",
    "at": "timestamp",
    "to": "relation",
    "tags": "varchar[]",
}
ROWS: list[dict[str, Any]] = [
    {"short": "a,b", "long": 'say "ä"\n', "number": 2**63 - 1, "part": 0.1 + 0.2, "done": True}
    | {"at": "2020-05-22T12:38:50.000001Z", "to": "00ff" * 10, "tags": ["x", "y"]},
    {"short": "", "long": "\\", "number": -(2**63), "part": 5e-324, "done": False}
    | {"at": "1969-12-31T23:59:59Z", "to": "ab", "tags": []},
    {"short": "c", "long": "z", "number": 0, "part": 1.7976931348623157e308, "done": True}
    | {"at": "2021-01-01T00:00:00Z", "to": "ff", "tags": ["x"]},
]


@pytest.fixture(scope="module")
def filled(shared: RunningNode) -> RunningNode:
    """A node with a view of three rows, which has the indexes of a real one."""
    shared.create("jane.haiku.ink")
    jane = shared.sign_in("jane.haiku.ink")
    schema = make_schema(jane, "things", [{name: {"action": "create", "type": kind}} for name, kind in FIELDS.items()])
    for row in ROWS:
        create(jane, schema, fields=row, access=PUBLIC)
    show(shared, schema)

    def index(connection: Connection) -> None:
        (view,) = views_called(connection, "things")
        for item in row_indexes(view.table()):
            item.create(connection)
        index_fields(connection, view)

    shared.node.views.database.write(index)
    return shared


def asked(running: RunningNode, **question: Any) -> list[dict[str, Any]]:
    answer = running.anybody.get("/views/things", params=question)
    assert answer.status_code == 200, answer.text
    return [row["fields"] for row in answer.json()["rows"]]


@pytest.mark.parametrize("name", FIELDS)
def test_in_finds_exactly_the_values_of_its_list(filled: RunningNode, name: str) -> None:
    for wanted in ([0], [1], [0, 2], []):
        values = [ROWS[number][name] for number in wanted]
        found = asked(filled, where=f"{name}:in:{json.dumps(values)}", sort="number")
        expected = [row for row in ROWS if row[name] in values]
        assert [row["short"] for row in found] == [
            row["short"] for row in sorted(expected, key=lambda row: int(row["number"]))
        ]


def test_values_of_all_filters_are_counted_together(filled: RunningNode) -> None:
    def where(count: int) -> str:
        return f"number:in:{','.join(map(str, range(count)))}"

    assert len(asked(filled, where=[where(MAX_VALUES - 1), "short:eq:c"])) == 1
    answer = filled.anybody.get("/views/things", params={"where": [where(MAX_VALUES), "short:eq:c"]})
    assert refusal(answer) == (400, "input.bad-filter")
    assert str(MAX_VALUES) in answer.json()["detail"]


def test_however_many_values_a_list_has_it_is_one_question(filled: RunningNode) -> None:
    before = page_queries.cache_info().currsize
    for count in range(1, 261):
        question = ViewQuery(where=[f"number:in:{','.join(map(str, range(count)))}"])
        assert len(query_view(filled.node, None, "things", question).rows) == 1
    assert page_queries.cache_info().currsize <= before + 1


@pytest.mark.parametrize(("keys", "kind"), [(0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (1025, 2048)])
def test_number_of_own_keys_makes_few_different_questions(keys: int, kind: int) -> None:
    own = tuple(PublicKey(number.to_bytes(32, "big")) for number in range(keys))
    reader = Reader(IdentityId(bytes(32)), own, 0)
    assert reader.kind.key_count == kind
    parameters = reader.parameters()
    assert {parameters[f"own_key_{number}"] for number in range(kind)} == set(own)


@pytest.mark.parametrize("name", ["long", "number", "_instance"])
def test_conditions_on_one_field_are_few_whatever_they_ask(filled: RunningNode, name: str) -> None:
    kinds = ["is-null:false", "ne:ab", "in:ab,cd"] if name != "number" else ["is-null:false", "ne:1", "in:1,2"]
    most = [("where", f"{name}:{kinds[number % 3]}") for number in range(MAX_CONDITIONS_OF_FIELD)]
    others = [("where", "short:ne:x")] * MAX_CONDITIONS_OF_FIELD
    answer = filled.anybody.get("/views/things", params=[*others, *most])
    assert answer.status_code == 200, answer.text
    for mixed in ([*most, most[0]], [most[0], *others, *most]):
        refused = filled.anybody.get("/views/things", params=[*mixed, ("count", "true")])
        assert refusal(refused) == (400, "input.bad-filter")
        assert "8 conditions on one field" in refused.json()["detail"]


@pytest.mark.parametrize("name", ["short", "number", "part", "at", "to", "_instance"])
def test_list_as_one_parameter_is_looked_up_in_the_index(filled: RunningNode, name: str) -> None:
    def plan(connection: Connection) -> str:
        """What the database does for the query that the node runs."""
        (view,) = views_called(connection, "things")
        found = read_values(connection, view.table().c[name])
        condition = is_among(view.table().c[name], "given")
        query = Compiled(lambda _: select(view.table()).where(condition))
        text, values = query.prepared(connection, {"given": list_parameter(connection.dialect.name, found)})
        driver: Any = connection.connection.driver_connection
        assert len(driver.execute(text, values).fetchall()) == len(ROWS)
        if connection.dialect.name == "postgresql":
            driver.execute("SET LOCAL enable_seqscan = off")  # three rows are read faster without an index
            return "\n".join(row[0] for row in driver.execute(f"EXPLAIN {text}", values))
        return "\n".join(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {text}", values))

    shown = filled.node.views.database.read(plan)
    assert "SEARCH view_" in shown or "Index Cond: " in shown, shown


def read_values(connection: Connection, column: Any) -> list[Any]:
    return list(connection.scalars(select(column)))


_PROGRAM = """
import sys
from pathlib import Path
from random import Random
from inkgrove.node.runtime.node import Node
from inkgrove.node.reading import ViewQuery, query_view
from inkgrove.node.settings import NodeSettings
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
node = Node(sys.argv[1], NodeSettings(), home=Path(sys.argv[2]))
names = ["short", "long", "number", "part", "done", "at", "to"]
rng, before = Random(1), 0
for number in range(290):
    if number == 30:
        before = resident()
    asked = rng.sample(names[:2] * 8, 16)
    wheres = [f"{name}:in:" + ",".join(map(str, range(rng.randrange(1, 20)))) for name in asked]
    query_view(node, None, "things", ViewQuery(where=wheres, sort=rng.sample(names, 6), with_count=True))
print(resident() - before)
"""


def test_questions_of_many_shapes_leave_little_in_memory(filled: RunningNode) -> None:
    run = [sys.executable, "-c", _PROGRAM, str(filled.place), str(filled.home)]
    grown = int(subprocess.run(run, capture_output=True, check=True, text=True).stdout)
    assert grown < 64 * 1024 * 1024

"""Every reading route answers what a plain filter over the reference says: no more, no less."""

import json
import random
from collections.abc import Callable, Iterator
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import httpx
import jsonpatch
import pytest
from pyspark.sql import SparkSession

from inkgrove.core import Hash
from inkgrove.messages import Access, SchemaId, Timestamp, read_proof, value_to_json, verify_proof
from inkgrove.pipeline.views import Materialiser, export_view
from inkgrove.reference import ReferenceRow
from tests.spark.conftest import spark  # noqa: F401  (fixture)
from tests.support.reading import FIELDS, MAILS, MINUTE, PEOPLE, Chance, Person, World, running_node
from tests.support.tiers import amount

pytestmark = pytest.mark.both_databases

Row = dict[str, Any]


@pytest.fixture
def world(place: Path | str, tmp_path: Path, spark: SparkSession) -> Iterator[World]:  # noqa: F811
    materialiser = Materialiser(spark, str(place))
    with running_node(place, tmp_path) as node:
        yield World(node, materialiser)
    materialiser.close()


def document(world: World, row: ReferenceRow) -> Row:
    (owner,) = (person for person in world.people.values() if person.author == row.author)
    access = None if row.access is None else {"mode": row.access.mode, "to": [to.hex() for to in row.access.to]}
    return {
        "instance": row.instance.hex(),
        "author": row.author.hex(),
        "owner": {"id": owner.id.hex(), "fqdn": f"{owner.name}.haiku.ink"},
        "log_id": row.log_id,
        "seq_num": row.seq_num,
        "last_seq_num": row.last_seq_num,
        "last_hash": row.last_hash.hex(),
        "fields": {name: value_to_json(value) for name, value in row.fields.items()},
        "access": access,
        "expires": None if row.expires is None else str(row.expires),
        "copied_from": None,
    }


def seen(world: World, schema_id: SchemaId, reader: Person | None) -> list[ReferenceRow]:
    return [row for row in world.views()[schema_id].rows if world.may_see(row, reader)]


# Filters


def render(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.hex() if isinstance(value, bytes) else str(value)


def holds(value: Any, operator: str, given: Any) -> bool:
    if operator == "is-null":
        return (value is None) == given
    if value is None:
        return False
    checks: dict[str, Callable[[], bool]] = {
        "eq": lambda: value == given,
        "ne": lambda: value != given,
        "lt": lambda: value < given,
        "lte": lambda: value <= given,
        "gt": lambda: value > given,
        "gte": lambda: value >= given,
        "in": lambda: value in given,
        "contains": lambda: given in value,
    }
    return checks[operator]()


def random_filter(chance: Chance) -> tuple[str, str, Any, str]:
    rng = chance.rng
    name = rng.choice([name for name in FIELDS if name != "to"])
    operators = ["eq", "ne", "in", "is-null"]
    if FIELDS[name] not in ("boolean", "relation"):
        operators += ["lt", "lte", "gt", "gte"] * 2
    if FIELDS[name] == "text":
        operators += ["contains"] * 3
    operator = rng.choice(operators)
    if operator == "is-null":
        given = rng.random() < 0.5
        return name, operator, given, render(given)
    values: list[Any] = []
    while len(values) < (2 if operator == "in" else 1):
        value = chance.value(name, FIELDS[name])
        if value is None and FIELDS[name] == "relation":
            value = b"\0" * 66
        if value is not None:
            values.append(value)
    if operator != "in":
        return name, operator, values[0], render(values[0])
    texts = [value if FIELDS[name] in ("integer", "float", "boolean") else render(value) for value in values]
    return name, operator, values, json.dumps(texts) if rng.random() < 0.5 else ",".join(map(render, values))


def in_order(rows: list[ReferenceRow], sort: list[tuple[str, bool]]) -> list[ReferenceRow]:
    def compare(a: ReferenceRow, b: ReferenceRow) -> int:
        for name, descends in sort:
            x, y = a.fields[name], b.fields[name]
            if x != y:
                is_less = x is None or (y is not None and x < y)  # type: ignore[operator]
                return 1 if is_less == descends else -1
        last = sort[-1][1] if sort else False
        return (1 if (a.instance < b.instance) == last else -1) if a.instance != b.instance else 0

    return sorted(rows, key=cmp_to_key(compare))


def read_all(client: httpx.Client, address: str, parameters: list[tuple[str, str]]) -> tuple[list[Row], int]:
    rows: list[Row] = []
    cursor: list[tuple[str, str]] = []
    while True:
        answer = client.get(address, params=[*parameters, *cursor])
        assert answer.status_code == 200, answer.text
        page = answer.json()
        rows += page["rows"]
        if page["cursor"] is None:
            return rows, page["count"]
        cursor = [("cursor", page["cursor"])]


def check_pages(world: World, chance: Chance, reader: Person | None) -> None:
    rng = chance.rng
    filters = [random_filter(chance) for _ in range(rng.choice([0, 1, 1, 2]))]
    names = rng.sample([name for name in FIELDS if name != "to"], rng.choice([0, 1, 1, 2, 3]))
    sort = [(name, rng.random() < 0.5) for name in names]
    rows = [
        row
        for row in seen(world, MAILS, reader)
        if all(holds(row.fields[name], operator, given) for name, operator, given, _ in filters)
    ]
    parameters = [("where", f"{name}:{operator}:{text}") for name, operator, _, text in filters]
    parameters += [("limit", str(rng.choice([1, 3, 50]))), ("count", "true")]
    if sort:
        parameters.append(("sort", ",".join(f"{'-' if descends else ''}{name}" for name, descends in sort)))
    found, count = read_all(world.client(reader), f"/views/{MAILS}", parameters)
    assert found == [document(world, row) for row in in_order(rows, sort)], parameters
    assert count == len(rows)


@pytest.mark.parametrize("sort", [[("size", True)], [("size", False), ("weight", True)], []])
def test_pages_stay_right_while_rows_change(world: World, sort: list[tuple[str, bool]]) -> None:
    """What nobody touches is on exactly one page and in order, whatever becomes of the other rows in between."""
    rng = random.Random(7)
    everybody = Access("public")

    def create() -> Hash:
        fields = {"size": rng.choice([None, 0, 1, 2, 2, 2]), "weight": rng.choice([None, 0.5, 1.5])}
        return world.create("jane", MAILS, fields, access=everybody)

    rows = [create() for _ in range(30)]
    world.catch_up()
    untouched, touched = set(rows[::2]), rows[1::2]
    order = ",".join(f"{'-' if descends else ''}{name}" for name, descends in sort)
    parameters = {"limit": "4", **({"sort": order} if order else {})}
    found: list[str] = []
    deleted: set[str] = set()
    while True:
        page = world.client(None).get(f"/views/{MAILS}", params=parameters).json()
        shown = [row["instance"] for row in page["rows"]]
        assert not deleted & set(shown)
        found += shown
        if page["cursor"] is None:
            break
        parameters["cursor"] = page["cursor"]
        touched.append(create())
        # The first goes to one end, the next to the other; a third goes for good.
        for instance, size in zip(rng.sample(touched, 2), (9, None), strict=True):
            world.update(instance, {"size": size})
        gone = touched.pop(rng.randrange(len(touched)))
        world.delete(gone)
        deleted.add(gone.hex())
        world.catch_up()
    assert len(deleted) >= 6
    wanted = in_order([row for row in seen(world, MAILS, None) if row.instance in untouched], sort)
    assert [instance for instance in found if bytes.fromhex(instance) in untouched] == [
        row.instance.hex() for row in wanted
    ]


def test_minus_zero_is_zero_in_views_filters_order_and_exports(world: World, tmp_path: Path) -> None:
    """docs/protocol.md section 4.9; by text, for -0.0 equals 0.0."""
    everybody = Access("public")
    zeros = [world.create("jane", MAILS, {"weight": weight}, access=everybody) for weight in (-0.0, 0.0, 0, -0.0)]
    world.update(zeros[1], {"weight": -0.0})
    small = world.create("jane", MAILS, {"weight": -5e-324}, access=everybody)
    world.catch_up()
    (view,) = (view for schema_id, view in world.materialiser.views.views().items() if schema_id == MAILS)
    assert {row.instance: repr(row.fields["weight"]) for row in world.views()[MAILS].rows} == {
        small: "-5e-324",
        **dict.fromkeys(zeros, "0.0"),
    }
    in_order = [instance.hex() for instance in sorted(zeros)]
    client = world.client(None)
    for parameters, wanted in (
        ({"where": "weight:eq:-0.0"}, in_order),
        ({"where": "weight:in:-0.0,7"}, in_order),
        ({"where": "weight:gte:-0.0"}, in_order),
        ({"where": "weight:lt:0.0"}, [small.hex()]),
        ({"sort": "weight", "limit": "2"}, [small.hex(), *in_order]),
    ):
        rows, _ = read_all(client, f"/views/{MAILS}", [*parameters.items(), ("count", "true")])
        assert [row["instance"] for row in rows] == wanted, parameters
        assert {repr(row["fields"]["weight"]) for row in rows} <= {"0.0", "-5e-324"}
    for past in ("", f"?as_of={world.views()[MAILS].rows[1].seq_num}"):
        assert '"weight":0.0' in client.get(f"/instances/{zeros[1].hex()}{past}").text.replace(" ", "")
    session = world.materialiser.spark
    for form in ("parquet", "csv", "json", "delta"):
        target = tmp_path / form
        assert export_view(session, world.materialiser.store_url, view, target, form) == 5  # type: ignore[arg-type]
        read = session.read.schema("_instance string, weight double").option("header", "true")
        if form == "csv":
            read = session.read.option("header", "true").option("inferSchema", "true")
        found = read.format("parquet" if form == "delta" else form).load(str(target)).collect()
        assert sorted(repr(float(row["weight"])) for row in found) == ["-5e-324", *["0.0"] * 4], form


def check_expansion(world: World, reader: Person | None) -> None:
    people = {row.instance: document(world, row) for row in seen(world, PEOPLE, reader)}
    found, _ = read_all(world.client(reader), "/views/mail", [("expand", "sender,to"), ("fields", "subject")])
    wanted = {row.instance.hex(): row for row in seen(world, MAILS, reader)}
    assert {row["instance"] for row in found} == set(wanted)
    for row in found:
        fields = wanted[row["instance"]].fields
        assert row["expanded"] == {
            "sender": people.get(fields["sender"]),  # type: ignore[call-overload]
            "to": None if fields["to"] is None else [people.get(item) for item in fields["to"]],  # type: ignore
        }
        assert set(row["fields"]) == {"subject", "sender", "to"}


def check_instances(world: World, reader: Person | None) -> None:
    client = world.client(reader)
    for schema_id in (PEOPLE, MAILS):
        wanted = {row.instance: row for row in seen(world, schema_id, reader)}
        for instance, (_, schema) in world.instances.items():
            if schema != schema_id:
                continue
            for path in ("", "/history", "/proof", "?as_of=1000000"):
                answer = client.get(f"/instances/{instance}{path}")
                if instance not in wanted:
                    assert (answer.status_code, answer.json()["code"]) == (404, "view.unknown-instance"), path
                    continue
                assert answer.status_code == 200, answer.text
                if path == "/proof":
                    proved = verify_proof(read_proof(answer.content))
                    assert proved.messages[-1].seq_num >= wanted[instance].last_seq_num
                elif path == "/history":
                    assert answer.json()["history"][0]["seq_num"] == wanted[instance].seq_num
                else:
                    shown = answer.json()
                    expected = document(world, wanted[instance])
                    assert {name: shown[name] for name in expected} == expected


def check_outcomes(world: World, reader: Person | None) -> None:
    is_administrator = reader is not None and reader.name == "admin"
    for schema_id in (PEOPLE, MAILS):
        view = world.views()[schema_id]
        rows = {row.instance for row in seen(world, schema_id, reader)}
        creates = {
            (person.author, log.log_id, number): log
            for person in world.people.values()
            for log in person.logs.values()
            for number in range(1, len(log.entries) + 1)
        }
        wanted = []
        for item in view.outcomes:
            log = creates[item.author, item.log_id, item.seq_num]
            instance = world_instance(log.payloads[item.seq_num - 1], item.hash)
            if is_administrator or (reader is not None and item.author == reader.author) or instance in rows:
                wanted.append((item.hash.hex(), item.outcome.value))
        found: list[tuple[str, str]] = []
        cursor = ""
        while True:
            answer = world.client(reader).get(f"/views/{schema_id}/outcomes?limit=7{cursor}").json()
            found += [(item["hash"], item["outcome"]) for item in answer["outcomes"]]
            assert sum(answer["counts"].values()) == len(wanted)
            if answer["cursor"] is None:
                break
            cursor = f"&cursor={answer['cursor']}"
        assert sorted(found) == sorted(wanted)


def world_instance(payload: bytes, own: bytes) -> bytes:
    from inkgrove.messages import Create, Delete, Update, decode_message

    message = decode_message(payload)
    assert isinstance(message, Create | Update | Delete)
    return own if isinstance(message, Create) else message.instance  # type: ignore[return-value]


def check_summary(world: World, reader: Person | None) -> None:
    rows = seen(world, MAILS, reader)
    weights = [row.fields["weight"] for row in rows if row.fields["weight"] is not None]
    exact = world.client(reader).get(f"/views/{MAILS}/summary").json()["exact"]
    assert exact["count"] == len(rows)
    shown = exact["fields"].get("weight", {"count": 0})
    extremes = (min(weights), max(weights)) if weights else (None, None)  # type: ignore[type-var]
    assert (shown["count"], shown.get("min"), shown.get("max")) == (len(weights), *extremes)


def check_list(world: World, reader: Person | None) -> None:
    listed = world.client(reader).get("/views?count=true").json()
    counts = {view["name"]: view["rows"] for view in listed["views"]}
    assert counts == {"person": len(seen(world, PEOPLE, reader)), "mail": len(seen(world, MAILS, reader))}
    assert listed["freshness"]["is_current"] is True


# Changes


class Follower:
    """Keeps a copy of what somebody sees of a view, by patches alone."""

    def __init__(self, world: World, reader: Person | None) -> None:
        self.world, self.reader = world, reader
        self.last_id = ""
        self.rows: dict[str, Row] = {}
        self.read()

    def read(self) -> None:
        answer = self.world.client(self.reader).get(f"/views/{MAILS}?limit=1000").json()
        self.rows = {row["instance"]: row for row in answer["rows"]}
        self.last_id = answer["changes"]

    def follow(self) -> list[dict[str, Any]]:
        """Take in what happened until the stream says that nothing more did."""
        operations: list[dict[str, Any]] = []
        headers = {"Last-Event-ID": self.last_id}
        with self.world.client(self.reader).stream("GET", f"/views/{MAILS}/changes", headers=headers) as stream:
            assert stream.status_code == 200
            name = data = event_id = ""
            for line in stream.iter_lines():
                kind, _, value = line.partition(": ")
                if kind == "event":
                    name = value
                elif kind == "data":
                    data = value
                elif kind == "id":
                    event_id = value
                elif line == "":
                    assert name != "reset"
                    if name:
                        patch = json.loads(data)
                        operations += patch
                        self.rows = jsonpatch.apply_patch({"rows": self.rows}, patch)["rows"]
                    self.last_id, name, data = event_id, "", ""
                elif line == ": still here":
                    break
        return operations

    def wanted(self) -> dict[str, Row]:
        return {row.instance.hex(): document(self.world, row) for row in seen(self.world, MAILS, self.reader)}


@pytest.mark.parametrize("seed", range(1, 1 + amount(1, 2)))
def test_every_reader_sees_what_the_rule_says(world: World, seed: int) -> None:
    chance = Chance(world, seed)
    readers: list[Person | None] = [None, *world.people.values()]
    for _ in range(25):
        chance.act()
    world.catch_up()
    followers = [Follower(world, reader) for reader in readers]
    for _ in range(amount(3, 5)):
        for _ in range(chance.rng.randint(1, 14)):
            chance.act()
        world.now += chance.rng.choice([0, MINUTE // 2, MINUTE, 3 * MINUTE])
        world.catch_up()
        for follower in followers:
            before = follower.rows
            operations = follower.follow()
            assert follower.rows == follower.wanted()
            told = [operation["path"] for operation in operations]
            known = {f"/rows/{instance}" for instance in (*before, *follower.rows)}
            assert set(told) <= known, "told of a row that was and is not to be seen"
        for reader in readers:
            check_list(world, reader)
            check_instances(world, reader)
            check_outcomes(world, reader)
            check_summary(world, reader)
            check_expansion(world, reader)
            for _ in range(6):
                check_pages(world, chance, reader)
    assert Timestamp(world.now) > Timestamp(0)

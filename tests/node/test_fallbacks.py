"""How many messages fell back to defaults, migration by migration, as far as one may know."""

from typing import Any

from inkgrove.node.caller import Caller
from inkgrove.node.fallbacks import count_fallbacks
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id


def test_messages_are_counted_at_the_version_that_they_could_not_pass(
    shared: RunningNode, jane: Person, john: Person
) -> None:
    schema = make_schema(
        jane, "falling", [{"text": _field("create", type="text")}, {"size": _field("create", type="text")}]
    )

    def add(*fields: dict[str, Any]) -> None:
        answer = jane.post(f"/schemas/{schema}/versions", json={"fields": list(fields)})
        assert answer.status_code == 201, answer.text

    public = {"mode": "public"}
    create(jane, schema, fields={"text": "a", "size": "1"}, access=public)
    create(jane, schema, fields={"text": "a b", "size": "big"}, access=public)
    create(jane, schema, fields={"text": "a b c"})
    create(john, schema, fields={"text": "two words", "size": "many"})
    add({"text": _field("update", validation="^[a-z]+$", default="none")})
    add({"size": _field("update", type="integer", default=0)})
    create(jane, schema, fields={"text": "fits", "size": 7}, access=public)
    shared.node.store.register(schema_id(schema))
    build_views(shared.node)

    def counted(caller: Caller) -> tuple[dict[int, int], int, bool]:
        found = count_fallbacks(shared.node, caller, schema)
        return dict(found.by_version), found.rows, found.is_all

    # Version 3 takes one word, version 4 numbers.
    assert counted(Caller()) == ({3: 1, 4: 1}, 3, True)
    assert counted(Caller(jane.id)) == ({3: 2, 4: 1}, 4, True)
    assert counted(Caller(john.id)) == ({3: 2, 4: 2}, 4, True)
    assert counted(Caller(john.id, is_administrator=True)) == ({3: 3, 4: 2}, 5, True)


def _field(action: str, **facts: Any) -> dict[str, Any]:
    return {"action": action, **facts}

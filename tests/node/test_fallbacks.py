"""How many messages fell back to defaults, migration by migration, as far as one may know."""

from pathlib import Path
from typing import Any

from inkgrove.messages import Access, Create, SchemaVersion, encode_message
from inkgrove.node.identity import Caller
from inkgrove.node.reading import MAX_ROWS, count_fallbacks
from inkgrove.store.logs import register_schema
from tests.support.logs import LogBuilder, key
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
    shared.node.store.write(register_schema, schema_id(schema))
    build_views(shared.node)

    def counted(caller: Caller) -> tuple[dict[int, int], int, bool]:
        found = count_fallbacks(shared.node, caller, schema)
        return dict(found.by_version), found.rows, found.is_all

    # Version 3 takes one word, version 4 numbers.
    assert counted(Caller()) == ({3: 1, 4: 1}, 3, True)
    assert counted(Caller(jane.id)) == ({3: 2, 4: 1}, 4, True)
    assert counted(Caller(john.id)) == ({3: 2, 4: 2}, 4, True)
    assert counted(Caller(john.id, is_administrator=True)) == ({3: 3, 4: 2}, 5, True)


def test_page_says_when_it_counted_only_the_rows_that_were_written_last(tmp_path: Path) -> None:
    with RunningNode(tmp_path, tmp_path) as running, Person(running, "jane.haiku.ink") as jane:
        schema = make_schema(jane, "many", [{"text": _field("create", type="text")}])
        stranger = LogBuilder(key(51))

        def look(rows: int) -> str:
            for number in range(len(stranger.entries), rows):
                text = "two words" if number in (0, 500) else "one"  # the first is no longer among the last 1,000
                message = Create(SchemaVersion(*schema_id(schema), 2), {"text": text}, Access("public"))
                entry = stranger.append(encode_message(message))
                running.node.store.ingest([(entry.encoded, stranger.payloads[-1])])
            build_views(running.node)
            return running.anybody.get(f"/pages/schemas/{schema}").text

        running.node.store.write(register_schema, schema_id(schema))
        change = {"fields": [{"text": _field("update", validation="^[a-z]+$", default="none")}]}
        assert jane.post(f"/schemas/{schema}/versions", json=change).status_code == 201
        few = look(MAX_ROWS)
        assert "2 messages did not fit this version" in few
        assert "Defaults counted from 1,000 rows." in few
        many = look(MAX_ROWS + 1)
        assert "1 message did not fit this version" in many
        assert "Defaults counted from the 1,000 rows that were written last; there are more." in many


def _field(action: str, **facts: Any) -> dict[str, Any]:
    return {"action": action, **facts}

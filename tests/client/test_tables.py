"""Views as tables: the types of the schema, values as Arrow has them, only what was asked for."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from inkgrove.client.client import Client
from inkgrove.store.logs import register_schema
from tests.support.nodes import PASSWORD, Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import make_schema, schema_id


@pytest.fixture
def jane(tmp_path: Path) -> Iterator[Client]:
    """Jane with a view of three mails."""
    with RunningNode(tmp_path, tmp_path) as running:
        running.create("jane.haiku.ink")
        signed_in = Client.sign_in(running.url, "jane.haiku.ink", PASSWORD)
        with signed_in as client, Person(running, "mary.haiku.ink") as mary:
            schema = make_schema(mary, "mail")
            running.node.store.write(register_schema, schema_id(schema))
            picture = client.upload(b"a sloth", "text/plain")
            first = client.create(
                schema,
                {
                    "subject": "Hello",
                    "stars": 3,
                    "sent": datetime(2020, 5, 22, 11, 58, 50, 7, tzinfo=UTC),
                    "picture": picture,
                    "tags": ["a", "b"],
                    "weight": 0.5,
                    "read": True,
                },
            )
            client.create(schema, {"subject": "Answer", "answers": first})
            client.create(schema, {"subject": "Third", "stars": 1})
            build_views(running.node)
            yield client


def test_columns_have_the_types_of_the_schema(jane: Client) -> None:
    table = jane.view("mail").to_arrow()
    assert {field.name: str(field.type) for field in table.schema} == {
        "_instance": "string",
        "_author": "string",
        "_log_id": "int64",
        "_seq_num": "int64",
        "_last_seq_num": "int64",
        "subject": "string",
        "stars": "int64",
        "sent": "timestamp[us, tz=UTC]",
        "answers": "string",
        "picture": "struct<hash: string, size: int64, type: string>",
        "tags": "list<item: string>",
        "weight": "double",
        "read": "bool",
    }


def test_values_are_those_of_the_rows(jane: Client) -> None:
    table = jane.view("mail").to_arrow(sort="_seq_num")
    first, answer, _ = table.to_pylist()
    assert first["sent"] == datetime(2020, 5, 22, 11, 58, 50, 7, tzinfo=UTC)
    assert (first["tags"], first["weight"], first["read"], first["picture"]["size"]) == (["a", "b"], 0.5, True, 7)
    assert answer["answers"] == first["_instance"]
    assert (answer["stars"], answer["sent"], answer["tags"]) == (None, None, None)
    assert list(table.to_pandas()["subject"]) == ["Hello", "Answer", "Third"]


def test_table_holds_what_was_asked_for(jane: Client) -> None:
    view = jane.view("mail")
    table = view.to_arrow(where=["stars:gte:3"], fields=["stars"])
    assert (table.num_rows, table.column_names[5:]) == (1, ["stars"])
    nothing = view.to_arrow(where=["stars:gt:9"])
    assert (nothing.num_rows, nothing.schema.field("stars").type) == (0, pa.int64())


def test_rows_come_page_by_page_and_whole(jane: Client) -> None:
    view = jane.view("mail")
    assert [row["subject"] for row in view.rows(sort="subject", page_size=1)] == ["Answer", "Hello", "Third"]
    assert sorted(row["subject"] for row in view) == ["Answer", "Hello", "Third"]
    page = view.page(page_size=2, count=True)
    assert (len(page.rows), page.count, page.cursor is not None) == (2, 3, True)


def test_relation_is_expanded_to_a_row(jane: Client) -> None:
    (row,) = jane.view("mail").rows(where=["subject:eq:Answer"])
    assert row.expanded is None
    assert jane.instance(row.instance).provenance["subject"] == row.seq_num
    assert jane.instance(row["answers"]).fields["subject"] == "Hello"


def test_proof_is_checked_here(jane: Client) -> None:
    (row,) = jane.view("mail").rows(where=["subject:eq:Hello"])
    proved = jane.verify(row.instance)
    assert (proved.author.hex(), [item.seq_num for item in proved.messages]) == (row.author, [row.seq_num])

"""Migrating messages over forty migrations against migrating them over one: compiled functions, not replayed ones."""

from collections.abc import Iterator

from bench.harness import Row, compare
from inkgrove.core import PublicKey
from inkgrove.messages import SchemaId, encode_message
from inkgrove.messages.yaml_form import parse_messages
from inkgrove.schema import Migration, ViewDefinition, fold_schema

MESSAGES = 100_000
SCHEMA_ID = SchemaId(PublicKey(b"\1" * 32), 12)
FIRST = """kind: schema-meta
name: bench
spec: 1
---
kind: schema-migration
fields:
  - subject: {action: create, type: text}
  - body: {action: create, type: text}
  - count: {action: create, type: integer}
  - done: {action: create, type: boolean}
"""
ONE = "kind: schema-migration\nfields: [note1: {action: create, type: text, default: none}]\n"


def forty() -> Iterator[str]:
    """A mixture as a long-lived schema collects it: most add, some narrow, convert and remove."""
    for number in range(1, 41):
        if number % 10 == 4:
            change = f"subject: {{action: update, validation: '[^#].{{0,{100 + number}}}', default: <Subject>}}"
        elif number == 10:
            change = "count: {action: update, type: text, default: '0'}"
        elif number == 20:
            change = "count: {action: update, type: integer, default: 0}"
        elif number == 30:
            change = "done: {action: update, type: text, default: 'false'}"
        elif number % 10 == 5:
            change = f"note{number - 4}: {{action: remove}}"
        else:
            change = f"note{number}: {{action: create, type: text, default: none}}"
        yield f"kind: schema-migration\nfields: [{change}]\n"


def migration(*documents: str) -> Migration:
    payloads = [encode_message(message) for message in parse_messages("---\n".join(documents))]
    schema = fold_schema(SCHEMA_ID, dict(enumerate(payloads, start=1)))
    assert schema.stopped_by is None, schema.stopped_by
    found = ViewDefinition(schema, [SCHEMA_ID]).migration(2)
    assert isinstance(found, Migration)
    return found


def rows() -> Iterator[Row]:
    over_one, over_forty = migration(FIRST, ONE), migration(FIRST, *forty())
    messages = [
        {"subject": f"Greetings {number}", "body": "we hang on", "count": number, "done": number % 2 == 0}
        for number in range(MESSAGES)
    ]

    def run(found: Migration) -> None:
        read = found.read_create
        for fields in messages:
            read(fields)

    rate, base_rate, ratio = compare(lambda: run(over_forty), lambda: run(over_one), MESSAGES, rounds=5)
    cost = 1 / ratio
    yield Row(
        "messages migrated over 40 migrations (cost)",
        rate,
        "over one migration",
        base_rate,
        cost,
        "<= 3.00",
        cost <= 3,
        f"{MESSAGES} creates of version 2",
    )

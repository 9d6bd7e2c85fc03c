"""Catching up with very much: an archive that Spark imports in a process of its own, with the same result."""

from pathlib import Path

from inkgrove.messages.ids import SchemaVersion
from inkgrove.messages.instance import Access, Create
from inkgrove.messages.message import encode_message
from tests.support.federated import federation
from tests.support.logs import LogBuilder, key
from tests.support.publishing import make_schema, schema_id
from tests.support.replication import held, sync


def test_import_brings_the_same_as_batches_do(tmp_path: Path) -> None:
    with federation(tmp_path, "abc") as them:
        jane = them.person("jane", "a")
        them.person("carol", "b")
        them.person("dora", "c")
        schema = SchemaVersion(*schema_id(make_schema(jane)), 2)
        log = LogBuilder(key(51), log_id=1)
        for number in range(60):
            access = Access("public") if number % 3 else None
            log.append(encode_message(Create(schema, {"stars": number}, access)))
        them.nodes["a"].node.store.ingest(
            (entry.encoded, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)
        )
        b, c = them.nodes["b"], them.nodes["c"]
        batches = sync(c, "jane.a.ink")
        bulk = sync(b, "jane.a.ink", bulk=10)

        assert (batches.in_bulk, bulk.in_bulk) == (False, True)
        assert (bulk.stored, bulk.refused) == (batches.stored, {})
        of_key = [{place: payload for place, payload in held(n.node).items() if place[0] == key(51).public.hex()}
                  for n in (b, c)]  # fmt: skip
        assert of_key[0] == of_key[1]
        assert sum(payload is not None for payload in of_key[0].values()) == 40
        assert list((b.home / "replication").rglob("*.parquet")) == []

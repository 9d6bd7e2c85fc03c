"""Rows name the identity behind the key that wrote them, as far as it is known."""

from typing import Any

from inkgrove.core import SecretKey, identity_of
from inkgrove.messages import Access, Create, SchemaVersion, encode_message
from inkgrove.store.federation import RemoteIdentity, put_remote_identity
from inkgrove.store.logs import register_schema
from inkgrove.store.node import put_key
from tests.support.logs import LogBuilder, key
from tests.support.nodes import Person, RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, schema_id


def test_rows_and_instances_name_their_owner(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane, "owned", [{"sender": {"action": "create", "type": "text"}}])
    shared.node.store.write(register_schema, schema_id(schema))
    alice, further, nobody = key(61), key(62), key(63)
    here = create(jane, schema, fields={"sender": "somebody.else.ink"}, access={"mode": "public"})["instance"]
    there, by_further, unknown = (_write(shared, schema, secret) for secret in (alice, further, nobody))

    def get_to_know(connection: Any) -> None:
        known = RemoteIdentity(
            identity_of(alice.public), "alice.c.ink", "https://c.ink", alice.public, 1, further.public, 0, 0
        )
        put_remote_identity(connection, known)
        for secret in (alice, further):
            put_key(connection, secret.public, identity_of(alice.public))

    shared.node.database.write(get_to_know)
    build_views(shared.node)
    owners = {
        here: {"id": jane.id.hex(), "fqdn": jane.fqdn},
        there: {"id": identity_of(alice.public).hex(), "fqdn": "alice.c.ink"},
        by_further: {"id": identity_of(alice.public).hex(), "fqdn": "alice.c.ink"},
        unknown: {"id": identity_of(nobody.public).hex(), "fqdn": None},
    }
    rows = shared.anybody.get(f"/views/{schema}").json()["rows"]
    assert {row["instance"]: row["owner"] for row in rows} == owners
    for instance, owner in owners.items():
        for query in ("", "?as_of=1"):
            assert shared.anybody.get(f"/instances/{instance}{query}").json()["owner"] == owner


def _write(shared: RunningNode, schema: str, secret: SecretKey) -> str:
    log = LogBuilder(secret, log_id=3)
    message = Create(SchemaVersion(*schema_id(schema), 2), {"sender": "jane.haiku.ink"}, Access("public"))
    entry = log.append(encode_message(message))
    (receipt,) = shared.node.store.ingest([(entry.encoded, log.payloads[-1])])
    assert receipt.error is None
    return log.hash(1).hex()

"""Publishing over HTTP for tests: a small schema, instances of it, entries signed as a client would."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import httpx

from inkgrove.core import Entry, Flavour, SecretKey, parse_hash, parse_public_key, sign_entry
from inkgrove.messages import Create, Message, SchemaId, SchemaVersion, encode_message, with_salt
from inkgrove.store.logs import read_logs
from tests.support.nodes import RunningNode

FIELDS = [
    {"subject": {"action": "create", "type": "text", "validation": "^[^#].*$"}},
    {"stars": {"action": "create", "type": "integer"}},
    {"sent": {"action": "create", "type": "timestamp"}},
    {"answers": {"action": "create", "type": "relation"}},
    {"picture": {"action": "create", "type": "blob"}},
    {"tags": {"action": "create", "type": "varchar[]"}},
    {"weight": {"action": "create", "type": "float"}},
    {"read": {"action": "create", "type": "boolean"}},
]


def make_schema(client: httpx.Client, name: str = "slothmail", fields: list[dict[str, Any]] | None = None) -> str:
    """A schema with fields, as AUTHOR/LOG."""
    answer = client.post("/schemas", json={"name": name})
    assert answer.status_code == 201, answer.text
    schema: str = answer.json()["schema"]
    answer = client.post(f"/schemas/{schema}/versions", json={"fields": fields or FIELDS})
    assert answer.status_code == 201, answer.text
    return schema


def schema_id(text: str) -> SchemaId:
    author, _, log_id = text.partition("/")
    return SchemaId(parse_public_key(author), int(log_id))


def create(client: httpx.Client, schema: str, **facts: Any) -> dict[str, Any]:
    """A new instance; what the node answers."""
    answer = client.post("/instances", json={"schema": schema, **facts})
    assert answer.status_code == 201, answer.text
    published: dict[str, Any] = answer.json()
    return published


@dataclass
class Signer:
    """A client that signs with a key that it holds itself."""

    client: httpx.Client
    secret: SecretKey

    def place(self, **query: Any) -> dict[str, Any]:
        answer = self.client.get("/publish/next", params={"author": self.secret.public.hex(), **query})
        assert answer.status_code == 200, answer.text
        place: dict[str, Any] = answer.json()
        return place

    def sign(self, message: Message | bytes, place: dict[str, Any], **changes: Any) -> tuple[Entry, bytes]:
        payload = message if isinstance(message, bytes) else encode_message(message)
        at: dict[str, Any] = {
            "log_id": place["log_id"],
            "seq_num": place["seq_num"],
            "lipmaa_link": parse_hash(place["lipmaa_link"]) if place["lipmaa_link"] else None,
            "backlink": parse_hash(place["backlink"]) if place["backlink"] else None,
            "flavour": Flavour[place["hash"].upper()],
            **changes,
        }
        return sign_entry(self.secret, payload, **at), payload

    def post(self, entry: Entry | bytes, payload: bytes | None) -> httpx.Response:
        return self.client.post("/entries", json=as_json(entry, payload))

    def publish(self, message: Message, schema: str) -> httpx.Response:
        return self.post(*self.sign(message, self.place(schema=schema)))


def as_json(entry: Entry | bytes, payload: bytes | None) -> dict[str, str]:
    encoded = entry.encoded if isinstance(entry, Entry) else entry
    body = {"entry": b64encode(encoded).decode()}
    return body if payload is None else {**body, "payload": b64encode(payload).decode()}


def signer_of(running: RunningNode, fqdn: str) -> Signer:
    """A client that holds the same key as the node keeps for an identity."""
    key = running.anybody.get(f"/identities/{fqdn}").json()["key"]
    return Signer(running.sign_in(fqdn), running.node.secret_key(parse_public_key(key)))


def mail(schema: str, subject: str = "Hello", version: int = 2, **fields: Any) -> Create:
    """A create as a client writes it."""
    message = Create(SchemaVersion(*schema_id(schema), version), {"subject": subject, **fields})
    salted = with_salt(message, lambda size: b"s" * size)
    assert isinstance(salted, Create)
    return salted


def refusal(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def count_entries(running: RunningNode) -> int:
    return sum(state.held for state in running.node.store.read(read_logs).values())

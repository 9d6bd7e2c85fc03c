"""Publishing with a key of the client: messages are made, salted and signed here, and sent as entries."""

import secrets
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, get_args

from inkgrove.client.connection import Flow, ask
from inkgrove.client.errors import Conflict, NotFound
from inkgrove.client.models import Instance, Published, PublishReceipt, Schema, read_instance, read_schema
from inkgrove.client.values import to_json, to_message
from inkgrove.core import Entry, Flavour, NextEntry, SecretKey, parse_hash, parse_public_key, sign_next
from inkgrove.messages import (
    Access,
    AccessMode,
    Create,
    Delete,
    InstanceMessage,
    SchemaVersion,
    Update,
    encode_salted,
    parse_schema_id,
    parse_timestamp,
)

_ATTEMPTS: Final = 30
"""How often an entry is signed anew because another writer has appended to the log first."""


def create(
    key: SecretKey,
    schema: str,
    fields: Mapping[str, object],
    access: str | None,
    expires: datetime | str | None,
    recipients: Sequence[str],
) -> Flow[Published]:
    """Sign a create and send it, and share it with `recipients`; `access` and `expires` may be None."""
    target = yield from _find_schema(schema)
    message = Create(
        _version(target.id, target.version),
        _values(target, fields),
        None if access is None else Access(_mode(access)),
        None if expires is None else parse_timestamp(to_json(expires)),
    )
    receipt = yield from publish(key, message, target.id)
    if recipients:
        yield from ask("POST", f"/instances/{receipt.hash}/share", body={"recipients": list(recipients)})
    return Published(receipt.hash, receipt.position, receipt.hash)


def update(key: SecretKey, instance: str, fields: Mapping[str, object]) -> Flow[Published]:
    """Sign an update of some fields and send it."""
    target, schema = yield from _find_instance(instance)
    version = _version(schema.id, schema.version)
    message = Update(version, parse_hash(target.row.instance), _values(schema, fields))
    receipt = yield from publish(key, message, schema.id)
    return Published(instance, receipt.position, receipt.hash)


def delete(key: SecretKey, instance: str) -> Flow[Published]:
    """Sign a delete and send it."""
    _, schema = yield from _find_instance(instance)
    message = Delete(parse_hash(instance), _version(schema.id, schema.version))
    receipt = yield from publish(key, message, schema.id)
    return Published(instance, receipt.position, receipt.hash)


def publish(key: SecretKey, message: InstanceMessage, schema: str) -> Flow[PublishReceipt]:
    """Sign a message as the next entry of its log and send it; if another writer was faster, as the entry after that.

    Raises `Conflict` if others are faster thirty times in a row.
    """
    payload = encode_salted(message, secrets.token_bytes)
    query = {"author": key.public.hex(), "schema": schema}
    following = (yield from ask("GET", "/publish/next", query=query)).json()
    for attempt in range(1, _ATTEMPTS + 1):
        entry = sign_next(key, payload, read_next_entry(following))
        try:
            return (yield from send_entry(entry, payload))
        except Conflict as refused:
            if refused.code != "log.stale" or attempt == _ATTEMPTS:
                raise
            following = refused.data["next"]
    raise AssertionError("the last attempt returns or raises")


def send_entry(entry: Entry, payload: bytes) -> Flow[PublishReceipt]:
    """Send a signed entry with its payload."""
    body = {"entry": b64encode(entry.encoded).decode(), "payload": b64encode(payload).decode()}
    data = (yield from ask("POST", "/entries", body=body)).json()
    return PublishReceipt(data["hash"], data["status"], data["position"])


def read_next_entry(data: Any) -> NextEntry:
    """Read the number and the links of the next entry of a log from the JSON of a node."""
    links = [parse_hash(data[name]) if data[name] else None for name in ("lipmaa_link", "backlink")]
    author, flavour = parse_public_key(data["author"]), Flavour[data["hash"].upper()]
    return NextEntry(author, data["log_id"], data["seq_num"], links[0], links[1], flavour)


def _find_schema(name: str) -> Flow[Schema]:
    if "/" not in name:
        name = yield from _resolve(name)
    return read_schema((yield from ask("GET", f"/schemas/{name}")).json())


def _resolve(name: str) -> Flow[str]:
    """AUTHOR/LOG of the one view that has a name."""
    views = (yield from ask("GET", "/views")).json()["views"]
    found = [f"{view['schema']['author']}/{view['schema']['log_id']}" for view in views if view["name"] == name]
    if len(found) == 1:
        return found[0]
    if found:
        raise Conflict("view.ambiguous-name", f"several schemas are called {name!r}", 409, {"candidates": found})
    raise NotFound("view.unknown", f"no view is called {name!r} here: say AUTHOR/LOG", 404, {})


def _find_instance(instance: str) -> Flow[tuple[Instance, Schema]]:
    found = read_instance((yield from ask("GET", f"/instances/{instance}")).json())
    return found, (yield from _find_schema(found.schema))


def _version(schema: str, version: int) -> SchemaVersion:
    schema_id = parse_schema_id(schema)
    if schema_id is None:
        raise ValueError(f"the node calls a schema {schema[:80]!r}, which is not AUTHOR/LOG")
    return SchemaVersion(*schema_id, version)


def _values(schema: Schema, fields: Mapping[str, object]) -> dict[str, Any]:
    kinds = {field.name: field.type for field in schema.fields}
    # A field that the schema has not is for the node to refuse, with its own words.
    return {name: to_message(value, kinds.get(name, "text")) for name, value in fields.items()}


def _mode(text: str) -> AccessMode:
    for mode in get_args(AccessMode):
        if mode == text:
            known: AccessMode = mode
            return known
    raise ValueError(f"access is one of {', '.join(get_args(AccessMode))}, not {text!r}")

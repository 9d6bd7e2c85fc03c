"""Publishing: schemas, instances that the node or this client signs, sharing, blobs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from inkgrove.client import signing
from inkgrove.client.connection import Flow, ask
from inkgrove.client.models import (
    Blob,
    DeliveryStatus,
    NewSchemaVersion,
    Published,
    Schema,
    read_published,
    read_schema,
)
from inkgrove.client.values import to_json
from inkgrove.core import SecretKey

Mode = Literal["self", "closed", "listed", "relations", "public"]
Fields = Mapping[str, object]
MERGE_PATCH, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


def create_schema(name: str, *, description: str | None = None) -> Flow[NewSchemaVersion]:
    """Begin a schema: version 1 has a name and no fields yet."""
    return _version((yield from ask("POST", "/schemas", body={"name": name, "description": description})).json())


def migrate(schema: str, changes: Mapping[str, Mapping[str, object]]) -> Flow[NewSchemaVersion]:
    """Add a version that changes fields: `{"subject": {"action": "create", "type": "text"}}`."""
    body = {"fields": [{name: to_json(change)} for name, change in changes.items()]}
    return _version((yield from ask("POST", f"/schemas/{schema}/versions", body=body)).json())


def revert(schema: str, target: int) -> Flow[NewSchemaVersion]:
    """Add a version that takes up an earlier one."""
    return _version((yield from ask("POST", f"/schemas/{schema}/versions", body={"target": target})).json())


def _version(data: Mapping[str, Any]) -> NewSchemaVersion:
    return NewSchemaVersion(data["schema"], data["version"], data["entry"], data["position"])


def schema(name: str) -> Flow[Schema]:
    """Return a schema by AUTHOR/LOG."""
    return read_schema((yield from ask("GET", f"/schemas/{name}")).json())


def materialise(schema: str) -> Flow[str]:
    """Let the node keep a view of a schema, as its administrator; return the position to wait for."""
    position: str = (yield from ask("PUT", f"/views/{schema}")).json()["position"]
    return position


def dematerialise(schema: str) -> Flow[None]:
    """Stop keeping a view of a schema; its messages stay."""
    yield from ask("DELETE", f"/views/{schema}")


def create(
    schema: str,
    fields: Fields,
    *,
    access: Mode | None = None,
    to: Sequence[str] = (),
    recipients: Sequence[str] = (),
    expires: datetime | str | None = None,
    once: str | None = None,
    key: SecretKey | None = None,
) -> Flow[Published]:
    """Create an instance: the node signs, or with `key` this client does.

    `to` names who may see a closed instance. `once` is an idempotency key: the same request with it is done once.
    """
    if key is not None:
        if to:
            raise ValueError("`to` names identities that the node looks up: leave it out where the client signs")
        return (yield from signing.create(key, schema, fields, access, expires, recipients))
    body: dict[str, Any] = {"schema": schema, "fields": to_json(fields), "recipients": list(recipients)}
    if access is not None:
        body["access"] = {"mode": access, "to": list(to)} if to else {"mode": access}
    if expires is not None:
        body["expires"] = to_json(expires)
    return read_published((yield from ask("POST", "/instances", body=body, headers=_once(once))).json())


def update(instance: str, fields: Fields, *, once: str | None = None, key: SecretKey | None = None) -> Flow[Published]:
    """Give some fields new values; null takes one away, what is not named stays."""
    if key is not None:
        return (yield from signing.update(key, instance, fields))
    # A merge patch takes null as "remove", which for a field means null all the same.
    return (yield from _patch(instance, {"fields": to_json(fields)}, MERGE_PATCH, once, show_history=False))


def patch(
    instance: str, steps: Sequence[Mapping[str, object]], *, once: str | None = None, show_history: bool = False
) -> Flow[Published]:
    """Apply a JSON Patch (RFC 6902) to `{fields, access, expires}`: all of it, or nothing."""
    return (yield from _patch(instance, to_json(list(steps)), JSON_PATCH, once, show_history=show_history))


def set_access(instance: str, access: Mode, *, to: Sequence[str] = (), show_history: bool = False) -> Flow[Published]:
    """Change who may see an instance; those who newly may see its past, which `show_history` must allow."""
    word = {"mode": access, "to": list(to)} if to else {"mode": access}
    steps = [{"op": "add", "path": "/access", "value": word}]
    return (yield from _patch(instance, steps, JSON_PATCH, None, show_history=show_history))


def _patch(instance: str, body: object, media_type: str, once: str | None, *, show_history: bool) -> Flow[Published]:
    query = {"history": "show" if show_history else None}
    path = f"/instances/{instance}"
    answer = yield from ask("PATCH", path, query=query, body=body, media_type=media_type, headers=_once(once))
    return read_published(answer.json())


def replace(instance: str, fields: Fields, *, expires: datetime | str | None = None) -> Flow[Published]:
    """Give all fields new values; what is left out becomes null."""
    body: dict[str, Any] = {"fields": to_json(fields)}
    if expires is not None:
        body["expires"] = to_json(expires)
    return read_published((yield from ask("PUT", f"/instances/{instance}", body=body)).json())


def delete(instance: str, *, key: SecretKey | None = None) -> Flow[Published]:
    """Delete an instance; its entries stay as proof."""
    if key is not None:
        return (yield from signing.delete(key, instance))
    return read_published((yield from ask("DELETE", f"/instances/{instance}")).json())


def copy(instance: str, *, recipients: Sequence[str] = (), access: Mode | None = None) -> Flow[Published]:
    """Copy an instance that one can see; the copy belongs to the identity and names its source."""
    body: dict[str, Any] = {"recipients": list(recipients)}
    if access is not None:
        body["access"] = {"mode": access}
    return read_published((yield from ask("POST", f"/instances/{instance}/copy", body=body)).json())


def share(instance: str, recipients: Sequence[str]) -> Flow[None]:
    """Send an instance of the identity to more people, by id or name, on whichever node they are."""
    yield from ask("POST", f"/instances/{instance}/share", body={"recipients": list(recipients)})


def pass_on(instance: str, recipients: Sequence[str]) -> Flow[None]:
    """Send an instance that was received to more people, unchanged."""
    yield from ask("POST", f"/instances/{instance}/pass-on", body={"recipients": list(recipients)})


def deliveries(instance: str) -> Flow[tuple[DeliveryStatus, ...]]:
    """List those whom an instance was sent to, with how much each has received."""
    data = (yield from ask("GET", f"/instances/{instance}/deliveries")).json()
    return tuple(DeliveryStatus(**item) for item in data["deliveries"])


def upload(content: bytes, media_type: str = "application/octet-stream") -> Flow[Blob]:
    """Upload bytes; return the value for a field of type blob."""
    return Blob(**(yield from ask("POST", "/blobs", body=content, media_type=media_type)).json())


def download(blob: Blob | str) -> Flow[bytes]:
    """Return the bytes of a blob that one may read."""
    return (yield from ask("GET", f"/blobs/{blob.hash if isinstance(blob, Blob) else blob}")).content


def _once(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}

"""Writes small logs of messages for the tests of the oracle, with keys made from fixed seeds."""

from inkgrove.core import (
    Entry,
    Hash,
    HeldEntry,
    SecretKey,
    decode_entry,
    has_lipmaa_link,
    hash_entry,
    lipmaa,
    sign_entry,
    verify_signed,
)
from inkgrove.messages import SchemaId, cbor
from inkgrove.messages.cbor import Value
from inkgrove.reference import ReferenceRow, ReferenceView, fold_views

Map = dict[str, Value]


class Writer:
    """One log that grows by `write`; entry n stands at place n - 1 of `entries`."""

    def __init__(self, seed: int, log_id: int) -> None:
        self.key = SecretKey.from_seed(bytes([seed]) * 32)
        self.log_id = log_id
        self.entries: list[Entry] = []
        self.payloads: list[bytes] = []

    @property
    def schema(self) -> SchemaId:
        return SchemaId(self.key.public, self.log_id)

    def at(self, version: int) -> list[Value]:
        """The versioned schema, as messages name it."""
        return [bytes(self.key.public), self.log_id, version]

    def hash(self, seq_num: int) -> Hash:
        return hash_entry(self.entries[seq_num - 1])

    def write(self, message: Map | bytes, *, lies_about_size: bool = False, ends_log: bool = False) -> Hash:
        """Append a message, or any bytes, and give the hash of its entry."""
        payload = message if isinstance(message, bytes) else cbor.encode(message)
        seq_num = len(self.entries) + 1
        entry = sign_entry(
            self.key,
            payload,
            log_id=self.log_id,
            seq_num=seq_num,
            lipmaa_link=self.hash(lipmaa(seq_num)) if has_lipmaa_link(seq_num) else None,
            backlink=self.hash(seq_num - 1) if seq_num > 1 else None,
            is_end_of_log=ends_log,
        )
        if lies_about_size:
            assert len(payload) < 247, "the size is one byte before the hash of 66"
            unsigned = entry.signed_bytes[:-67] + bytes([len(payload) + 1]) + entry.signed_bytes[-66:]
            entry = decode_entry(unsigned + self.key.sign(unsigned))
        self.entries.append(entry)
        self.payloads.append(payload)
        return hash_entry(entry)

    def branch_at(self, seq_num: int) -> "Writer":
        """A log that shares the entries before `seq_num`; what is written there forks this one."""
        branch = Writer(0, self.log_id)
        branch.key = self.key
        branch.entries, branch.payloads = self.entries[: seq_num - 1], self.payloads[: seq_num - 1]
        return branch

    def held(self, *, without_payloads: tuple[int, ...] = ()) -> list[HeldEntry]:
        return [
            HeldEntry(verify_signed(entry), None if entry.seq_num in without_payloads else payload)
            for entry, payload in zip(self.entries, self.payloads, strict=True)
        ]


def meta(name: str = "slothmail") -> Map:
    return {"kind": "schema-meta", "name": name, "spec": 1}


def migration(**changes: Map) -> Map:
    return {"kind": "schema-migration", "fields": [{name: change} for name, change in changes.items()]}


def revert(target: int) -> Map:
    return {"kind": "schema-revert", "target": target}


def make(field_type: str, **more: Value) -> Map:
    """The change that creates a field."""
    return {"action": "create", "type": field_type, **more}


def change(default: Value, **more: Value) -> Map:
    """The change that updates a field."""
    return {"action": "update", "default": default, **more}


REMOVE: Map = {"action": "remove"}


def create(schema: Value, fields: Map | None = None, **more: Value) -> Map:
    return {"kind": "create", "schema": schema, "fields": fields or {}, **more}


def update(schema: Value, instance: Value, fields: Map | None = None, **more: Value) -> Map:
    given: Map = {} if fields is None else {"fields": fields}
    return {"kind": "update", "schema": schema, "instance": instance, **given, **more}


def delete(instance: Value, **more: Value) -> Map:
    return {"kind": "delete", "instance": instance, **more}


def schema_log(*messages: Map | bytes, log_id: int = 12) -> Writer:
    """A schema by author 1: a `schema-meta`, then the messages."""
    log = Writer(1, log_id)
    log.write(meta())
    for message in messages:
        log.write(message)
    return log


def view_of(schema: Writer, *logs: Writer, registered: list[SchemaId] | None = None) -> ReferenceView:
    """The view of one schema, all schemas being registered."""
    held = [item for log in (schema, *logs) for item in log.held()]
    [view] = [view for view in fold_views(held, registered) if view.schema == schema.schema]
    return view


def codes(view: ReferenceView) -> list[str]:
    """The codes of the outcomes in the order of the view."""
    return [outcome.code for outcome in view.outcomes]


def fields(view: ReferenceView) -> list[dict[str, Value]]:
    """The fields of the rows in the order of the view."""
    return [row.fields for row in view.rows]


def only_row(view: ReferenceView) -> ReferenceRow:
    [row] = view.rows
    return row

"""A row: its values with where each came from, its history, its proof."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from inkgrove.core.hashing import Hash
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages.instance import Delete
from inkgrove.node.errors import PastTooLong, UnknownInstance
from inkgrove.node.history import Event, read_history, show_instance_at, written_fields
from inkgrove.node.prove import prove_instance
from inkgrove.node.query import parse_instance, relation_schema, show_instance
from inkgrove.pages.proofs import check_proof
from inkgrove.pages.visits import PageRoute, VisitDependency
from inkgrove.pages.words import value_words
from inkgrove.schema.types import RELATION_TYPES
from inkgrove.store.owners import Owner
from inkgrove.store.query import ViewRow
from inkgrove.store.view_store import View

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_KINDS = {"Create": "created", "Update": "changed", "Delete": "deleted"}


def _around(view: View, row: ViewRow, owner: Owner) -> dict[str, Any]:
    return {
        "view": view,
        "row": row,
        "instance": row.instance.hex(),
        "owner": owner.fqdn,
        "view_address": f"/pages/views/{view.schema_id.author.hex()}/{view.schema_id.log_id}",
    }


@router.get("/pages/instances/{instance}")
def show_row(
    visit: VisitDependency,
    instance: str,
    as_of: Annotated[int | None, Query(ge=1, le=MAX_STORED_INTEGER)] = None,
) -> Response:
    """A row as it is, or as it was after an entry of its log, with its history."""
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    found = show_instance(node, caller, name) if as_of is None else show_instance_at(node, caller, name, as_of)
    view, row, owner = found
    try:
        history = [_told(event) for event in reversed(read_history(node, caller, name))]
    except PastTooLong:
        history = []
    values = [
        {
            "name": field,
            "type": kind,
            "text": value_words(row.fields[field]),
            "targets": _targets(kind, row.fields[field]),
            "seq_num": row.field_seq_nums[field],
        }
        for field, kind in view.fields
        if field in row.fields
    ]
    facts = {**_around(view, row, owner), "values": values, "history": history, "as_of": as_of}
    return visit.show("instance.html", facts)


def _targets(kind: str, value: Any) -> list[str]:
    """The instances that a relation points to."""
    if kind not in RELATION_TYPES or value is None:
        return []
    return [Hash(item).hex() for item in (value if isinstance(value, list | tuple) else [value])]


def _told(event: Event) -> dict[str, Any]:
    message, ruling = event.message, event.ruling
    return {
        "seq_num": event.seq_num,
        "hash": event.hash.hex(),
        "kind": "unreadable" if message is None else _KINDS[type(message).__name__],
        "version": None if message is None or message.schema is None else message.schema.version,
        "fields": {} if message is None else {key: value_words(v) for key, v in written_fields(message).items()},
        "access": None if message is None or isinstance(message, Delete) else message.access,
        "outcome": "pending" if ruling is None else ruling.outcome.value,
        "reason": None if ruling is None else ruling.reason,
    }


@router.get("/pages/instances/{instance}/fields/{field}")
def show_provenance(visit: VisitDependency, instance: str, field: str) -> Response:
    """Where one value came from: who said it, in which entry, at which version, and what stood there before."""
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    view, row, owner = show_instance(node, caller, name)
    kinds = dict(view.fields)
    if field not in kinds:
        raise UnknownInstance(f"the view has no field {field[:80]!r}")
    history = [_told(event) for event in read_history(node, caller, name)]
    source = next((item for item in history if item["seq_num"] == row.field_seq_nums[field]), None)
    shown = value_words(row.fields[field])
    said = None if source is None else source["fields"].get(field)
    facts = {
        **_around(view, row, owner),
        "field": field,
        "type": kinds[field],
        "text": shown,
        "source": source,
        "said": said,
        "is_default": source is not None and said != shown,
        "earlier": [item for item in reversed(history) if field in item["fields"]],
        "target": relation_schema(node, view, field) if kinds[field] in RELATION_TYPES else None,
        "targets": _targets(kinds[field], row.fields[field]),
    }
    return visit.show("field.html", facts)


@router.get("/pages/instances/{instance}/proof")
def show_proof(visit: VisitDependency, instance: str) -> Response:
    """The proof of a row, checked now, each check in a sentence."""
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    view, row, owner = show_instance(node, caller, name)
    checked = check_proof(prove_instance(node, caller, name), row)
    return visit.show("proof.html", {**_around(view, row, owner), "checked": checked})

"""A row: its values with where each came from, its history, its proof."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from inkgrove.api.http import make_large
from inkgrove.core.hashing import Hash
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages.instance import Delete
from inkgrove.node.errors import PastTooLong, UnknownInstance
from inkgrove.node.history import Event, read_history, show_instance_at, written_fields
from inkgrove.node.prove import prove_instance
from inkgrove.node.query import parse_instance, relation_schema, show_instance
from inkgrove.pages.proofs import check_proof
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency
from inkgrove.pages.words import cell, value_words
from inkgrove.schema.types import RELATION_TYPES
from inkgrove.store.owners import Owner
from inkgrove.store.query import ViewRow
from inkgrove.store.view_store import View

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_SHOWN: Final = 300
"""How much of a value the history shows; the row itself shows it whole."""
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
async def show_row(
    visit: VisitDependency,
    instance: str,
    as_of: Annotated[int | None, Query(ge=1, le=MAX_STORED_INTEGER)] = None,
) -> Response:
    """A row as it is, or as it was after an entry of its log, with its history."""
    return await make_large(visit.request, _row, visit, instance, as_of)


def _row(visit: Visit, instance: str, as_of: int | None) -> Response:
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


def _told(event: Event, only: str | None = None) -> dict[str, Any]:
    """An event in words, with the beginnings of what it says of all fields, or of the only one that is asked for."""
    message, ruling = event.message, event.ruling
    said = {} if message is None else written_fields(message)
    asked = said if only is None else {only: said[only]} if only in said else {}
    return {
        "seq_num": event.seq_num,
        "hash": event.hash.hex(),
        "kind": "unreadable" if message is None else _KINDS[type(message).__name__],
        "version": None if message is None or message.schema is None else message.schema.version,
        "fields": {name: cell(value, _SHOWN) for name, value in asked.items()},
        "access": None if message is None or isinstance(message, Delete) else message.access,
        "outcome": "pending" if ruling is None else ruling.outcome.value,
        "reason": None if ruling is None else ruling.reason,
    }


def _words_of(event: Event, field: str) -> str | None:
    """All that an event says of a field; None if it does not speak of it."""
    said = {} if event.message is None else written_fields(event.message)
    return value_words(said[field]) if field in said else None


@router.get("/pages/instances/{instance}/fields/{field}")
async def show_provenance(visit: VisitDependency, instance: str, field: str) -> Response:
    """Where one value came from: who said it, in which entry, at which version, and what stood there before."""
    return await make_large(visit.request, _provenance, visit, instance, field)


def _provenance(visit: Visit, instance: str, field: str) -> Response:
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    view, row, owner = show_instance(node, caller, name)
    kinds = dict(view.fields)
    if field not in kinds:
        raise UnknownInstance(f"the view has no field {field[:80]!r}")
    events = read_history(node, caller, name)
    origin = next((event for event in events if event.seq_num == row.field_seq_nums[field]), None)
    history = [_told(event, field) for event in events]
    source = None if origin is None else _told(origin, field)
    shown = value_words(row.fields[field])
    said = None if source is None else source["fields"].get(field)
    is_default = origin is not None and _words_of(origin, field) != shown
    facts = {
        **_around(view, row, owner),
        "field": field,
        "type": kinds[field],
        "text": shown,
        "source": source,
        "said": said,
        "is_default": is_default,
        "earlier": [item for item in reversed(history) if field in item["fields"]],
        "target": relation_schema(node, view, field) if kinds[field] in RELATION_TYPES else None,
        "targets": _targets(kinds[field], row.fields[field]),
    }
    return visit.show("field.html", facts)


@router.get("/pages/instances/{instance}/proof")
async def show_proof(visit: VisitDependency, instance: str) -> Response:
    """The proof of a row, checked now, each check in a sentence."""
    return await make_large(visit.request, _proof, visit, instance)


def _proof(visit: Visit, instance: str) -> Response:
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    view, row, owner = show_instance(node, caller, name)
    checked = check_proof(prove_instance(node, caller, name), row)
    return visit.show("proof.html", {**_around(view, row, owner), "checked": checked})

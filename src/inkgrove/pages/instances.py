"""The pages of a row: its values with the entry behind each, its history, and its proof, checked now.

Whether a proof holds is the verdict of `verify_proof` alone, as in `inkgrove proof verify`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from inkgrove.api.http.answers import make_large
from inkgrove.core import Entry, Hash, decode_entry, shortest_path
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import Delete, Proof, ProvedInstance, verify_proof
from inkgrove.node.errors import PastTooLong, ViewError
from inkgrove.node.reading import (
    HistoryMessage,
    parse_instance,
    prove_instance,
    read_history,
    relation_schema,
    show_instance,
    show_instance_at,
    written_fields,
)
from inkgrove.pages.visits import PageRoute, Visit, VisitDependency
from inkgrove.pages.wording import cell, plural, render_value, short
from inkgrove.schema import RELATION_TYPES
from inkgrove.store.views import Owner, View, ViewRow

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_SHOWN: Final = 300
"""How many characters of a value the history shows; the row itself shows all of them."""
_KINDS = {"Create": "created", "Update": "changed", "Delete": "deleted"}


def _common_facts(view: View, row: ViewRow, owner: Owner) -> dict[str, Any]:
    return {
        "view": view,
        "row": row,
        "instance": row.instance.hex(),
        "owner": owner.fqdn,
        "view_address": f"/pages/views/{view.schema_id}",
    }


@router.get("/pages/instances/{instance}")
async def show_row(
    visit: VisitDependency,
    instance: str,
    as_of: Annotated[int | None, Query(ge=1, le=MAX_STORED_INTEGER)] = None,
) -> Response:
    """Show a row as it is, or as it was after the entry `as_of` of its log, with its history."""
    return await make_large(visit.request, _row, visit, instance, as_of)


def _row(visit: Visit, instance: str, as_of: int | None) -> Response:
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    found = show_instance(node, caller, name) if as_of is None else show_instance_at(node, caller, name, as_of)
    view, row, owner = found
    try:
        history = [_describe_event(event) for event in reversed(read_history(node, caller, name))]
    except PastTooLong:
        history = []
    values = [
        {
            "name": field,
            "type": kind,
            "text": render_value(row.fields[field]),
            "targets": _targets(kind, row.fields[field]),
            "seq_num": row.field_seq_nums[field],
        }
        for field, kind in view.fields
        if field in row.fields
    ]
    facts = {**_common_facts(view, row, owner), "values": values, "history": history, "as_of": as_of}
    return visit.show("instance.html", facts)


def _targets(kind: str, value: Any) -> list[str]:
    """Return the ids of the instances that a relation points to."""
    if kind not in RELATION_TYPES or value is None:
        return []
    return [Hash(item).hex() for item in (value if isinstance(value, list | tuple) else [value])]


def _describe_event(event: HistoryMessage, only: str | None = None) -> dict[str, Any]:
    """Describe a message of the row, with the beginning of each value that it writes, or of the field `only`."""
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


def _written_value(event: HistoryMessage, field: str) -> str | None:
    """Return the whole value that a message writes to a field; None if it writes none."""
    said = {} if event.message is None else written_fields(event.message)
    return render_value(said[field]) if field in said else None


@router.get("/pages/instances/{instance}/fields/{field}")
async def show_provenance(visit: VisitDependency, instance: str, field: str) -> Response:
    """Show where one value came from: its author, entry and version, and the values before it."""
    return await make_large(visit.request, _provenance, visit, instance, field)


def _provenance(visit: Visit, instance: str, field: str) -> Response:
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    view, row, owner = show_instance(node, caller, name)
    kinds = dict(view.fields)
    if field not in kinds:
        raise ViewError("view.unknown-instance", f"the view has no field {field[:80]!r}")
    events = read_history(node, caller, name)
    own = (event for event in events if event.instance == row.instance)
    origin = next((event for event in own if event.seq_num == row.field_seq_nums[field]), None)
    history = [_describe_event(event, field) for event in events]
    source = None if origin is None else _describe_event(origin, field)
    shown = render_value(row.fields[field])
    said = None if source is None else source["fields"].get(field)
    is_default = origin is not None and _written_value(origin, field) != shown
    facts = {
        **_common_facts(view, row, owner),
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
    """Show the proof of a row, checked now, with a sentence for each check."""
    return await make_large(visit.request, _proof, visit, instance)


def _proof(visit: Visit, instance: str) -> Response:
    node, caller, name = visit.node, visit.caller, parse_instance(instance)
    view, row, owner = show_instance(node, caller, name)
    checked = check_proof(prove_instance(node, caller, name), row)
    return visit.show("proof.html", {**_common_facts(view, row, owner), "checked": checked})


@dataclass(frozen=True, slots=True)
class ProofCheck:
    """One thing that was checked, in words for people."""

    title: str
    detail: str
    holds: bool


@dataclass(frozen=True, slots=True)
class CheckedProof:
    """A proof after its verification: whether it holds, and each check."""

    holds: bool
    checks: Sequence[ProofCheck]
    entries: Sequence[tuple[Entry, bytes | None]]


def check_proof(proof: Proof, row: ViewRow) -> CheckedProof:
    """Verify the proof of a row and describe each check; a proof that does not hold is a result, not an error."""
    try:
        entries = [(decode_entry(entry), payload) for entry, payload in proof.entries]
        proved = verify_proof(proof)
    except InkgroveError as error:
        return CheckedProof(False, [ProofCheck("The proof does not hold", error.message, holds=False)], [])
    checks = [*_describe_checks(proved, entries), _check_values(proved, row)]
    return CheckedProof(all(check.holds for check in checks), checks, entries)


def _describe_checks(proved: ProvedInstance, entries: Sequence[tuple[Entry, bytes | None]]) -> list[ProofCheck]:
    author = short(proved.author)
    path = " → ".join(map(str, shortest_path(proved.messages[-1].seq_num, 1)))
    said = sum(payload is not None for _, payload in entries)
    later = len(proved.messages) - 1
    return [
        ProofCheck(
            "Signed by its author",
            f"{plural(len(entries), 'entry')} of log {proved.log_id}, each with an Ed25519 signature of the key"
            f" {author}: every signature fits its bytes. Whoever does not hold the key cannot have made them.",
            holds=True,
        ),
        ProofCheck(
            "Linked, back to the first entry",
            f"Each entry names the hashes of earlier ones, and they are the right ones: {path}. Nothing on the way can"
            " have been changed, left out or put in without breaking a link.",
            holds=True,
        ),
        ProofCheck(
            "The words are the ones that were signed",
            f"{plural(said, 'message')} came along, and size and hash of each are what its entry says.",
            holds=True,
        ),
        ProofCheck(
            "It is about this row",
            f"Entry {proved.messages[0].seq_num} is the create whose hash is the row’s id"
            + (f"; it is named by {plural(later, 'later message')}." if later else "."),
            holds=True,
        ),
    ]


def _check_values(proved: ProvedInstance, row: ViewRow) -> ProofCheck:
    known = {item.seq_num for item in proved.messages}
    missing = sorted(name for name, seq_num in row.field_seq_nums.items() if seq_num not in known)
    if missing:
        detail = (
            f"The messages behind {', '.join(missing)} are not among them: the view has seen more than the log holds."
        )
        return ProofCheck("The values are in these messages", detail, holds=False)
    detail = f"Every value shown comes from one of these {plural(len(known), 'message')}, by the rules of its schema."
    return ProofCheck("The values are in these messages", detail, holds=True)

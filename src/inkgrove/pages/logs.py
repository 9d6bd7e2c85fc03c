"""The pages of logs: authors, heights, forks with their proofs, and the links between entries as a picture."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Response

from inkgrove.core import hash_entry, list_claims, parse_public_key
from inkgrove.core.errors import InkgroveError
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import DocumentState, decode_message
from inkgrove.node.errors import ViewError
from inkgrove.node.reading import LogPage, list_logs, show_log
from inkgrove.pages.link_picture import draw_links
from inkgrove.pages.visits import PageRoute, VisitDependency
from inkgrove.pages.wording import DOCUMENT_STATES, IDENTITY_STATES
from inkgrove.store.logs import LogState, StoredEntry, find_log

router = APIRouter(route_class=PageRoute, include_in_schema=False)
ENTRIES: Final = 40
_NAMED: Final = 25
"""How many schemas without a view are read for their names."""


@router.get("/pages/logs")
def show_logs(visit: VisitDependency) -> Response:
    """List authors and their logs: one's own, those that define views, and for the administrator all."""
    authors = list_logs(visit.node, visit.caller)
    # The views know the names of theirs; a few others are read.
    names = {schema_id: view.name for schema_id, view in visit.node.views.views().items()}
    others = {name for author in authors for _, schemas in author.logs for name in schemas if not names.get(name)}
    for name in sorted(others)[:_NAMED]:
        meta = visit.node.schemas.read(name).meta
        names[name] = None if meta is None else meta.name
    facts = {
        "authors": sorted(authors, key=lambda author: (author.fqdn or "~", author.key)),
        "names": {name: text for name, text in names.items() if text is not None},
        "standing": describe_standing,
    }
    return visit.show("logs.html", facts)


@router.get("/pages/logs/{author}/{log_id:int}")
def show_one_log(
    visit: VisitDependency,
    author: str,
    log_id: int,
    first: Annotated[int | None, Query(ge=1, le=MAX_STORED_INTEGER)] = None,
) -> Response:
    """Show a log: its height, how far it counts, its last entries, its links, and the proof of a fork."""
    try:
        key = parse_public_key(author)
    except InkgroveError as err:
        raise ViewError("view.unknown-log", "no such log is here, or it may not be seen") from err
    if first is None:
        state = visit.node.store.read(find_log, key, log_id)
        first = 1 if state is None else max(1, state.height - ENTRIES + 1)
    found = show_log(visit.node, visit.caller, key, log_id, first, ENTRIES)
    last = min(found.state.height, first + ENTRIES - 1)
    address = f"/pages/logs/{author}/{log_id}"
    facts = {
        "log": found,
        "state": found.state,
        "author": author,
        "standing": IDENTITY_STATES.get(found.identity_state or "") or describe_standing(found.state),
        "identity_state": found.identity_state,
        "entries": [_entry(item, found) for item in reversed(found.entries)],
        "picture": draw_links(first, last),
        "first": first,
        "last": last,
        "older": f"{address}?first={max(1, first - ENTRIES)}" if first > 1 else None,
        "newer": f"{address}?first={last + 1}" if last < found.state.height else None,
        "fork": _fork(found),
    }
    return visit.show("log.html", facts)


def describe_standing(state: LogState) -> str:
    """Render how far the entries of a log count, and why no further."""
    standing = state.standing
    if state.is_pinned:
        return f"its key was revoked: the branch that leads to entry {standing.revoked_after} counts"
    if standing.forked_at is not None:
        return f"forked at entry {standing.forked_at}: nothing counts from there on"
    if standing.lied_at is not None:
        return f"entry {standing.lied_at} lies about its payload: nothing counts from there on"
    if standing.ended_at is not None:
        return f"ended by its author at entry {standing.ended_at}"
    if standing.revoked_after is not None:
        return f"its key was revoked: entries up to {standing.revoked_after} count"
    return "whole" if state.is_whole else f"partial: {state.held:,} of {state.height:,} entries held"


def _entry(item: StoredEntry, page: LogPage) -> dict[str, Any]:
    kind = "payload not held"
    if item.payload is not None:
        try:
            kind = _kind(decode_message(item.payload))
        except InkgroveError as error:
            kind = f"unreadable ({error.code})"
    return {
        "seq_num": item.entry.seq_num,
        "hash": item.hash.hex(),
        "kind": kind,
        "size": item.entry.payload_size,
        "refusal": None if item.hash in page.documents else item.refusal,
        "document": _document(page.documents.get(item.hash)),
    }


def _document(state: DocumentState | None) -> dict[str, str] | None:
    return None if state is None else {"code": state.value, "words": DOCUMENT_STATES[state]}


def _kind(message: object) -> str:
    name = type(message).__name__
    return {"SchemaMeta": "schema-meta", "SchemaMigration": "schema-migration", "SchemaRevert": "schema-revert"}.get(
        name, {"IdentityDocument": "identity", "KeyOf": "key-of"}.get(name, name.lower())
    )


def _fork(found: LogPage) -> dict[str, Any] | None:
    proof = found.fork
    if proof is None:
        return None
    witnesses = []
    for signed in (proof.first, proof.second):
        claimed = next(claim for seq_num, claim in list_claims(signed) if seq_num == proof.seq_num)
        witnesses.append(
            {
                "seq_num": signed.entry.seq_num,
                "hash": hash_entry(signed.entry).hex(),
                "claims": claimed.hex(),
                "signature": signed.entry.signature.hex(),
            }
        )
    return {"seq_num": proof.seq_num, "witnesses": witnesses}

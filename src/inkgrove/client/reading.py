"""Reading: views page by page, instances, history, outcomes and proofs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from inkgrove.client.connection import Flow, ask
from inkgrove.client.models import (
    Instance,
    InstanceEvent,
    MessageOutcome,
    Page,
    SchemaField,
    ViewInfo,
    read_instance,
    read_page,
    read_view_info,
)
from inkgrove.client.values import to_json
from inkgrove.core.errors import ProofError
from inkgrove.messages import ProvedInstance, read_proof, verify_proof

OutcomeName = Literal["applied", "pending", "quarantined", "obsolete"]
Condition = str | tuple[str, str, object]
"""A filter as `"stars:gte:4"` or as `("stars", "gte", 4)`."""


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """Which rows of a view are wanted, in which order, with which fields."""

    where: Sequence[Condition] = ()
    sort: Sequence[str] | str = ()
    fields: Sequence[str] | None = None
    expand: Sequence[str] = ()
    page_size: int = 100
    at_least: str | None = None


class ViewOptions(TypedDict, total=False):
    """The fields of a `ViewQuery` as keyword arguments of the methods of a view."""

    where: Sequence[Condition]
    sort: Sequence[str] | str
    fields: Sequence[str] | None
    expand: Sequence[str]
    page_size: int
    at_least: str | None


def page(view: str, query: ViewQuery, cursor: str | None = None, *, count: bool = False) -> Flow[Page]:
    """Return a page of the rows that match and that one may see; `count` asks for the number of all of them."""
    sort = [query.sort] if isinstance(query.sort, str) else query.sort
    parameters: list[tuple[str, object]] = [
        *(("where", _condition(item)) for item in query.where),
        ("sort", ",".join(sort) or None),
        ("fields", None if query.fields is None else ",".join(query.fields)),
        ("expand", ",".join(query.expand) or None),
        ("limit", query.page_size),
        ("cursor", cursor),
        ("count", count or None),
        # Later pages need not wait: they are of the same view or a newer one.
        ("at_least", query.at_least if cursor is None else None),
    ]
    return read_page((yield from ask("GET", f"/views/{view}", query=parameters)).json())


def _condition(item: Condition) -> str:
    if isinstance(item, str):
        return item
    name, operator, value = item
    plain = to_json(value)
    text = ",".join(map(str, plain)) if isinstance(plain, list) else plain
    return f"{name}:{operator}:{str(text).lower() if isinstance(text, bool) else text}"


def views(*, count: bool = False) -> Flow[tuple[ViewInfo, ...]]:
    """List every view of the node; `count` asks for the number of rows of each."""
    data = (yield from ask("GET", "/views", query={"count": count or None})).json()
    return tuple(map(read_view_info, data["views"]))


def instance(name: str, *, as_of: int | None = None, at_least: str | None = None) -> Flow[Instance]:
    """Return an instance with the entry behind each value; with `as_of` as it was after the entry of that number."""
    query = {"as_of": as_of, "at_least": at_least}
    return read_instance((yield from ask("GET", f"/instances/{name}", query=query)).json())


def history(name: str) -> Flow[tuple[InstanceEvent, ...]]:
    """List every message of an instance with its outcome, oldest first."""
    data = (yield from ask("GET", f"/instances/{name}/history")).json()
    return tuple(InstanceEvent(**item) for item in data["history"])


def outcomes(view: str, only: OutcomeName | None, cursor: str | None) -> Flow[tuple[list[MessageOutcome], str | None]]:
    """Return a page of outcomes of messages, and the cursor of the next page or None."""
    query = {"only": only, "cursor": cursor, "limit": 1000}
    data: Any = (yield from ask("GET", f"/views/{view}/outcomes", query=query)).json()
    return [MessageOutcome(**item) for item in data["outcomes"]], data["cursor"]


def proof(name: str) -> Flow[bytes]:
    """Return the proof of an instance, as bytes that `inkgrove proof verify` reads from a file."""
    return (yield from ask("GET", f"/instances/{name}/proof")).content


def verify(name: str) -> Flow[ProvedInstance]:
    """Fetch the proof of an instance, verify it here and return what it proves.

    Raises the error of the first check that fails, and `proof.of-other` for the proof of another instance.
    """
    proved = verify_proof(read_proof((yield from proof(name))))
    if proved.instance.hex() != name:
        raise ProofError("proof.of-other", "the node sent the proof of another instance")
    return proved


def fields_of(known: Sequence[ViewInfo], part: Page, query: ViewQuery) -> Sequence[SchemaField]:
    """Return the fields that a page shows, with their types; `known` are the views of the node."""
    fields = next(view.fields for view in known if view.schema == part.schema)
    wanted = None if query.fields is None else {*query.fields, *query.expand}
    return [field for field in fields if wanted is None or field.name in wanted]

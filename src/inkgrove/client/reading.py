"""Reading: views page by page, instances, history, outcomes and proofs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from inkgrove.client.exchange import Flow, ask
from inkgrove.client.models import (
    HistoryEvent,
    Instance,
    Outcome,
    Page,
    ViewInfo,
    read_instance,
    read_page,
    read_view_info,
)
from inkgrove.client.values import to_json
from inkgrove.core.errors import ProofOfOther
from inkgrove.messages.proof import ProvedInstance, read_proof, verify_proof

Condition = str | tuple[str, str, object]
"""`"stars:gte:4"`, or the same as `("stars", "gte", 4)`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a view."""

    where: Sequence[Condition] = ()
    sort: Sequence[str] | str = ()
    fields: Sequence[str] | None = None
    expand: Sequence[str] = ()
    page_size: int = 100
    at_least: str | None = None


class Asked(TypedDict, total=False):
    """The same as keyword arguments."""

    where: Sequence[Condition]
    sort: Sequence[str] | str
    fields: Sequence[str] | None
    expand: Sequence[str]
    page_size: int
    at_least: str | None


def page(view: str, question: Question, cursor: str | None = None, *, count: bool = False) -> Flow[Page]:
    """A page of the rows that one may see."""
    sort = [question.sort] if isinstance(question.sort, str) else question.sort
    query: list[tuple[str, object]] = [
        *(("where", _condition(item)) for item in question.where),
        ("sort", ",".join(sort) or None),
        ("fields", None if question.fields is None else ",".join(question.fields)),
        ("expand", ",".join(question.expand) or None),
        ("limit", question.page_size),
        ("cursor", cursor),
        ("count", count or None),
        # Later pages need not wait: they are of the same view or a newer one.
        ("at_least", question.at_least if cursor is None else None),
    ]
    return read_page((yield from ask("GET", f"/views/{view}", query=query)).json())


def _condition(item: Condition) -> str:
    if isinstance(item, str):
        return item
    name, operator, value = item
    plain = to_json(value)
    text = ",".join(map(str, plain)) if isinstance(plain, list) else plain
    return f"{name}:{operator}:{str(text).lower() if isinstance(text, bool) else text}"


def views(*, count: bool = False) -> Flow[tuple[ViewInfo, ...]]:
    """Every view of the node."""
    data = (yield from ask("GET", "/views", query={"count": count or None})).json()
    return tuple(map(read_view_info, data["views"]))


def instance(name: str, *, as_of: int | None = None, at_least: str | None = None) -> Flow[Instance]:
    """An instance with the entry behind each value; `as_of` as it was after that entry."""
    query = {"as_of": as_of, "at_least": at_least}
    return read_instance((yield from ask("GET", f"/instances/{name}", query=query)).json())


def history(name: str) -> Flow[tuple[HistoryEvent, ...]]:
    """Every message of an instance and what became of it."""
    data = (yield from ask("GET", f"/instances/{name}/history")).json()
    return tuple(HistoryEvent(**item) for item in data["history"])


def outcomes(
    view: str, only: Literal["applied", "pending", "quarantined", "obsolete"] | None, cursor: str | None
) -> Flow[tuple[list[Outcome], str | None]]:
    """A page of what became of messages."""
    query = {"only": only, "cursor": cursor, "limit": 1000}
    data: Any = (yield from ask("GET", f"/views/{view}/outcomes", query=query)).json()
    return [Outcome(**item) for item in data["outcomes"]], data["cursor"]


def proof(name: str) -> Flow[bytes]:
    """The proof of an instance, as a file for `inkgrove proof verify`."""
    return (yield from ask("GET", f"/instances/{name}/proof")).content


def verify(name: str) -> Flow[ProvedInstance]:
    """Fetch the proof of an instance and check it here; raises why it does not hold."""
    proved = verify_proof(read_proof((yield from proof(name))))
    if proved.instance.hex() != name:
        raise ProofOfOther("the node sent the proof of another instance")
    return proved

"""Follows the relations of a page one step, within a bound on what an answer holds.

A list may name 1,024 rows, one of them as often as it likes, and each of them may be large.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from sqlalchemy import Connection

from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.store.views import Reader, View, ViewRow, read_rows, weight_of

_PIECE: Final = 50
Related = ViewRow | Sequence[ViewRow | None] | None
"""What a relation points to; None where nothing is to be seen."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """What the relations of the first rows of a page point to, as far as it fits."""

    related: Sequence[Mapping[str, Related]]
    """For each row that fits, by relation; for the first row always."""
    left_out: Sequence[str] = ()
    """The relations of the first row, then the only one, that do not fit as a whole."""

    def authors(self) -> set[PublicKey]:
        """Who wrote the related rows."""
        found = chain.from_iterable(row.values() for row in self.related)
        items = chain.from_iterable(item if isinstance(item, Sequence) else [item] for item in found)
        return {item.author for item in items if item is not None}


def expand(
    connection: Connection,
    rows: Sequence[ViewRow],
    targets: Mapping[str, View | None],
    reader: Reader,
    most_bytes: int,
) -> Expansion:
    """Follow relations, each into its view, until rows and related rows have about `most_bytes`."""
    relations = {field: _Relation(view, _named(rows, field)) for field, view in targets.items()}
    related: list[dict[str, Related]] = []
    to_read = to_show = most_bytes
    for row in rows:
        to_show -= weight_of(row)
        shown: dict[str, Related] = {}
        left_out: dict[str, None] = {}
        for field, relation in relations.items():
            items: list[ViewRow | None] = []
            for name in _elements(row.fields[field]):
                if name not in relation.known and to_read > 0:
                    to_read -= relation.read(connection, reader)
                found, weight = relation.known.get(name, (None, to_show + 1))
                if weight > to_show:
                    found, weight = None, 0
                    left_out[field] = None
                to_show -= weight
                items.append(found)
            is_list = isinstance(row.fields[field], list)
            shown[field] = items if is_list else items[0] if items else None
        if left_out:
            return Expansion(related) if related else Expansion([shown], list(left_out))
        related.append(shown)
    return Expansion(related)


class _Relation:
    """The rows that a relation points to, read in the order in which the page names them."""

    def __init__(self, view: View | None, wanted: Iterable[Hash]) -> None:
        self._view, self._wanted = view, iter(wanted)
        self.known: dict[Hash, tuple[ViewRow | None, int]] = {}
        """What was read, with its weight."""

    def read(self, connection: Connection, reader: Reader) -> int:
        """Read the next rows; how much they weigh."""
        some = list(islice(self._wanted, _PIECE))
        rows = [] if self._view is None else read_rows(connection, self._view, some, reader)
        self.known |= dict.fromkeys(some, (None, 0))
        self.known |= {row.instance: (row, weight_of(row)) for row in rows}
        return sum(self.known[row.instance][1] for row in rows)


def _named(rows: Sequence[ViewRow], field: str) -> dict[Hash, None]:
    """Each instance that a relation names, in order and once."""
    return dict.fromkeys(name for row in rows for name in _elements(row.fields[field]))


def _elements(value: Any) -> Sequence[Hash]:
    return [] if value is None else value if isinstance(value, list) else [value]

"""Who may see a row, as one SQL condition that every reading route shares (docs/protocol.md section 8).

The newest held word counts: `self` is for the owner alone, `closed` for those it names and was sent to, `listed` (also
without a word) for those it was sent to, `relations` for accepted followers too, `public` for everyone. The owner sees
everything of their own, and nobody sees what has expired.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, MetaData, Table, and_, exists, or_, select

from inkgrove.core.keys import IdentityId, PublicKey
from inkgrove.messages.instance import AccessMode
from inkgrove.store import node_tables

_beside = MetaData(schema="node")
_shares, _relations, _keys = (
    table.to_metadata(_beside) for table in (node_tables.shares, node_tables.relations, node_tables.identity_keys)
)


def visible_rows(
    rows: Table, reader: IdentityId | None, own_keys: Collection[PublicKey], now: int
) -> ColumnElement[bool]:
    """Whether the reader, who owns what `own_keys` author, may see a row at a time; None is anybody."""
    is_fresh = or_(rows.c._expires.is_(None), rows.c._expires > now)
    choices: list[ColumnElement[bool]] = [_has_mode(rows, "public")]
    if reader is not None:
        was_sent = exists().where(_shares.c.instance == rows.c._instance, _shares.c.identity == reader)
        followed = (
            select(_keys.c.author)
            .join_from(_relations, _keys, _keys.c.identity == _relations.c.followee)
            .where(_relations.c.follower == reader, _relations.c.state == "accepted")
        )
        choices += [
            rows.c._author.in_(sorted(own_keys)),
            and_(or_(rows.c._access.is_(None), _has_mode(rows, "listed"), _has_mode(rows, "relations")), was_sent),
            and_(_has_mode(rows, "closed"), rows.c._access.contains(f'"{reader.hex()}"'), was_sent),
            and_(_has_mode(rows, "relations"), rows.c._author.in_(followed)),
        ]
    return and_(is_fresh, or_(*choices))


def _has_mode(rows: Table, mode: AccessMode) -> ColumnElement[bool]:
    return rows.c._access.startswith(f'{{"mode": "{mode}"')

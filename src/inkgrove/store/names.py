"""Who has which name on this node or had it last, and whose id the rights of an administrator are bound to.

docs/protocol.md section 7.7. A row of `names` is made when a name is taken and stays after it was left, so that nobody
else gets it at once. Whoever decides holds `lock_fqdn` of the name.
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, select, update

from inkgrove.core import IdentityId
from inkgrove.store.compiled import Compiled
from inkgrove.store.database import insert_new, lock_name, put_row
from inkgrove.store.node_tables import administrators, names

UNDATED: Final = 0
"""When a name was left, if no clock was at hand: the next one who asks for it dates it."""


@dataclass(frozen=True, slots=True)
class NameRecord:
    """A name that somebody has on this node, or had last."""

    fqdn: str
    identity: IdentityId
    is_given: bool
    """The operator gave it: it counts whatever the domains of the node are."""
    checked: int
    """When other servers were last seen to lead to this node under it; 0 if nobody had to look."""
    left_at: int | None
    """When the identity took another name; None while it has this one."""


def lock_fqdn(connection: Connection, fqdn: str) -> None:
    """Let one transaction at a time decide on a name."""
    lock_name(connection, b"fqdn " + fqdn.encode())


def find_name(connection: Connection, fqdn: str) -> NameRecord | None:
    """What is known of a name of this node."""
    row = _with_name.first(connection, name=fqdn)
    return None if row is None else NameRecord(row[0], IdentityId(row[1]), bool(row[2]), row[3], row[4])


_with_name: Final = Compiled(
    lambda _: select(names.c.fqdn, names.c.identity, names.c.is_given, names.c.checked, names.c.left_at).where(
        names.c.fqdn == bindparam("name")
    )
)


def is_left(connection: Connection, fqdn: str) -> bool:
    """Whether who had a name on this node last has it no longer."""
    record = find_name(connection, fqdn)
    return record is not None and record.left_at is not None


def put_name(connection: Connection, record: NameRecord) -> None:
    """Note who has a name, in place of who had it."""
    put_row(connection, names, {name: getattr(record, name) for name in NameRecord.__slots__})


def leave_name(connection: Connection, fqdn: str, identity: IdentityId, at: int = UNDATED) -> None:
    """Note that an identity has a name no longer."""
    is_theirs = (names.c.fqdn == fqdn) & (names.c.identity == identity) & names.c.left_at.is_(None)
    connection.execute(update(names).where(is_theirs).values(left_at=at))


def date_left_name(connection: Connection, fqdn: str, at: int) -> None:
    """Set when a name was left."""
    connection.execute(update(names).where(names.c.fqdn == fqdn, names.c.left_at.is_not(None)).values(left_at=at))


def check_name(connection: Connection, fqdn: str, at: int) -> None:
    """Note that other servers lead to this node under a name."""
    connection.execute(update(names).where(names.c.fqdn == fqdn).values(checked=at))


def forget_left_names(connection: Connection, identity: IdentityId, before: int) -> None:
    """Forget the names that an identity left before a time."""
    is_old = (names.c.left_at > UNDATED) & (names.c.left_at <= before)
    connection.execute(delete(names).where(names.c.identity == identity, is_old))


def count_left_names(connection: Connection, identity: IdentityId) -> int:
    """How many names an identity has left that are still kept for it."""
    query = select(func.count()).select_from(names).where(names.c.identity == identity, names.c.left_at.is_not(None))
    return connection.scalar(query) or 0


# Administrators


def bind_administrator(connection: Connection, fqdn: str, identity: IdentityId, now: int) -> None:
    """Bind the rights that go with a listed name to an id, unless they were bound before: that is for good."""
    row = {"fqdn": fqdn, "identity": identity, "bound": now}
    connection.execute(insert_new(connection, administrators), row)


def find_bound(connection: Connection, fqdn: str) -> IdentityId | None:
    """The id that the rights of a listed name are bound to."""
    found = connection.scalar(select(administrators.c.identity).where(administrators.c.fqdn == fqdn))
    return None if found is None else IdentityId(found)

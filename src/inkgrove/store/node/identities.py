"""Hosted identities, their keys, sign-ins and names, and the administrators (docs/protocol.md section 7).

A row of `names` (section 7.7) is made when a name is taken and stays after it was left, so that nobody else gets it at
once. Whoever decides on a name holds `lock_fqdn`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from inkgrove.core import IdentityId, PublicKey
from inkgrove.store.db.connection import (
    Compiled,
    CompiledList,
    RetryTransaction,
    in_lists,
    insert_new,
    lock_name,
    put_row,
)
from inkgrove.store.db.node_tables import administrators, identities, identity_keys, names, node_keys, sessions
from inkgrove.store.logs.revocations import Ends, ends_of, parse_ends, set_key_ends
from inkgrove.store.node.departures import LEAVING


@dataclass(frozen=True, slots=True)
class HostedIdentity:
    """An identity that this node serves."""

    id: IdentityId
    fqdn: str
    key: PublicKey
    password: str | None
    created: int
    endpoint: str | None = None
    """What the last document that was taken here says: where this node serves it."""
    lives_here: bool = True
    """False if it has moved to another node since; it may still sign in here, to read."""


def add_identity(connection: Connection, identity: HostedIdentity, sealed: bytes | None) -> bool:
    """Host an identity; False if its name or id is taken."""
    row = {
        "id": identity.id,
        "fqdn": identity.fqdn,
        "key": identity.key,
        "password": identity.password,
        "created": identity.created,
        "endpoint": identity.endpoint,
        "lives_here": identity.lives_here,
    }
    added = connection.execute(insert_new(connection, identities).returning(identities.c.id), row).first()
    if added is None:
        return False
    put_key(connection, identity.key, identity.id, sealed)
    return True


def find_identity(connection: Connection, name: str | IdentityId) -> HostedIdentity | None:
    """A hosted identity by its FQDN or id."""
    if isinstance(name, str) and not (name.isascii() and name.isprintable()):
        return None  # nobody has such a name, and PostgreSQL refuses to look for some
    row = (_with_id if isinstance(name, bytes) else _with_name).first(connection, name=name)
    if row is None:
        return None
    return _hosted_identity(row)


def _hosted_identity(row: Any) -> HostedIdentity:
    number, fqdn, key, password, created, endpoint, lives_here = row
    return HostedIdentity(IdentityId(number), fqdn, PublicKey(key), password, created, endpoint, bool(lives_here))


_IDENTITY: Final = select(*(identities.c[name] for name in HostedIdentity.__slots__))
_with_id: Final = Compiled(lambda _: _IDENTITY.where(identities.c.id == bindparam("name")))
_with_name: Final = Compiled(lambda _: _IDENTITY.where(identities.c.fqdn == bindparam("name")))


def list_identities(connection: Connection) -> list[HostedIdentity]:
    """Every hosted identity, by name."""
    return [_hosted_identity(row) for row in connection.execute(_IDENTITY.order_by(identities.c.fqdn))]


def lives_here(connection: Connection, identity: IdentityId) -> bool:
    """Whether an identity lives on this node: it is hosted, has not moved to another one, and is not about to."""
    return bool(living_among(connection, [identity]))


def living_among(connection: Connection, ids: Collection[IdentityId]) -> set[IdentityId]:
    """Those of the identities that live on this node."""
    return {IdentityId(found) for some in in_lists(ids) for (found,) in _living.rows(connection, some)}


LIVING: Final = select(identities.c.id).where(identities.c.lives_here, identities.c.id.not_in(LEAVING))
"""The ids of those who live on this node; for those who are about to leave, what others send waits in the outbox."""
_living: Final = CompiledList(lambda ids: LIVING.where(identities.c.id.in_(ids)))


def set_home(connection: Connection, identity: IdentityId, endpoint: str | None, *, lives_here: bool) -> None:
    """Set where this node serves a hosted identity, and whether it lives here."""
    values = {"endpoint": endpoint, "lives_here": lives_here}
    connection.execute(update(identities).where(identities.c.id == identity).values(values))


def set_fqdn(connection: Connection, identity: IdentityId, fqdn: str) -> None:
    """Give a hosted identity another name, which nobody has."""
    try:
        connection.execute(update(identities).where(identities.c.id == identity).values(fqdn=fqdn))
    except IntegrityError as err:
        raise RetryTransaction from err  # somebody has taken it since this transaction looked


def set_password(connection: Connection, identity: IdentityId, password: str | None) -> None:
    """Replace the argon2 hash of an identity's password."""
    connection.execute(update(identities).where(identities.c.id == identity).values(password=password))


def lock_password(connection: Connection, identity: IdentityId, *, to_change: bool = False) -> str | None:
    """The argon2 hash of an identity's password, which nobody else changes before this transaction has ended."""
    query = select(identities.c.password).where(identities.c.id == identity)
    return connection.scalar(query.with_for_update(read=not to_change))


# Keys


def put_key(connection: Connection, author: PublicKey, identity: IdentityId, sealed: bytes | None = None) -> None:
    """Record whose key this is, with its encrypted secret; a key has one identity for good."""
    _put_key.run(connection, new_author=author, new_identity=identity, new_sealed=sealed)


_put_key: Final = Compiled(
    lambda connection: insert_new(connection, identity_keys).values(
        {name: bindparam(f"new_{name}") for name in ("author", "identity", "sealed")}
    )
)


def keep_secret(connection: Connection, author: PublicKey, sealed: bytes) -> None:
    """Keep the encrypted secret of a key that is known already."""
    connection.execute(update(identity_keys).where(identity_keys.c.author == author).values(sealed=sealed))


class KeyStatus(NamedTuple):
    """Whose key this is, and how far it counts."""

    identity: IdentityId
    ends: Ends | None
    """For a revoked key: how far its logs count."""


def find_key_status(connection: Connection, author: PublicKey) -> KeyStatus | None:
    """Find whose key this is and how far it counts; None if it is no identity's."""
    row = _key_status.first(connection, author=author)
    if row is None:
        return None
    identity, revoked = row
    return KeyStatus(IdentityId(identity), None if revoked is None else parse_ends(revoked))


_key_status: Final = Compiled(
    lambda _: select(identity_keys.c.identity, identity_keys.c.revoked).where(
        identity_keys.c.author == bindparam("author")
    )
)


def remove_keys(connection: Connection, authors: Collection[PublicKey]) -> None:
    """Forget that these keys are anybody's, and so that anybody has revoked them."""
    for author in sorted(ends_of(connection, authors)):
        set_key_ends(connection, author, None)
    connection.execute(delete(identity_keys).where(identity_keys.c.author.in_(authors)))


def keys_of(connection: Connection, identity: IdentityId) -> list[PublicKey]:
    """The keys that are known to be an identity's."""
    query = select(identity_keys.c.author).where(identity_keys.c.identity == identity).order_by(identity_keys.c.author)
    return [PublicKey(author) for author in connection.scalars(query)]


def identities_of(connection: Connection, authors: Collection[PublicKey]) -> dict[PublicKey, IdentityId]:
    """Whose keys these are, as far as it is known."""
    return {
        PublicKey(author): IdentityId(identity)
        for some in in_lists(authors)
        for author, identity in _owners.rows(connection, some)
    }


_owners: Final = CompiledList(
    lambda authors: select(identity_keys.c.author, identity_keys.c.identity).where(identity_keys.c.author.in_(authors))
)


def sealed_key(connection: Connection, author: PublicKey) -> bytes | None:
    """The encrypted secret of a key, if this node keeps it."""
    return connection.scalar(select(identity_keys.c.sealed).where(identity_keys.c.author == author))


def identities_with_kept_first_key(connection: Connection) -> set[IdentityId]:
    """The hosted identities whose first key is kept with its secret here, or by nobody any more."""
    query = select(identities.c.id).join_from(identities, identity_keys, identity_keys.c.author == identities.c.key)
    is_without = or_(identity_keys.c.sealed.is_not(None), identities.c.first_key_lost)
    return {IdentityId(found) for found in connection.scalars(query.where(is_without))}


def note_first_key_lost(connection: Connection, identity: IdentityId) -> None:
    """Record that nobody has the first key of a hosted identity any more."""
    connection.execute(update(identities).where(identities.c.id == identity).values(first_key_lost=True))


def is_first_key_lost(connection: Connection, identity: IdentityId) -> bool:
    """Whether nobody has the first key of a hosted identity any more."""
    return bool(connection.scalar(select(identities.c.first_key_lost).where(identities.c.id == identity)))


def forget_secret(connection: Connection, author: PublicKey) -> None:
    """Keep the secret of a key no longer."""
    connection.execute(update(identity_keys).where(identity_keys.c.author == author).values(sealed=None))


def some_sealed_keys(connection: Connection, limit: int = 16) -> list[bytes]:
    """A few of the encrypted secrets that this node keeps, its own for requests among them; none if it keeps none."""
    kept = select(identity_keys.c.sealed).where(identity_keys.c.sealed.is_not(None)).limit(limit)
    own = select(node_keys.c.sealed).order_by(node_keys.c.id.desc()).limit(1)
    return [*connection.scalars(own), *connection.scalars(kept)]


# Sign-ins


MAX_SESSION_LABEL: Final = 100
"""How many characters the label of a sign-in has at most."""


def add_session(
    connection: Connection, token: bytes, identity: IdentityId, expires: int, *, now: int = 0, label: str = ""
) -> None:
    """Add a sign-in, by the hash of its token."""
    row = {"token": token, "identity": identity, "expires": expires}
    connection.execute(insert(sessions), {**row, "created": now, "last_used": now, "label": label[:MAX_SESSION_LABEL]})


class FoundSession(NamedTuple):
    """Who signed in with a token."""

    identity: IdentityId
    bound_names: list[str]
    """The names whose rights of an administrator are bound to them."""
    last_used: int


def find_session(connection: Connection, token: bytes, now: int) -> FoundSession | None:
    """Find who signed in with this token; None if that sign-in has ended."""
    rows = _session.rows(connection, token=token, now=now)
    if not rows:
        return None
    return FoundSession(IdentityId(rows[0][0]), [fqdn for _, fqdn, _ in rows if fqdn is not None], rows[0][2])


_session: Final = Compiled(
    lambda _: (
        select(sessions.c.identity, administrators.c.fqdn, sessions.c.last_used)
        .join_from(sessions, administrators, administrators.c.identity == sessions.c.identity, isouter=True)
        .where(sessions.c.token == bindparam("token"), sessions.c.expires > bindparam("now"))
    )
)


def end_sessions(
    connection: Connection,
    *,
    token: bytes | None = None,
    identity: IdentityId | None = None,
    keep: bytes | None = None,
) -> int:
    """End one sign-in, or all of an identity except for the one with the token `keep`; how many have ended."""
    is_it = or_(sessions.c.token == token, sessions.c.identity == identity)
    return connection.execute(delete(sessions).where(is_it, sessions.c.token != (keep or b""))).rowcount


class StoredSession(NamedTuple):
    """A sign-in that lasts, with the hash of its token."""

    token: bytes
    label: str
    created: int
    last_used: int
    expires: int


def list_sessions(connection: Connection, identity: IdentityId, now: int) -> list[StoredSession]:
    """List the sign-ins of an identity that last, the one that was used last first."""
    query = (
        select(*(sessions.c[name] for name in StoredSession._fields))
        .where(sessions.c.identity == identity, sessions.c.expires > now)
        .order_by(sessions.c.last_used.desc(), sessions.c.created.desc(), sessions.c.token)
    )
    return [StoredSession(bytes(row[0]), *row[1:]) for row in connection.execute(query)]


def record_session_uses(connection: Connection, uses: Mapping[bytes, int]) -> None:
    """Record when sign-ins were used, by the hashes of their tokens; one that has ended is passed over."""
    for token in sorted(uses):  # always in one order, so that two at once do not wait for each other
        connection.execute(update(sessions).where(sessions.c.token == token).values(last_used=uses[token]))


# Names


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
    """Find who has a name on this node or had it last; None if nobody had."""
    row = _name_record.first(connection, name=fqdn)
    return None if row is None else NameRecord(row[0], IdentityId(row[1]), bool(row[2]), row[3], row[4])


_name_record: Final = Compiled(
    lambda _: select(names.c.fqdn, names.c.identity, names.c.is_given, names.c.checked, names.c.left_at).where(
        names.c.fqdn == bindparam("name")
    )
)


def is_left(connection: Connection, fqdn: str) -> bool:
    """Whether who had a name on this node last has it no longer."""
    record = find_name(connection, fqdn)
    return record is not None and record.left_at is not None


def put_name(connection: Connection, record: NameRecord) -> None:
    """Set who has a name, in place of who had it."""
    put_row(connection, names, {name: getattr(record, name) for name in NameRecord.__slots__})


def leave_name(connection: Connection, fqdn: str, identity: IdentityId, at: int = UNDATED) -> None:
    """Record that an identity has left a name."""
    is_theirs = (names.c.fqdn == fqdn) & (names.c.identity == identity) & names.c.left_at.is_(None)
    connection.execute(update(names).where(is_theirs).values(left_at=at))


def date_left_name(connection: Connection, fqdn: str, at: int) -> None:
    """Set when a name was left."""
    connection.execute(update(names).where(names.c.fqdn == fqdn, names.c.left_at.is_not(None)).values(left_at=at))


def check_name(connection: Connection, fqdn: str, at: int) -> None:
    """Record that other servers lead to this node under a name."""
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


class OwnKey(NamedTuple):
    """A key of an identity."""

    author: PublicKey
    identity: IdentityId
    sealed: bytes | None
    is_first: bool
    """Whether the identity's id is the thumbprint of this key."""
    lives_here: bool = True
    """False if the identity has moved to another node."""


def _select_keys(wanted: Any) -> Select[Any]:
    return (
        select(
            identity_keys.c.author,
            identity_keys.c.identity,
            identity_keys.c.sealed,
            identities.c.key,
            identities.c.lives_here,
        )
        .join_from(identity_keys, identities, identities.c.id == identity_keys.c.identity)
        .where(identity_keys.c.identity.in_(wanted))
        .order_by(identity_keys.c.author)
    )


_lock_keys: Final = CompiledList(lambda wanted: _select_keys(wanted).with_for_update(of=identity_keys))


def lock_keys(connection: Connection, wanted: Collection[IdentityId]) -> dict[PublicKey, OwnKey]:
    """Read and lock the keys of identities: no other writer publishes with them before the transaction ends."""
    return {
        PublicKey(author): OwnKey(PublicKey(author), IdentityId(identity), sealed, first == author, bool(is_here))
        for some in in_lists(sorted(wanted))
        for author, identity, sealed, first, is_here in _lock_keys.rows(connection, some)
    }


def read_keys(connection: Connection, identity: IdentityId) -> dict[PublicKey, OwnKey]:
    """Read the keys of an identity without locking them."""
    return {
        PublicKey(author): OwnKey(PublicKey(author), identity, sealed, first == author, bool(is_here))
        for author, _, sealed, first, is_here in connection.execute(_select_keys([identity]))
    }


def keep_hosted_authors(connection: Connection, authors: Collection[PublicKey]) -> set[PublicKey]:
    """Those of the keys that belong to identities which this node hosts."""
    hosted = select(identity_keys.c.author).join_from(
        identity_keys, identities, identities.c.id == identity_keys.c.identity
    )
    return {
        PublicKey(author)
        for some in in_lists(authors)
        for author in connection.scalars(hosted.where(identity_keys.c.author.in_(some)))
    }

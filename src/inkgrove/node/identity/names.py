"""Who may take which name on this node, and whose the rights of an administrator are (docs/protocol.md section 7.7).

People take names under the domains of the node; any other name only after the world leads to this node under it. Some
names are kept for the operator, who gives them by a command. A name that was left is kept for who had it. Decided by a
pure function; `take_name` applies it in the transaction that hosts or renames an identity.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from inkgrove.core import IdentityId, PublicKey
from inkgrove.node.errors import ForeignName, IdentityError, NameElsewhere, UnknownIdentity
from inkgrove.node.runtime.node import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import Connection
from inkgrove.store.federation import RemoteIdentity, find_remote_identity, forget_remote_identity, forget_remote_name
from inkgrove.store.node import (
    UNDATED,
    HostedIdentity,
    NameRecord,
    bind_administrator,
    check_name,
    count_left_names,
    date_left_name,
    find_bound,
    find_identity,
    find_name,
    forget_left_names,
    identities_of,
    lock_fqdn,
    put_name,
    read_epoch,
)

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
MOST_LEFT: Final = 5
"""How many names are kept for somebody who has left them."""


@dataclass(frozen=True, slots=True)
class NameRules:
    """What the settings say of names."""

    domains: frozenset[str]
    reserved: frozenset[str]
    """Names that the operator gives, and nobody else takes."""
    administrator_names: frozenset[str]
    """Names with the rights of an administrator, reserved for whom these are bound to."""
    kept_microseconds: int
    """How long a name that was left is kept, in microseconds."""

    def is_under_own_domain(self, fqdn: str) -> bool:
        """Whether a name is one label below a domain of this node."""
        return fqdn.partition(".")[2] in self.domains

    def is_reserved(self, fqdn: str) -> bool:
        """Whether only the operator gives a name: also one further below a domain, which looks like somebody's own."""
        _, _, above = fqdn.partition(".")
        labels = above.split(".")[1:]
        return fqdn in self.reserved or any(".".join(labels[n:]) in self.domains for n in range(len(labels)))


def rules_of(settings: NodeSettings) -> NameRules:
    """The rules that follow from the settings."""
    return _rules(
        settings.domains,
        settings.administrators,
        settings.schema_names,
        settings.endpoint,
        settings.left_name_seconds,
    )


@lru_cache(maxsize=64)
def _rules(
    domains: tuple[str, ...], listed: tuple[str, ...], schemas: tuple[str, ...], endpoint: str, kept: int
) -> NameRules:
    own = frozenset(map(_plain, domains))
    # With {fqdn} in it the endpoint is everybody's own name.
    host = frozenset() if "{fqdn}" in endpoint else {urlsplit(endpoint).hostname or ""}
    named = frozenset(_plain(item.partition("=")[0]) for item in schemas)
    return NameRules(own, own | host | named, frozenset(map(_plain, listed)), kept * _SECOND)


def _plain(name: str) -> str:
    return name.strip().lower().strip(".")


@dataclass(frozen=True, slots=True)
class NameState:
    """What this node knows of a name when somebody wants it."""

    holder: IdentityId | None
    """Who is hosted under it."""
    record: NameRecord | None
    bound_to: IdentityId | None
    """Whom the rights of an administrator of that name are bound to."""
    remote_holder: RemoteIdentity | None
    """Who was found under it on another node."""


def decide_name(
    fqdn: str,
    identity: IdentityId,
    state: NameState,
    rules: NameRules,
    now: int,
    *,
    is_operator: bool,
    leads_here: bool,
) -> NameRecord:
    """The record of the name once the identity has it; raises what speaks against it.

    `leads_here`: other servers were just seen to lead to this node under the name.
    """
    if state.holder not in (None, identity):
        raise IdentityError("identity.exists", f"the name {fqdn} is taken on this node", fqdn=fqdn)
    record = state.record
    is_own = record is not None and record.identity == identity
    if record is not None and not is_own and (until := kept_until(record, rules, now)) > now:
        days = -(-(until - now) // _DAY)
        raise IdentityError(
            "identity.name-left",
            f"somebody has just left {fqdn}, or has it still: it is kept for them for {days} days"
            " (node.left_name_seconds); take another name",
            fqdn=fqdn,
        )
    elsewhere = state.remote_holder if state.remote_holder is not None and state.remote_holder.id != identity else None
    was_given = is_own and record is not None and record.is_given
    if is_operator:
        if elsewhere is not None and elsewhere.fetched <= now < elsewhere.expires:
            raise _elsewhere(fqdn)
    else:
        is_administrators = fqdn in rules.administrator_names and state.bound_to != identity
        if is_administrators or (rules.is_reserved(fqdn) and not was_given):
            raise IdentityError(
                "identity.reserved-name",
                f"{fqdn} is kept for the operator of this node, who gives it with `inkgrove identity create`",
                fqdn=fqdn,
            )
        if elsewhere is not None and not leads_here:
            raise _elsewhere(fqdn)
        if not (rules.is_under_own_domain(fqdn) or leads_here or was_given):
            raise ForeignName(_foreign(fqdn, rules), fqdn=fqdn, domains=sorted(rules.domains))
    return NameRecord(fqdn, identity, is_operator or was_given, now if leads_here else 0, None)


def kept_until(record: NameRecord, rules: NameRules, now: int) -> int:
    """Until when a name is kept for who had it; while they have it, from now on.

    A time that has not come is that of a clock that was wrong: it counts as now.
    """
    left = record.left_at
    return (now if left is None or not UNDATED < left <= now else left) + rules.kept_microseconds


def _elsewhere(fqdn: str) -> NameElsewhere:
    return NameElsewhere(
        f"{fqdn} is the name of somebody on another node: it can be taken here once https://{fqdn} leads to this node",
        fqdn=fqdn,
    )


def _foreign(fqdn: str, rules: NameRules) -> str:
    ours = f"take a name such as {fqdn.partition('.')[0]}.{min(rules.domains)}" if rules.domains else ""
    ours = ours or "this node has no domains (node.domains), and its operator gives names with a command"
    return f"{fqdn} is no name of this node: {ours}; or let https://{fqdn} lead to this node first"


# Applied


def take_name(
    connection: Connection,
    node: Node,
    fqdn: str,
    identity: IdentityId,
    *,
    is_operator: bool = False,
    leads_here: bool = False,
) -> None:
    """Give a name to an identity, inside the transaction that hosts or renames it; raises if it may not have it."""
    lock_fqdn(connection, fqdn)
    state, rules, now = _read(connection, fqdn), rules_of(node.settings), node.clock()
    if state.holder == identity and _has(state.record, identity):
        return
    taken = decide_name(fqdn, identity, state, rules, now, is_operator=is_operator, leads_here=leads_here)
    forget_left_names(connection, identity, now - rules.kept_microseconds)
    is_back = state.record is not None and state.record.identity == identity
    if count_left_names(connection, identity) - is_back >= MOST_LEFT:
        raise IdentityError(
            "identity.too-many-names",
            f"{MOST_LEFT} names that you have left are still kept for you: take one of them back, or wait",
            identity=identity.hex(),
        )
    put_name(connection, taken)
    forget_remote_name(connection, fqdn)
    forget_remote_identity(connection, identity)


def _has(record: NameRecord | None, identity: IdentityId) -> bool:
    return record is not None and record.identity == identity and record.left_at is None


def _read(connection: Connection, fqdn: str) -> NameState:
    holder = find_identity(connection, fqdn)
    return NameState(
        holder.id if holder is not None else None,
        find_name(connection, fqdn),
        find_bound(connection, fqdn),
        find_remote_identity(connection, fqdn),
    )


def must_lead_here(node: Node, fqdn: str, identity: IdentityId | None) -> bool:
    """Whether a person gets a name only if the world leads to this node under it; what else is wrong is raised.

    Without an identity it is for one that is new.
    """
    date_name(node, fqdn)
    now, rules, nobody = node.clock(), rules_of(node.settings), IdentityId(bytes(32))
    state = node.database.read(lambda connection: _read(connection, fqdn))
    if identity is not None and state.holder == identity and _has(state.record, identity):
        return False
    try:
        decide_name(fqdn, identity or nobody, state, rules, now, is_operator=False, leads_here=False)
    except (ForeignName, NameElsewhere):
        return True
    return False


def require_takeable(node: Node, fqdn: str, identity: IdentityId, *, leads_here: bool) -> None:
    """Raise if an identity could not take a name now; nothing is taken."""
    state = node.database.read(lambda connection: _read(connection, fqdn))
    if state.holder != identity or not _has(state.record, identity):
        rules = rules_of(node.settings)
        decide_name(fqdn, identity, state, rules, node.clock(), is_operator=False, leads_here=leads_here)


def date_name(node: Node, fqdn: str) -> None:
    """Date a name from now on that was left when no clock was at hand, or a wrong one; before anybody may take it."""
    now = node.clock()
    record = node.database.read(lambda connection: find_name(connection, fqdn))
    if record is not None and record.left_at is not None and not UNDATED < record.left_at <= now:
        node.database.write(lambda connection: date_left_name(connection, fqdn, now))


def find_own_name_holder(connection: Connection, node: Node, fqdn: str) -> HostedIdentity | None:
    """Who is hosted under a name that is this node's to give: such a name wins over what other servers say of it.

    A name outside of the domains, which the operator did not give, is ours for as long as the world was last seen to
    lead here (`node.discovery_seconds`).
    """
    hosted = find_identity(connection, fqdn)
    record = find_name(connection, fqdn) if hosted is not None else None
    if hosted is None or not _has(record, hosted.id) or record is None:
        return None
    now, lasts = node.clock(), node.settings.discovery_seconds * _SECOND
    is_fresh = now - lasts < record.checked <= now
    return hosted if record.is_given or rules_of(node.settings).is_under_own_domain(fqdn) or is_fresh else None


def require_living_here(node: Node, name: str | IdentityId) -> IdentityId:
    """The id of somebody who lives here, by id or by a name that is this node's to give; raises `UnknownIdentity`."""

    def work(connection: Connection) -> HostedIdentity | None:
        if isinstance(name, IdentityId):
            return find_identity(connection, name)
        return find_own_name_holder(connection, node, name.lower().rstrip("."))

    hosted = node.database.read(work)
    if hosted is None or not hosted.lives_here:
        raise UnknownIdentity(f"no identity {str(name)[:80]} lives here")
    return hosted.id


def find_unconfirmed_holder(connection: Connection, node: Node, fqdn: str) -> HostedIdentity | None:
    """Who is hosted under a name that is only ours if the world still leads here."""
    hosted = find_identity(connection, fqdn)
    is_theirs = hosted is not None and _has(find_name(connection, fqdn), hosted.id)
    return hosted if is_theirs and find_own_name_holder(connection, node, fqdn) is None else None


def confirm_name(connection: Connection, node: Node, fqdn: str) -> None:
    """The world was just seen to lead to this node under a name."""
    check_name(connection, fqdn, node.clock())


# Administrators


def bind_administrators(node: Node) -> None:
    """Bind the rights of each listed name to the id that has it now, if they never were: done when a node starts.

    A restored home does not know who has left a name since: it binds nothing before it has asked others.
    """
    listed = sorted(rules_of(node.settings).administrator_names)

    def unbound(connection: Connection) -> dict[str, IdentityId]:
        if _is_behind(connection):
            return {}
        free = [fqdn for fqdn in listed if find_bound(connection, fqdn) is None]
        found = {fqdn: find_identity(connection, fqdn) for fqdn in free}
        return {
            fqdn: hosted.id
            for fqdn, hosted in found.items()
            if hosted is not None and _has(find_name(connection, fqdn), hosted.id)
        }

    def bind(connection: Connection) -> None:
        for fqdn in listed:
            lock_fqdn(connection, fqdn)
        for fqdn, identity in unbound(connection).items():
            bind_administrator(connection, fqdn, identity, node.clock())

    if node.database.read(unbound):
        node.database.write(bind, durable=True)


def bind_if_given(connection: Connection, node: Node, fqdn: str, identity: IdentityId) -> None:
    """Bind the rights of a listed name that the operator gave to an identity while the node was running."""
    if fqdn in rules_of(node.settings).administrator_names and not _is_behind(connection):
        record = find_name(connection, fqdn)
        if record is not None and record.is_given and _has(record, identity):
            bind_administrator(connection, fqdn, identity, node.clock())


def _is_behind(connection: Connection) -> bool:
    epoch = read_epoch(connection)
    return epoch is not None and epoch.behind_since is not None


def list_administrators(node: Node) -> frozenset[IdentityId]:
    """Who has the rights of an administrator."""

    def work(connection: Connection) -> frozenset[IdentityId]:
        bound = (find_bound(connection, fqdn) for fqdn in rules_of(node.settings).administrator_names)
        return frozenset(identity for identity in bound if identity is not None)

    return node.database.read(work)


def is_administrator(node: Node, bound_to: list[str]) -> bool:
    """Whether one of the names under which rights were bound to an identity is still listed."""
    return bool(bound_to) and not rules_of(node.settings).administrator_names.isdisjoint(bound_to)


# Names of identities and keys


def find_identity_name(connection: Connection, identity: IdentityId) -> str | None:
    """The name of an identity that lives here or was found elsewhere; of one that moved away, where it was found."""
    hosted = find_identity(connection, identity)
    if hosted is not None and hosted.lives_here:
        return hosted.fqdn
    known = find_remote_identity(connection, identity) or hosted
    return None if known is None else known.fqdn


def find_author_names(connection: Connection, authors: Collection[PublicKey]) -> Mapping[PublicKey, str]:
    """The names of those whose keys these are."""
    owners = {
        key: find_identity_name(connection, identity) for key, identity in identities_of(connection, authors).items()
    }
    return {key: name for key, name in owners.items() if name is not None}


def name_of_identity(node: Node, identity: IdentityId) -> str | None:
    """The name of an identity."""
    return node.database.read(lambda connection: find_identity_name(connection, identity))


def name_of_author(node: Node, author: PublicKey) -> str | None:
    """Return the name of the identity that a key belongs to."""
    return names_of_authors(node, [author]).get(author)


def names_of_authors(node: Node, authors: Collection[PublicKey]) -> Mapping[PublicKey, str]:
    """The names of those whose keys these are."""
    return node.database.read(lambda connection: find_author_names(connection, authors))

"""Sign-ins, and who holds a token (docs/protocol.md section 7).

Every token begins with a prefix for its kind, so that one look-up tells who holds it. Only SHA-256 of it is stored.
"""

from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from threading import BoundedSemaphore
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from inkgrove.core import IdentityId
from inkgrove.node.errors import BadPassword, BadToken, IdentityError, TooManyAttempts
from inkgrove.node.identity.caller import ANYBODY, Caller, Scope, parse_scope, record_access
from inkgrove.node.identity.names import bind_if_given, is_administrator
from inkgrove.node.runtime.node import Node
from inkgrove.store.db import Connection
from inkgrove.store.node import (
    KNOWN_ADDRESS,
    HostedIdentity,
    add_session,
    count_attempt,
    end_sessions,
    find_identity,
    find_session,
    find_token,
    forget_expired,
    has_attempt,
    lock_password,
    record_attempt,
    set_password,
    uncount_attempt,
)

# Passwords: argon2, a few at a time, and as slow for a name that nobody has.


MIN_PASSWORD: Final = 8

PASSWORD_HASHER: Final = PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)
"""More than OWASP asks for (19 MiB, two passes), less than a stranger's request may cost (docs/security.md)."""
_hasher = PASSWORD_HASHER
# Each takes 32 MiB and a core while it works: many requests at once must not take all of both.
_at_once = BoundedSemaphore(4)


def use_hasher(hasher: PasswordHasher) -> None:
    """Hash and check passwords with this from now on. For tests: no setting leads here."""
    global _hasher  # noqa: PLW0603
    _hasher = hasher
    _nobody.cache_clear()


def hash_cheaply() -> None:
    """For tests, which sign in hundreds of times: spend next to nothing on passwords."""
    use_hasher(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))


@cache
def _nobody() -> str:
    """The hash that a password is held against where there is none."""
    return _hasher.hash("nobody has this password")


def prepare_password_check() -> None:
    """Make what passwords are held against where there is none, which takes as long as to check one.

    A server does so at the start: else the first name that nobody has would take twice as long. Commands that
    need no password do not.
    """
    _nobody()


def hash_password(password: str | None) -> str | None:
    """The argon2 hash that is stored; None: nobody signs in with a password."""
    if password is None:
        return None
    if len(password) < MIN_PASSWORD:
        raise IdentityError("identity.weak-password", f"a password has at least {MIN_PASSWORD} characters")
    with _at_once:
        return _hasher.hash(password)


def is_password(stored: str | None, given: str) -> bool:
    """Whether the given password is the stored one; takes as long if there is none."""
    try:
        with _at_once:
            _hasher.verify(stored or _nobody(), given)
    except (VerificationError, InvalidHashError):
        return False
    return stored is not None


# How often one may try: to sign in, by name and by address; to register services or prove forks, by address.
#
# A failed sign-in is held against one for a short window only, and refused attempts do not make it longer. An address
# from which an identity has signed in before has a count of its own, so that strangers who try a name keep out each
# other and not its owner. What is stored are hashes: people type passwords where names belong.


_SECOND: Final = 1_000_000
_HOUR: Final = 3600 * _SECOND
_USED_WITHIN: Final = 300 * _SECOND
"""How exactly it is known when a sign-in was used last: to write it down at every request would cost too much."""


def begin_sign_in(node: Node, name: str, address: str) -> list[str]:
    """Count an attempt before the password is looked at, or refuse it; what to take back if it is right."""
    now, window = node.clock(), node.settings.sign_in_window_seconds * _SECOND
    network = network_of(address)

    def work(connection: Connection) -> list[str]:
        is_known = has_attempt(connection, _who("known", name, network), now - KNOWN_ADDRESS)
        by_name = _who("known-name", name, network) if is_known else _who("name", name)
        limits = {
            by_name: node.settings.sign_ins_per_name,
            _who("address", network): node.settings.sign_ins_per_address,
        }
        counts = count_attempt(connection, list(limits), now, window)
        _refuse_beyond(counts, limits, now, window)
        return list(limits)

    return node.database.write(work)


def record_sign_in(node: Node, name: str, address: str, counted: list[str]) -> None:
    """The attempt was right: it does not count, and the address is known from now on."""
    now = node.clock()

    def work(connection: Connection) -> None:
        uncount_attempt(connection, counted)
        record_attempt(connection, _who("known", name, network_of(address)), now)
        if now - node.tidied > _HOUR:
            forget_expired(connection, now, accesses_since=now - node.settings.access_record_seconds * _SECOND)
            node.tidied = now

    node.database.write(work)


def count_registration(node: Node, address: str) -> None:
    """Count a service that an address registers, or refuse it."""
    _count_by_address(node, "register", address, node.settings.clients_per_address)


def count_identity(node: Node, address: str) -> None:
    """Count an identity that an address creates, or refuse it."""
    _count_by_address(node, "identity", address, node.settings.registrations_per_address)


def count_fork_proof(node: Node, address: str) -> None:
    """Count a proof of a fork that comes from an address, or refuse it."""
    _count_by_address(node, "fork", address, node.settings.fork_proofs_per_address)


def _count_by_address(node: Node, what: str, address: str, most: int) -> None:
    now, who = node.clock(), _who(what, network_of(address))

    def work(connection: Connection) -> None:
        counts = count_attempt(connection, [who], now, _HOUR)
        _refuse_beyond(counts, {who: most}, now, _HOUR)

    node.database.write(work)


def _refuse_beyond(counts: dict[str, tuple[int, int]], limits: dict[str, int], now: int, window: int) -> None:
    waits = [since + window - now for who, (count, since) in counts.items() if count > limits[who]]
    if waits:
        seconds = max(1, -(-max(waits) // _SECOND))
        raise TooManyAttempts(f"too many attempts: wait {seconds} seconds", retry_after=seconds)


def _who(*parts: str) -> str:
    return f"{parts[0]}:{sha256('|'.join(parts).encode()).hexdigest()}"


def network_of(address: str) -> str:
    """An address as far as one household shares it: the first 64 bits of IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped is not None else parsed.exploded[:19]


@dataclass(frozen=True, slots=True)
class CheckedPassword:
    """The hash of a password that its owner has just given."""

    identity: IdentityId
    hash: str = field(repr=False)

    def require(self, connection: Connection) -> None:
        """Raise `BadPassword` if it is not the password any more; until the transaction ends nobody changes it."""
        if lock_password(connection, self.identity, to_change=True) != self.hash:
            raise BadPassword(_WRONG)


SESSION, ACCESS, REFRESH, CODE = "ink_s_", "ink_a_", "ink_r_", "ink_c_"
_WRONG: Final = "the name or the password is wrong"


def new_token(node: Node, prefix: str) -> str:
    """A token that nobody can guess."""
    return prefix + node.random_bytes(32).hex()


def hash_token(token: str) -> bytes:
    """What is stored of a token."""
    return sha256(token.encode()).digest()


def sign_in(node: Node, name: str, password: str, address: str = "", *, label: str = "") -> tuple[str, int]:
    """A token for the identity itself, and when it ends; takes as long whether the name exists or not.

    `label` tells the identity later which of its sign-ins this is. A hash that was made with other parameters than are
    used now is replaced. Raises `BadPassword`, `TooManyAttempts`.
    """
    hosted = _check(node, name, password, address)
    token, now = new_token(node, SESSION), node.clock()
    expires = now + node.settings.session_seconds * _SECOND
    renewed = _renew_hash(hosted.password, password)

    def begin(connection: Connection, checked: str | None) -> str | None:
        """Begin the sign-in if the stored hash is still the one that was checked; returns the stored one."""
        stored = lock_password(connection, hosted.id)
        if stored == checked:
            add_session(connection, hash_token(token), hosted.id, expires, now=now, label=label)
            bind_if_given(connection, node, hosted.fqdn, hosted.id)
            if renewed is not None:
                set_password(connection, hosted.id, renewed)
        return stored

    checked = hosted.password
    while (stored := node.database.write(partial(begin, checked=checked))) != checked:
        # Another sign-in has replaced the hash; or the password was changed, which ends all sign-ins: also one that was
        # about to begin with the old password.
        if not is_password(stored, password):
            raise BadPassword(_WRONG)
        checked = stored
    return token, expires


def _renew_hash(stored: str | None, password: str) -> str | None:
    """Return a new hash of a password that was found right, if the stored one has other parameters; else None."""
    if stored is None or not _hasher.check_needs_rehash(stored):
        return None
    with _at_once:
        return _hasher.hash(password)


def has_password(node: Node, identity: IdentityId) -> bool:
    """Say whether an identity of this node signs in with a password."""
    hosted = node.database.read(lambda connection: find_identity(connection, identity))
    return hosted is not None and hosted.password is not None


def check_own_password(node: Node, identity: IdentityId, password: str, address: str) -> CheckedPassword:
    """Raise `BadPassword` unless the password of an identity is right; attempts are limited.

    It is checked by the name that the identity signs in with: a document from elsewhere may name somebody else's.
    """
    hosted = node.database.read(lambda connection: find_identity(connection, identity))
    if hosted is None:
        raise BadPassword(_WRONG)
    checked = _check(node, hosted.fqdn, password, address)
    if checked.id != identity or checked.password is None:  # the name has gone to somebody else meanwhile
        raise BadPassword(_WRONG)
    return CheckedPassword(identity, checked.password)


def _check(node: Node, name: str, password: str, address: str) -> HostedIdentity:
    name = name.lower().rstrip(".")
    counted = begin_sign_in(node, name, address)
    hosted = node.database.read(lambda connection: find_identity(connection, name))
    if not is_password(hosted.password if hosted is not None else None, password) or hosted is None:
        raise BadPassword(_WRONG)
    record_sign_in(node, name, address, counted)
    return hosted


def change_password(
    node: Node, identity: IdentityId, password: str, *, checked: CheckedPassword | None = None, keep: str | None = None
) -> None:
    """Set a new password and end all sign-ins except for the one with the token `keep`.

    `checked`: the password so far, which must not have changed since; None: whatever it is, as for the operator.
    """
    hashed = hash_password(password)

    def work(connection: Connection) -> None:
        if checked is not None:
            checked.require(connection)
        set_password(connection, identity, hashed)
        end_sessions(connection, identity=identity, keep=None if keep is None else hash_token(keep))

    node.database.write(work)


def sign_out(node: Node, token: str) -> None:
    """End a sign-in."""
    node.database.write(lambda connection: end_sessions(connection, token=hash_token(token)))


def authenticate(node: Node, token: str | None) -> Caller:
    """Who holds this token; without one, anybody."""
    if token is None:
        return ANYBODY
    return node.database.read(lambda connection: authenticate_on(connection, node, token))


def authenticate_on(connection: Connection, node: Node, token: str) -> Caller:
    """Who holds this token, as this transaction sees it."""
    find = {SESSION: _find_identity, ACCESS: _find_service}.get(token[: len(SESSION)])
    caller = find(connection, node, hash_token(token)) if find is not None else None
    if caller is None:
        raise BadToken(
            "the token is not known here, has expired or was revoked: sign in again (POST /sessions); a service"
            " refreshes its token (POST /oauth/token)"
        )
    return caller


def _find_identity(connection: Connection, node: Node, token: bytes) -> Caller | None:
    now = node.clock()
    found = find_session(connection, token, now)
    if found is None:
        return None
    if not 0 <= now - found.last_used < _USED_WITHIN:
        node.session_uses.add(token, now)
    return Caller(found.identity, is_administrator=is_administrator(node, found.bound_names))


def _find_service(connection: Connection, node: Node, token: bytes) -> Caller | None:
    found = find_token(connection, token)
    if found is None or found.kind != "access" or found.expires <= node.clock() or found.grant.is_revoked:
        return None
    grant = found.grant
    caller = Caller(grant.identity, grant.id, grant.client, parse_scopes(grant.scopes))
    return replace(caller, on_use=partial(record_access, node, caller))


@lru_cache(maxsize=4096)
def parse_scopes(text: str) -> frozenset[Scope]:
    """Scopes as a grant holds them."""
    return frozenset(parse_scope(scope) for scope in text.split())

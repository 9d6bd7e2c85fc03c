"""Passwords: argon2, a few at a time, and as slow for a name that nobody has."""

from functools import cache
from threading import BoundedSemaphore
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from inkgrove.node.errors import IdentityError

MIN_PASSWORD: Final = 8

_hasher = PasswordHasher()  # the library's own parameters, which follow RFC 9106
# Each takes 64 MiB and a core while it works: many requests at once must not take all of both.
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


def prepare() -> None:
    """Make what passwords are held against where there is none, which takes as long as to check one.

    Whoever serves does so at the start: else the first name that nobody has would take twice as long. Commands that
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

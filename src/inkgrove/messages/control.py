"""Who controls an identity: the rules, without I/O (docs/protocol.md section 7.2).

`decide_control` finds the document in effect and the states of its keys from log 0 of the first key and of the keys
that it names. What is held of a log 0 is asked for piece by piece (`HeldIdentityLog`), newest first, so that little is
read of a long one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, Protocol

from inkgrove.core import Entry, Hash, HeldEntry, IdentityId, PublicKey, SignedEntry, identity_of, verify_log
from inkgrove.messages.identity import IdentityDocument, IdentityMessage, KeyOf, RevokedLog
from inkgrove.messages.message import decode_if_valid


class KeyState(StrEnum):
    """Whether a key that a document lists is the identity's."""

    COUNTS = "key.counts"
    ENDED = "key.ended"
    UNCLAIMED = "key.unclaimed"
    CONTESTED = "key.contested"

    @property
    def belongs(self) -> bool:
        """Whether the key is the identity's, in use or ended."""
        return self in (KeyState.COUNTS, KeyState.ENDED)


class DocumentState(StrEnum):
    """Whether an `identity` message is the document of its identity, and if not, why."""

    IN_EFFECT = "document.in-effect"
    REPLACED = "document.replaced"
    OVERRULED = "document.overruled"
    WAITS = "document.waits"


class IdentityState(StrEnum):
    """That log 0 of a first key is forked, and whether that ends the identity."""

    FORKED = "identity.forked"
    WORDS_USED_TWICE = "identity.words-used-twice"


class IdentityLogEntry(NamedTuple):
    """An entry of a log 0, and the message in it if that is held and well-formed."""

    entry: Entry
    hash: Hash
    message: IdentityMessage | None
    has_payload: bool

    @property
    def links(self) -> Iterator[Hash]:
        """The hashes of the entries that it links to."""
        return (link for link in (self.entry.backlink, self.entry.lipmaa_link) if link is not None)


class HeldIdentityLog(Protocol):
    """Log 0 of one key as it is held, with all branches of forks."""

    forked_at: int | None
    lied_at: int | None
    ended_at: int | None

    def first_entries(self) -> Sequence[IdentityLogEntry]:
        """Return every entry 1 that is held."""

    def newest_first(self, below: int | None) -> Iterator[IdentityLogEntry]:
        """Yield the entries below a sequence number, or all, by descending sequence number and hash."""

    def find(self, entry_hash: Hash) -> IdentityLogEntry | None:
        """Return the entry with this hash, if it is one of this log and held."""


class IdentityLogInMemory:
    """Log 0 of one key, of which all that is held is given; entries without a path to entry 1 must not be among it."""

    def __init__(self, held: Collection[HeldEntry]) -> None:
        report = verify_log(held, partial=True)
        self.forked_at = None if report.fork is None else report.fork.seq_num
        self.lied_at = report.wrong_size
        ends = [item.entry.seq_num for item in report.verified.values() if item.entry.is_end_of_log]
        self.ended_at = min(ends, default=None)
        self._entries = {item.signed.hash: read_identity_entry(item.signed, item.payload) for item in held}

    def first_entries(self) -> list[IdentityLogEntry]:
        """Return every entry 1 that is held."""
        return [item for item in self._entries.values() if item.entry.seq_num == 1]

    def newest_first(self, below: int | None) -> Iterator[IdentityLogEntry]:
        """Yield the entries below a sequence number, or all, by descending sequence number and hash."""
        for item in sorted(self._entries.values(), key=lambda item: (item.entry.seq_num, item.hash), reverse=True):
            if below is None or item.entry.seq_num < below:
                yield item

    def find(self, entry_hash: Hash) -> IdentityLogEntry | None:
        """Return the entry with this hash, if it is held."""
        return self._entries.get(entry_hash)


def read_identity_entry(signed: SignedEntry, payload: bytes | None) -> IdentityLogEntry:
    """Return an entry of a log 0 with the message that its payload holds, if it is one for log 0."""
    message = decode_if_valid(payload)
    said = message if isinstance(message, IdentityDocument | KeyOf) else None
    return IdentityLogEntry(signed.entry, signed.hash, said, payload is not None)


@dataclass(frozen=True, slots=True)
class SignedDocument:
    """An identity document and the entry that holds it."""

    author: PublicKey
    seq_num: int
    hash: Hash
    document: IdentityDocument


@dataclass(frozen=True, slots=True)
class Control:
    """Who speaks for an identity."""

    first_key: PublicKey
    path: tuple[SignedDocument, ...]
    """The documents that lead to the one in effect: the first key's newest, then one of each controller."""
    keys: Mapping[PublicKey, KeyState]
    """The states of the first key and of every key that the document lists."""
    state: IdentityState | None

    @property
    def identity(self) -> IdentityId:
        """The id of the identity."""
        return identity_of(self.first_key)

    @property
    def current(self) -> SignedDocument:
        """The document in effect, with its entry."""
        return self.path[-1]

    @property
    def document(self) -> IdentityDocument:
        """The document in effect."""
        return self.path[-1].document

    @property
    def ends(self) -> dict[PublicKey, tuple[RevokedLog, ...]]:
        """How far the logs of ended keys count."""
        listed = {item.key: item.revoked or () for item in self.document.keys}
        return {key: listed[key] for key, state in self.keys.items() if state is KeyState.ENDED}

    @property
    def controller(self) -> PublicKey | None:
        """The key that may sign the next document without the words; None if only the first key can."""
        named = self.document.controller
        return named if named is not None and named != self.first_key and self._is_in_use(named) else None

    def _is_in_use(self, key: PublicKey) -> bool:
        return self.keys.get(key) is KeyState.COUNTS

    def under_for(self, controller: PublicKey) -> Hash:
        """Return what the next document of the controller has to stand under: the entry that made it the controller."""
        return next(step.hash for step in reversed(self.path) if step.author != controller)


def is_further_key(log: HeldIdentityLog) -> bool:
    """Whether an entry 1 of a log 0 says `key-of`."""
    return any(isinstance(item.message, KeyOf) for item in log.first_entries())


def claimed_identities(log: HeldIdentityLog) -> set[IdentityId]:
    """Return the identities that the entries 1 of a log 0 name."""
    return {item.message.identity for item in log.first_entries() if isinstance(item.message, KeyOf)}


def judge_key(identity: IdentityId, log: HeldIdentityLog, *, is_revoked: bool) -> KeyState:
    """Return the state of a further key that the document of an identity lists."""
    said = [item.message for item in log.first_entries()]
    if said and all(message == KeyOf(identity) for message in said):
        return KeyState.ENDED if is_revoked else KeyState.COUNTS
    is_agreed = len({message.identity if isinstance(message, KeyOf) else None for message in said}) == 1
    if len(said) > 1 and not (is_agreed and isinstance(said[0], KeyOf)):
        return KeyState.CONTESTED
    return KeyState.UNCLAIMED


# Which part of a log 0 counts


def fork_state(log: HeldIdentityLog) -> IdentityState | None:
    """Return what a fork in log 0 of a first key means for the identity; None if there is none."""
    if log.forked_at is None:
        return None
    if is_further_key(log):
        return IdentityState.FORKED
    before = (item.message for item in log.newest_first(_least_bound(log, log.forked_at)))
    is_tolerated = any(
        isinstance(message, IdentityDocument) and message.under is None and message.controller is not None
        for message in before
    )
    return IdentityState.WORDS_USED_TWICE if is_tolerated else IdentityState.FORKED


def find_tip(log: HeldIdentityLog) -> IdentityLogEntry | None:
    """Return the newest entry of the branch that counts, if a fork of the log is tolerated."""
    return next((item for item in log.newest_first(log.lied_at) if _leads_to_first(log, item)), None)


def counted_entries(log: HeldIdentityLog) -> Iterator[IdentityLogEntry]:
    """Yield the entries of the part of a log 0 that counts, newest first."""
    if fork_state(log) is not IdentityState.WORDS_USED_TWICE:
        yield from log.newest_first(_least_bound(log, log.forked_at))
        return
    tip = find_tip(log)
    reached = {} if tip is None else {tip.hash: tip}
    # A heap with the greatest first: links lead to lower sequence numbers only.
    waiting = [(-item.entry.seq_num, _descending(name), name) for name, item in reached.items()]
    while waiting:
        item = reached[heappop(waiting)[2]]
        yield item
        for found in _linked(log, item):
            if found.hash not in reached:
                reached[found.hash] = found
                heappush(waiting, (-found.entry.seq_num, _descending(found.hash), found.hash))


def _least_bound(log: HeldIdentityLog, forked_at: int | None) -> int | None:
    bounds = (forked_at, log.lied_at, None if log.ended_at is None else log.ended_at + 1)
    return min((bound for bound in bounds if bound is not None), default=None)


def _descending(entry_hash: Hash) -> bytes:
    return bytes(255 - byte for byte in entry_hash)


def _linked(log: HeldIdentityLog, item: IdentityLogEntry) -> list[IdentityLogEntry]:
    return [found for link in item.links if (found := log.find(link)) is not None]


def _leads_to_first(log: HeldIdentityLog, item: IdentityLogEntry) -> bool:
    """Whether links of held entries lead to an entry 1; lipmaa links are tried first, so few entries are read."""
    waiting, seen = [item], {item.hash}
    while waiting:
        found = waiting.pop()
        if found.entry.seq_num == 1:
            return True
        for linked in _linked(log, found):
            if linked.hash not in seen:
                seen.add(linked.hash)
                waiting.append(linked)
    return False


# The document


def decide_control(first_key: PublicKey, read_log: Callable[[PublicKey], HeldIdentityLog]) -> Control | None:
    """Decide who speaks for the identity of a first key; None if no document of it is held, or it is a further key."""
    identity, log = identity_of(first_key), read_log(first_key)
    if is_further_key(log):
        return None
    found = _newest_under(first_key, log, None)
    if found is None:
        return None
    path = [found]
    while (following := _find_following(identity, first_key, path[-1], read_log)) is not None:
        path.append(following)
    keys = {
        item.key: judge_key(identity, read_log(item.key), is_revoked=item.revoked is not None)
        for item in path[-1].document.keys
        if item.key != first_key
    }
    is_first_ended = any(item.key == first_key and item.revoked is not None for item in path[-1].document.keys)
    keys[first_key] = KeyState.ENDED if is_first_ended else KeyState.COUNTS
    return Control(first_key, tuple(path), keys, fork_state(log))


def _newest_under(author: PublicKey, log: HeldIdentityLog, under: Hash | None) -> SignedDocument | None:
    for item in counted_entries(log):
        if isinstance(item.message, IdentityDocument) and item.message.under == under:
            return SignedDocument(author, item.entry.seq_num, item.hash, item.message)
    return None


def _find_following(
    identity: IdentityId, first_key: PublicKey, step: SignedDocument, read_log: Callable[[PublicKey], HeldIdentityLog]
) -> SignedDocument | None:
    """Return the document that the controller named by `step` has put in its place, if there is one."""
    controller = step.document.controller
    is_listed = any(item.key == controller and item.revoked is None for item in step.document.keys)
    if controller is None or controller == first_key or not is_listed:
        return None
    log = read_log(controller)
    if judge_key(identity, log, is_revoked=False) is not KeyState.COUNTS:
        return None
    return _newest_under(controller, log, step.hash)


def judge_document(
    item: SignedDocument, log: HeldIdentityLog, control: Control | None, *, is_under_readable: bool
) -> DocumentState | None:
    """Return the state of an `identity` message; None if it says nothing where it stands, or nothing leads to it.

    `log` is the log 0 that it stands in, `control` that of the identity which the log names; `is_under_readable`:
    whether the entry that it stands under is held with its payload.
    """
    held = log.find(item.hash)
    if held is None or not _leads_to_first(log, held):
        return None
    under = item.document.under
    is_known = any(first.has_payload for first in log.first_entries())
    is_further = is_further_key(log)
    if (under is None and is_further) or (under is not None and not is_further and is_known):
        return None
    if control is not None and control.current.hash == item.hash:
        return DocumentState.IN_EFFECT
    if _is_counted(item, log) and (under is None or _has_step(control, under, item.author)):
        return DocumentState.REPLACED
    if under is not None and not (is_under_readable and is_known):
        return DocumentState.WAITS
    return DocumentState.OVERRULED


def _is_counted(item: SignedDocument, log: HeldIdentityLog) -> bool:
    for counted in counted_entries(log):
        if counted.entry.seq_num < item.seq_num:
            return False
        if counted.hash == item.hash:
            return True
    return False


def _has_step(control: Control | None, under: Hash, author: PublicKey) -> bool:
    steps = control.path if control is not None else ()
    return any(step.hash == under and after.author == author for step, after in pairwise(steps))

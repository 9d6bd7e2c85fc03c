"""Whether a signed entry joins its log: a pure decision from what is held (docs/protocol.md section 2).

The store keeps an entry if it is verified (a path of held entries leads to entry 1), or as evidence if it contradicts
what held entries claim. So below the earliest fork all held claims agree, and one claim per sequence number is enough
to judge the next entry by. Of what lies in the forked part of a log more is kept, for its owner may pin a branch; of
log 0 all branches; behind a lie deletes. What is kept is worth exactly what `core.log.verify_log` says of the same set.

If a pin decides which branch of the log counts (section 7.2), what its entries link to joins them, and everything else
is kept beside them, as long as there is room.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from inkgrove.core import Hash, PublicKey, lipmaa
from inkgrove.core.errors import (
    AfterEndOfLog,
    EntryError,
    Forked,
    InkgroveError,
    InvalidSince,
    KeyRevoked,
    LogError,
    OtherBranch,
)
from inkgrove.store.logs.preparation import PreparedItem


class IngestStatus(StrEnum):
    """The result of ingesting an item."""

    STORED = "stored"
    KNOWN = "known"
    """The entry was held already, and the item brought nothing new."""
    COMPLETED = "completed"
    """The entry was held already, its payload was not."""
    EVIDENCE = "evidence"
    """Kept as proof that its author forked the log or lied about a size, or because it lies behind that.

    Also: kept outside of the branch that the log's owner has pinned.
    """
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class LogValidity:
    """From which sequence numbers on the entries of a log do not count, and why."""

    forked_at: int | None = None
    lied_at: int | None = None
    ended_at: int | None = None
    revoked_after: int | None = None
    """The last sequence number that counts, if the identity has revoked the author's key; 0: none does."""

    @property
    def last_counted(self) -> int | None:
        """The sequence number after which entries are no messages, if the log was ended or its key revoked."""
        return _least(self.ended_at, self.revoked_after)

    @property
    def invalid_from(self) -> int | None:
        """The sequence number from which on nothing in the log counts, if there is one."""
        return _least(self.forked_at, self.lied_at)

    def refusal(self, seq_num: int) -> InkgroveError | None:
        """Say why an entry with this sequence number is not verified; None if it is, once a path leads to it."""
        if self.revoked_after is not None and seq_num > self.revoked_after:
            last = self.revoked_after
            return KeyRevoked(
                f"the key was revoked: only what is up to entry {last} counts", seq_num=seq_num, last=last
            )
        if self.forked_at is not None and seq_num >= self.forked_at:
            at = self.forked_at
            return Forked(f"the log is forked at entry {at}", seq_num=seq_num, forked_at=at)
        if self.lied_at is not None and seq_num >= self.lied_at:
            at = self.lied_at
            return InvalidSince(
                f"entry {at} lies about the size of its payload", seq_num=seq_num, invalid_from=self.lied_at
            )
        if self.ended_at is not None and seq_num > self.ended_at:
            return AfterEndOfLog(f"entry {self.ended_at} ended the log", seq_num=seq_num)
        return None

    @property
    def ranges_behind_end(self) -> list[tuple[int, int | None]]:
        """Where entries are no messages: ranges of sequence numbers, each as what it begins after and its last, if any.

        Behind the end of a revoked key nothing is; behind the end of a log nothing is before its invalid part.
        """
        ranges: list[tuple[int, int | None]] = []
        if self.revoked_after is not None:
            ranges.append((self.revoked_after, None))
        if self.ended_at is not None:
            ranges.append((self.ended_at, None if self.invalid_from is None else self.invalid_from - 1))
        return ranges

    def is_behind_end(self, seq_num: int) -> bool:
        """Whether an entry with this sequence number is no message: after the end of its log or key."""
        return isinstance(self.refusal(seq_num), AfterEndOfLog | KeyRevoked)


VALID_LOG: Final = LogValidity()
"""All entries count."""


class Claim(NamedTuple):
    """The hash that held entries claim for one sequence number."""

    hash: Hash
    witness: Hash
    """A held entry that makes the claim: the entry itself or one that links to it."""

    @property
    def is_held(self) -> bool:
        """Whether the entry itself is held."""
        return self.hash == self.witness


@dataclass(slots=True)
class LogIngestState:
    """What is known of one log while a batch is decided; moves on with every decision."""

    author: PublicKey
    log_id: int
    id: int = 0
    height: int = 0
    held: int = 0
    standing: LogValidity = field(default_factory=LogValidity)
    claims: dict[int, Claim] = field(default_factory=dict)
    """One for each sequence number that an item makes a claim about, as far as held entries make one too."""
    known: dict[Hash, bool] = field(default_factory=dict)
    """The entries held at the sequence numbers of the items: whether their payloads are held."""
    first_height: int = 0
    """The height before the batch."""
    pin: Hash | None = None
    """The entry at `revoked_after` whose branch counts, if the owner has pinned one."""
    is_pinned: bool = False
    """Whether the pin decides: what is held, but for `beside`, is its branch."""
    aside: int = 0
    """How many entries are held beside the branch."""
    beside: dict[Hash, bool] = field(default_factory=dict)
    """Those of the items that are among them: whether their payloads are held."""
    room: int = 0
    """How many entries of the forked part, or beside the branch, may still be taken."""
    wanted: frozenset[Hash] = frozenset()
    """What the pin leads to inside the batch; it is taken even if there is no room."""
    is_unsettled: bool = False
    """Whether the branch contradicts itself since an item has joined it."""

    def next_links(self) -> tuple[Hash | None, Hash | None] | None:
        """Lipmaa link and backlink of the next entry; None if the log lacks an entry that it must link to."""
        if self.height == 0:
            return None, None
        seq_num = self.height + 1
        backlink, lipmaa_link = self.claims.get(self.height), self.claims.get(lipmaa(seq_num))
        if backlink is None or lipmaa_link is None or not lipmaa_link.is_held:
            return None
        return (lipmaa_link.hash if lipmaa(seq_num) != self.height else None), backlink.hash


class Decision(NamedTuple):
    """What to do with an item."""

    status: IngestStatus
    error: InkgroveError | None = None
    stores_entry: bool = False
    stores_payload: bool = False
    forked_at: int | None = None
    witness: Hash | None = None
    """The held entry that the item contradicts."""
    is_stale: bool = False
    is_beside: bool = False
    """It is kept outside of the branch that is pinned."""
    unsettles: bool = False
    """The pin leads to it, and it contradicts the branch: the pin may not decide any more."""


def decide_ingest(state: LogIngestState, item: PreparedItem, *, must_be_next: bool = False) -> Decision:
    """Decide whether an item is stored, kept as evidence or refused; changes nothing.

    With `must_be_next` only the very next entry of the log is taken.
    """
    signed = item.signed
    seq_num = signed.entry.seq_num
    has_payload = item.payload is not None
    if signed.hash in state.known:
        return _decide_known(state.known, item)
    if signed.hash in state.beside:
        return _decide_known(state.beside, item)._replace(is_beside=True)
    if must_be_next and (refusal := _refuse_unless_next(state, item)) is not None:
        return refusal
    if state.is_pinned:
        return _decide_pinned(state, item)
    contradiction = _find_contradiction(state, item)
    if contradiction is not None:
        at, witness = contradiction
        error = Forked(f"the entry forks its log at entry {at}", seq_num=seq_num, forked_at=at)
        return Decision(IngestStatus.EVIDENCE, error, True, has_payload, at, witness)
    refusal_by_log = state.standing.refusal(seq_num)
    if refusal_by_log is not None:
        # A delete counts in every branch of a log, and behind a lie, whatever of it came first.
        is_kept = not state.standing.is_behind_end(seq_num) and (item.is_delete or signed.hash in state.wanted)
        if isinstance(refusal_by_log, Forked):
            # Log 0 is held in all branches: which of them counts is for section 7.2 to say.
            is_kept |= _is_linked(state, item) if state.log_id == 0 else state.room > 0
        status = IngestStatus.EVIDENCE if is_kept else IngestStatus.REFUSED
        return Decision(status, refusal_by_log, is_kept, is_kept and has_payload)
    if seq_num > 1 and not _has_path(state, item):
        error_of_path = EntryError(
            "entry.no-path-to-first", f"no verified entry that entry {seq_num} links to is held", seq_num=seq_num
        )
        return Decision(IngestStatus.REFUSED, error_of_path)
    if item.is_lie:
        return Decision(IngestStatus.EVIDENCE, item.payload_error, True, True)
    return Decision(IngestStatus.STORED, item.payload_error, True, has_payload)


def _find_contradiction(state: LogIngestState, item: PreparedItem) -> tuple[int, Hash] | None:
    """The first sequence number that a held entry claims another hash for, with that entry; none after a known fork."""
    forked_at = state.standing.forked_at
    found = None
    for at, claimed in item.claims:
        claim = state.claims.get(at)
        is_news = claim is not None and claim.hash != claimed and (forked_at is None or at < forked_at)
        if claim is not None and is_news and (found is None or at < found[0]):
            found = at, claim.witness
    return found


def _has_path(state: LogIngestState, item: PreparedItem) -> bool:
    """Whether an entry that it links to is held; below the invalid part all that is held is verified."""
    for at, _ in item.claims[1:]:
        claim = state.claims.get(at)
        if claim is not None and claim.is_held:
            return True
    return False


def _is_linked(state: LogIngestState, item: PreparedItem) -> bool:
    """Whether it is an entry 1, or links to an entry that is held in whichever branch."""
    return item.signed.entry.seq_num == 1 or any(claimed in state.known for _, claimed in item.claims[1:])


def _decide_pinned(state: LogIngestState, item: PreparedItem) -> Decision:
    """Decide on an entry of a log of which only what the pin leads to counts."""
    signed, has_payload = item.signed, item.payload is not None
    entry = signed.entry
    last = state.standing.revoked_after or 0
    if entry.seq_num > last:
        return Decision(IngestStatus.REFUSED, state.standing.refusal(entry.seq_num))
    claim = state.claims.get(entry.seq_num)
    contradiction = _find_contradiction(state, item)
    if claim is not None and claim.hash == signed.hash:
        if contradiction is None and not (entry.is_end_of_log and entry.seq_num < last):
            status = IngestStatus.EVIDENCE if item.is_lie else IngestStatus.STORED
            return Decision(status, item.payload_error, True, has_payload)
        error = make_other_branch(entry.seq_num)
        return Decision(IngestStatus.EVIDENCE, error, True, has_payload, is_beside=True, unsettles=True)
    error = make_other_branch(entry.seq_num)
    if state.room <= 0:
        return Decision(IngestStatus.REFUSED, error)
    at, witness = contradiction or (None, None)
    return Decision(IngestStatus.EVIDENCE, error, True, has_payload, at, witness, is_beside=True)


def make_other_branch(seq_num: int) -> OtherBranch:
    """The error for an entry that the pin of its log does not lead to."""
    return OtherBranch(
        f"the owner of the log has pinned a branch, and nothing that is held of it leads to entry {seq_num}",
        seq_num=seq_num,
    )


def _decide_known(known: dict[Hash, bool], item: PreparedItem) -> Decision:
    if item.payload is None or known[item.signed.hash]:
        return Decision(IngestStatus.KNOWN, item.payload_error)
    status = IngestStatus.EVIDENCE if item.is_lie else IngestStatus.COMPLETED
    return Decision(status, item.payload_error, stores_payload=True)


def _refuse_unless_next(state: LogIngestState, item: PreparedItem) -> Decision | None:
    # Refused before anybody looks for forks: a writer that came second must not become evidence against its own log.
    entry, standing = item.signed.entry, state.standing
    if standing.invalid_from is not None:
        return Decision(IngestStatus.REFUSED, standing.refusal(state.height + 1))
    if standing.ended_at is not None:
        return Decision(IngestStatus.REFUSED, LogError("log.ended", f"entry {standing.ended_at} ended the log"))
    links = entry.lipmaa_link, entry.backlink
    if entry.seq_num != state.height + 1 or links != state.next_links():
        return Decision(IngestStatus.REFUSED, is_stale=True)
    return None


def apply_decision(state: LogIngestState, item: PreparedItem, decision: Decision) -> None:
    """Change the state to what it is after the decision."""
    signed, standing = item.signed, state.standing
    entry = signed.entry
    if decision.is_beside:
        if decision.stores_entry:
            state.aside += 1
            state.room -= 1
        if decision.stores_entry or decision.stores_payload:
            state.beside[signed.hash] = decision.stores_payload
        state.is_unsettled |= decision.unsettles
        return
    if isinstance(decision.error, Forked) and decision.stores_entry:
        state.room -= 1
    if decision.stores_payload:
        state.known[signed.hash] = True
    if decision.stores_entry:
        state.known.setdefault(signed.hash, False)
        state.held += 1
        state.height = max(state.height, entry.seq_num)
        for at, claimed in item.claims:
            claim = state.claims.get(at)
            if claim is None or (at == entry.seq_num and claim.hash == claimed):
                state.claims[at] = Claim(claimed, signed.hash)
    if decision.status is IngestStatus.EVIDENCE or (entry.is_end_of_log and decision.stores_entry):
        state.standing = LogValidity(
            _least(standing.forked_at, decision.forked_at),
            _least(standing.lied_at, entry.seq_num if item.is_lie else None),
            _least(standing.ended_at, entry.seq_num if decision.status is IngestStatus.STORED else None)
            if entry.is_end_of_log
            else standing.ended_at,
            standing.revoked_after,
        )


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)

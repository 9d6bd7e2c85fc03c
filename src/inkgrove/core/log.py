"""Verdict on a set of entries of one log, whole or partial: a pure function of the set, whatever its order.

docs/protocol.md section 2.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inkgrove.core.errors import (
    AfterEndOfLog,
    EntryError,
    Forked,
    InkgroveError,
    InvalidSince,
    LogError,
    PayloadHashMismatch,
    PayloadSizeMismatch,
)
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.core.links import lipmaa
from inkgrove.core.verify import SignedEntry, VerifiedEntry, verify_links, verify_payload

# Claims and forks: signed entries that contradict each other (docs/protocol.md section 2, forks).
#
# A signature-valid entry claims a hash for its own sequence number and for each one it links to. Two different claims
# for one number are a fork there, whatever arrived first.


@dataclass(frozen=True, slots=True)
class ForkProof:
    """Two signed entries of one log with different claims for one sequence number."""

    author: PublicKey
    log_id: int
    seq_num: int
    first: SignedEntry
    second: SignedEntry


def list_claims(signed: SignedEntry) -> Iterator[tuple[int, Hash]]:
    """Each sequence number the entry makes a claim about, with the claimed hash."""
    entry = signed.entry
    yield entry.seq_num, signed.hash
    if entry.backlink is not None:
        yield entry.seq_num - 1, entry.backlink
    if entry.lipmaa_link is not None:
        yield lipmaa(entry.seq_num), entry.lipmaa_link


def find_fork(entries: Iterable[SignedEntry]) -> ForkProof | None:
    """The earliest fork among the entries of one log; the same proof in whatever order they come."""
    claims: dict[int, dict[Hash, SignedEntry]] = {}
    for signed in entries:
        for seq_num, claimed in list_claims(signed):
            witnesses = claims.setdefault(seq_num, {})
            known = witnesses.get(claimed)
            if known is None or signed.entry.encoded < known.entry.encoded:
                witnesses[claimed] = signed
    forked = [seq_num for seq_num, witnesses in claims.items() if len(witnesses) > 1]
    if not forked:
        return None
    seq_num = min(forked)
    first, second = (witness for _, witness in sorted(claims[seq_num].items())[:2])
    return ForkProof(first.entry.author, first.entry.log_id, seq_num, first, second)


def verify_fork_proof(first: SignedEntry, second: SignedEntry) -> ForkProof:
    """Two signed entries as a proof of a fork, or `log.not-a-fork`."""
    logs = {(signed.entry.author, signed.entry.log_id) for signed in (first, second)}
    proof = find_fork((first, second)) if len(logs) == 1 else None
    if proof is None:
        raise LogError("log.not-a-fork", "these entries do not contradict each other")
    return proof


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """A signed entry as it is held, with its payload or without."""

    signed: SignedEntry
    payload: bytes | None = None


Verdict = VerifiedEntry | InkgroveError


@dataclass(frozen=True, slots=True)
class LogReport:
    """What a set of entries of one log is worth."""

    verdicts: list[Verdict]
    """One for each entry given, in the order given."""
    verified: dict[int, VerifiedEntry]
    """The good entries by sequence number, also where a payload given with one was rubbish."""
    fork: ForkProof | None
    lie: int | None
    """The earliest entry whose payload has not the size it claims."""

    @property
    def invalid_from(self) -> int | None:
        """The sequence number from which on nothing in the log counts, if there is one."""
        starts = (self.fork.seq_num if self.fork else None, self.lie)
        return min((start for start in starts if start is not None), default=None)


def verify_log(held: Iterable[HeldEntry], *, partial: bool = False) -> LogReport:
    """Verify entries of one log in any order; `partial` allows gaps that links lead across."""
    entries = list(held)
    payload_errors = [_payload_error(item) for item in entries]
    lies = [
        item.signed.entry.seq_num
        for item, error in zip(entries, payload_errors, strict=True)
        if isinstance(error, PayloadSizeMismatch)
    ]
    report = LogReport(
        verdicts=[],
        verified={},
        fork=find_fork(item.signed for item in entries),
        lie=min(lies, default=None),
    )
    by_seq_num: dict[int, dict[Hash, SignedEntry]] = defaultdict(dict)
    for item in entries:
        by_seq_num[item.signed.entry.seq_num][item.signed.hash] = item.signed
    verdicts: dict[int, Verdict] = {}
    ended_at: int | None = None
    # In ascending order the entries that an entry links to are settled before it.
    for index in sorted(range(len(entries)), key=lambda i: entries[i].signed.entry.seq_num):
        signed, error = entries[index].signed, payload_errors[index]
        try:
            _check_held_links(signed, by_seq_num)
            if isinstance(error, PayloadSizeMismatch):
                raise error
            _check_validity_of_log(signed.entry.seq_num, report)
            if ended_at is not None and signed.entry.seq_num > ended_at:
                raise AfterEndOfLog(f"entry {ended_at} ended the log", seq_num=signed.entry.seq_num)
            verdict = _verify_path(signed, report.verified, partial=partial)
            report.verified[signed.entry.seq_num] = verdict
            if signed.entry.is_end_of_log:
                ended_at = signed.entry.seq_num
            verdicts[index] = error or verdict
        except InkgroveError as refusal:
            verdicts[index] = refusal
    report.verdicts.extend(verdicts[index] for index in range(len(entries)))
    return report


def _check_held_links(signed: SignedEntry, by_seq_num: dict[int, dict[Hash, SignedEntry]]) -> None:
    entry = signed.entry
    seq_num = entry.seq_num
    if before := by_seq_num.get(seq_num - 1):
        linked = before.get(entry.backlink) if entry.backlink else None
        if linked is None:
            raise EntryError(
                "entry.backlink-mismatch",
                f"the backlink of entry {seq_num} is not the hash of entry {seq_num - 1}",
                seq_num=seq_num,
            )
        if linked.entry.is_end_of_log:
            raise AfterEndOfLog(f"entry {seq_num - 1} ended the log", seq_num=seq_num)
    targets = by_seq_num.get(lipmaa(seq_num)) if entry.lipmaa_link else None
    if targets and entry.lipmaa_link not in targets:
        raise EntryError(
            "entry.lipmaa-mismatch",
            f"the lipmaa link of entry {seq_num} is not the hash of entry {lipmaa(seq_num)}",
            seq_num=seq_num,
        )


def _check_validity_of_log(seq_num: int, report: LogReport) -> None:
    if report.fork is not None and seq_num >= report.fork.seq_num:
        forked_at = report.fork.seq_num
        raise Forked(f"the log is forked at entry {forked_at}", seq_num=seq_num, forked_at=forked_at)
    if report.lie is not None and seq_num >= report.lie:
        raise InvalidSince(
            f"entry {report.lie} lies about the size of its payload", seq_num=seq_num, invalid_from=report.lie
        )


def _verify_path(signed: SignedEntry, verified: dict[int, VerifiedEntry], *, partial: bool) -> VerifiedEntry:
    seq_num = signed.entry.seq_num
    before = verified.get(seq_num - 1)
    if seq_num > 1 and before is None and not partial:
        raise LogError("log.missing-predecessor", f"entry {seq_num - 1} is missing or not valid", seq_num=seq_num)
    return verify_links(signed, backlink=before, lipmaa_link=verified.get(lipmaa(seq_num)))


def _payload_error(item: HeldEntry) -> PayloadHashMismatch | PayloadSizeMismatch | None:
    if item.payload is None:
        return None
    try:
        verify_payload(item.signed.entry, item.payload)
    except (PayloadHashMismatch, PayloadSizeMismatch) as error:
        return error
    return None

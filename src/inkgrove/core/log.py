"""Verdict on a set of entries of one log, whole or partial: a pure function of the set, whatever its order.

docs/protocol.md section 2.
"""

from collections import defaultdict
from collections.abc import Iterable
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
from inkgrove.core.fork import ForkProof, find_fork
from inkgrove.core.hashing import Hash
from inkgrove.core.lipmaa import lipmaa
from inkgrove.core.verify import SignedEntry, VerifiedEntry, verify_links, verify_payload


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

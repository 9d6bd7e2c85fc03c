"""Claims and forks: signed entries that contradict each other (docs/protocol.md section 2, forks).

A signature-valid entry claims a hash for its own sequence number and for each one it links to. Two different claims
for one number are a fork there, whatever arrived first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from inkgrove.core.errors import LogError
from inkgrove.core.hashing import Hash
from inkgrove.core.keys import PublicKey
from inkgrove.core.lipmaa import lipmaa
from inkgrove.core.verify import SignedEntry


@dataclass(frozen=True, slots=True)
class ForkProof:
    """Two signed entries of one log with different claims for one sequence number."""

    author: PublicKey
    log_id: int
    seq_num: int
    first: SignedEntry
    second: SignedEntry


def claims_of(signed: SignedEntry) -> Iterator[tuple[int, Hash]]:
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
        for seq_num, claimed in claims_of(signed):
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

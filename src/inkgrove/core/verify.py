"""Verification of one entry and of its payload; the linked entries are handed in, never fetched.

docs/protocol.md section 2. Each step has its own type: `Entry` (decoded), `SignedEntry` (the signature holds, so
its author answers for what it claims), `VerifiedEntry` (links and a path to entry 1 hold as well). Only the
functions of this module make the latter two (`tests/unit/test_imports.py` holds it); each returns its type or raises,
never a bool. Where a signature need not be checked again, `trust_signed` says why.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from inkgrove.core.entry import Entry
from inkgrove.core.errors import AfterEndOfLog, BadSignature, EntryError, PayloadHashMismatch, PayloadSizeMismatch
from inkgrove.core.hashing import Hash, hash_like
from inkgrove.core.keys import bad_signature, verify_signature
from inkgrove.core.links import lipmaa


@dataclass(frozen=True, slots=True)
class SignedEntry:
    """An entry whose signature holds for its author."""

    entry: Entry
    hash: Hash


@dataclass(frozen=True, slots=True)
class VerifiedEntry:
    """An entry that is proven back to entry 1 of its log."""

    entry: Entry
    hash: Hash


def verify_signed(entry: Entry) -> SignedEntry:
    """Check the signature alone: the entry counts as a claim, not yet as part of a log."""
    encoded = entry.encoded
    verify_signature(entry.author, encoded[:-64], encoded[-64:])
    return SignedEntry(entry, hash_like(encoded, entry.payload_hash))


def trust_signed(entry: Entry, entry_hash: Hash) -> SignedEntry:
    """Return an entry as signed without checking it; for the four callers that know that its signature holds.

    `core.next_entry` has just made it; `messages.delivery` found `entry_hash`, a hash of all bytes with the signature,
    among the entries that the store has verified; `pipeline.archive` verified these bytes in an earlier stage;
    `node.person_file` when it read the file for the first time, of which a digest was kept.
    """
    return SignedEntry(entry, entry_hash)


AreSigned = Callable[[Sequence[bytes]], bytes]
"""Takes the bytes of decoded entries and returns a byte for each: 1 if its signature holds, else 0."""


def verify_all_signed(entries: Sequence[Entry], are_signed: AreSigned) -> Iterator[SignedEntry | BadSignature]:
    """Yield for each entry the signed entry, or the error if its signature does not hold; `are_signed` checks them."""
    for entry, is_signed in zip(entries, are_signed([entry.encoded for entry in entries]), strict=True):
        if is_signed:
            yield SignedEntry(entry, hash_like(entry.encoded, entry.payload_hash))
        else:
            yield bad_signature(entry.author)


def verify_entry(
    entry: Entry, *, backlink: VerifiedEntry | None = None, lipmaa_link: VerifiedEntry | None = None
) -> VerifiedEntry:
    """Verify signature and links of an entry; the entries it links to are given as far as held, one is enough.

    Raises `BadSignature` or another `EntryError`.
    """
    return verify_links(verify_signed(entry), backlink=backlink, lipmaa_link=lipmaa_link)


def verify_links(
    signed: SignedEntry, *, backlink: VerifiedEntry | None = None, lipmaa_link: VerifiedEntry | None = None
) -> VerifiedEntry:
    """Verify the links of an entry whose signature has been checked; arguments and errors as of `verify_entry`."""
    entry = signed.entry
    seq_num = entry.seq_num
    if backlink is not None:
        _check_target("backlink", entry, backlink, seq_num - 1)
        if backlink.hash != entry.backlink:
            raise EntryError(
                "entry.backlink-mismatch",
                f"the backlink of entry {seq_num} is not the hash of entry {seq_num - 1}",
                seq_num=seq_num,
            )
        if backlink.entry.is_end_of_log:
            raise AfterEndOfLog(f"entry {seq_num - 1} ended the log", seq_num=seq_num)
    if lipmaa_link is not None:
        target = lipmaa(seq_num)
        _check_target("lipmaa link", entry, lipmaa_link, target)
        # Where both links would be the same, only the backlink is written.
        if lipmaa_link.hash != (entry.lipmaa_link or entry.backlink):
            raise EntryError(
                "entry.lipmaa-mismatch",
                f"the lipmaa link of entry {seq_num} is not the hash of entry {target}",
                seq_num=seq_num,
            )
    if seq_num > 1 and backlink is None and lipmaa_link is None:
        raise EntryError(
            "entry.no-path-to-first", f"no verified entry that entry {seq_num} links to is held", seq_num=seq_num
        )
    return VerifiedEntry(entry, signed.hash)


def _check_target(name: str, entry: Entry, target: VerifiedEntry, seq_num: int) -> None:
    found = target.entry
    if (found.author, found.log_id, found.seq_num) != (entry.author, entry.log_id, seq_num):
        raise EntryError(
            "entry.wrong-link-target",
            f"the {name} of entry {entry.seq_num} leads to entry {seq_num} of its own log, not to entry"
            f" {found.seq_num} of log {found.log_id} by {found.author.hex()}",
            seq_num=entry.seq_num,
        )


def verify_payload(entry: Entry, payload: bytes) -> bytes:
    """Return the payload if it is this entry's; raises `PayloadHashMismatch` or, after that, `PayloadSizeMismatch`.

    Other bytes say nothing about the entry; a wrong size proves that its author lied.
    """
    if hash_like(payload, entry.payload_hash) != entry.payload_hash:
        raise PayloadHashMismatch(f"these bytes are not the payload of entry {entry.seq_num}", seq_num=entry.seq_num)
    if len(payload) != entry.payload_size:
        raise PayloadSizeMismatch(
            f"entry {entry.seq_num} claims {entry.payload_size} bytes of payload, it has {len(payload)}",
            seq_num=entry.seq_num,
        )
    return payload

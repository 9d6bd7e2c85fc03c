"""Verification of one entry and of its payload; the linked entries are handed in, never fetched.

docs/protocol.md section 2. Each step has its own type: `Entry` (decoded), `SignedEntry` (the signature holds, so
its author answers for what it claims), `VerifiedEntry` (links and a path to entry 1 hold as well). Only the
functions here, in `core.log` and `core.next_entry` make the latter two; each returns its type or raises, never a bool.
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


AreSigned = Callable[[Sequence[bytes]], bytes]
"""For each of some decoded entries 1 if its signature holds, else 0."""


def verify_all_signed(entries: Sequence[Entry], are_signed: AreSigned) -> Iterator[SignedEntry | BadSignature]:
    """The same for each of many; `are_signed` checks their bytes."""
    for entry, is_signed in zip(entries, are_signed([entry.encoded for entry in entries]), strict=True):
        if is_signed:
            yield SignedEntry(entry, hash_like(entry.encoded, entry.payload_hash))
        else:
            yield bad_signature(entry.author)


def verify_entry(
    entry: Entry, *, backlink: VerifiedEntry | None = None, lipmaa_link: VerifiedEntry | None = None
) -> VerifiedEntry:
    """Verify an entry against the entries it links to, as far as they are held; one is enough for the path."""
    return verify_links(verify_signed(entry), backlink=backlink, lipmaa_link=lipmaa_link)


def verify_links(
    signed: SignedEntry, *, backlink: VerifiedEntry | None = None, lipmaa_link: VerifiedEntry | None = None
) -> VerifiedEntry:
    """The second half of `verify_entry`, for entries whose signature has been checked."""
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
    """The payload, if it is this entry's: hash first, then size; the two failures mean different things."""
    if hash_like(payload, entry.payload_hash) != entry.payload_hash:
        raise PayloadHashMismatch(f"these bytes are not the payload of entry {entry.seq_num}", seq_num=entry.seq_num)
    if len(payload) != entry.payload_size:
        raise PayloadSizeMismatch(
            f"entry {entry.seq_num} claims {entry.payload_size} bytes of payload, it has {len(payload)}",
            seq_num=entry.seq_num,
        )
    return payload

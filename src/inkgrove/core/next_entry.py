"""What the next entry of a log must carry: its sequence number and links (docs/protocol.md section 2)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from inkgrove.core.entry import Entry, hash_entry, sign_entry
from inkgrove.core.errors import LogError, MissingLink
from inkgrove.core.hashing import Flavour, Hash
from inkgrove.core.keys import PublicKey, SecretKey
from inkgrove.core.links import has_lipmaa_link, lipmaa
from inkgrove.core.verify import SignedEntry, VerifiedEntry, trust_signed


class NextEntry(NamedTuple):
    """What an entry to be signed at one sequence number of a log must carry."""

    author: PublicKey
    log_id: int
    seq_num: int
    lipmaa_link: Hash | None
    backlink: Hash | None
    flavour: Flavour


def make_next_entry(
    author: PublicKey,
    log_id: int,
    height: int,
    find_hash: Callable[[int], Hash | None],
    flavour: Flavour = Flavour.YAMF,
    *,
    is_ended: bool = False,
) -> NextEntry:
    """Return what the entry behind `height`, which is 0 for a new log, must carry.

    `find_hash` gives the hash of the log's entry at a sequence number, None if it is not held. Raises `log.ended` if
    the entry at `height` ended the log, and `MissingLink` if an entry that must be linked to is not held.
    """
    if is_ended:
        raise LogError("log.ended", f"entry {height} ended the log")
    seq_num = height + 1
    if seq_num == 1:
        return NextEntry(author, log_id, 1, None, None, flavour)
    lipmaa_link = _require_link(seq_num, lipmaa(seq_num), find_hash) if has_lipmaa_link(seq_num) else None
    return NextEntry(author, log_id, seq_num, lipmaa_link, _require_link(seq_num, height, find_hash), flavour)


def _require_link(seq_num: int, target: int, find_hash: Callable[[int], Hash | None]) -> Hash:
    found = find_hash(target)
    if found is None:
        raise MissingLink(f"entry {seq_num} links to entry {target}, which is not held")
    return found


def find_next_entry(verified: Mapping[int, SignedEntry | VerifiedEntry]) -> NextEntry:
    """Return what the entry after the newest must carry; `verified` are the held entries of a log by sequence number.

    Raises `log.ended`, or `MissingLink` if the entry that it would link to is not among them.
    """
    newest = verified[max(verified)].entry

    def find_hash(seq_num: int) -> Hash | None:
        found = verified.get(seq_num)
        return found.hash if found is not None else None

    return make_next_entry(
        newest.author, newest.log_id, newest.seq_num, find_hash, newest.flavour, is_ended=newest.is_end_of_log
    )


def sign_next(key: SecretKey, payload: bytes, next_entry: NextEntry, *, is_end_of_log: bool = False) -> Entry:
    """Sign an entry at the sequence number and with the links of `next_entry`."""
    return sign_entry(
        key,
        payload,
        log_id=next_entry.log_id,
        seq_num=next_entry.seq_num,
        lipmaa_link=next_entry.lipmaa_link,
        backlink=next_entry.backlink,
        is_end_of_log=is_end_of_log,
        flavour=next_entry.flavour,
    )


def sign_own(key: SecretKey, payload: bytes, next_entry: NextEntry) -> SignedEntry:
    """Sign an entry as `sign_next` does; its signature was made here and now, and is not checked."""
    entry = sign_next(key, payload, next_entry)
    return trust_signed(entry, hash_entry(entry))

"""What the next entry of a log must carry: its sequence number and links (docs/protocol.md section 2)."""

from collections.abc import Mapping
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


def find_next_entry(verified: Mapping[int, SignedEntry | VerifiedEntry]) -> NextEntry:
    """Return what the entry after the newest must carry; `verified` are the held entries of a log by sequence number.

    Raises `log.ended`, or `MissingLink` if the entry that it would link to is not among them.
    """
    newest = verified[max(verified)].entry
    if newest.is_end_of_log:
        raise LogError("log.ended", f"entry {newest.seq_num} ended the log")
    seq_num = newest.seq_num + 1
    lipmaa_link = None
    if has_lipmaa_link(seq_num):
        if lipmaa(seq_num) not in verified:
            raise MissingLink(f"entry {seq_num} links to entry {lipmaa(seq_num)}, which is not held")
        lipmaa_link = verified[lipmaa(seq_num)].hash
    backlink = verified[newest.seq_num].hash
    return NextEntry(newest.author, newest.log_id, seq_num, lipmaa_link, backlink, newest.flavour)


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

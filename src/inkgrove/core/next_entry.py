"""What the next entry of a log must carry: its sequence number and links (docs/protocol.md section 2)."""

from collections.abc import Mapping
from typing import NamedTuple

from inkgrove.core.entry import Entry, hash_entry, sign_entry
from inkgrove.core.errors import LogError, MissingLink
from inkgrove.core.hashing import Flavour, Hash
from inkgrove.core.keys import PublicKey, SecretKey
from inkgrove.core.links import has_lipmaa_link, lipmaa
from inkgrove.core.verify import SignedEntry, VerifiedEntry


class NextEntry(NamedTuple):
    """The arguments for signing at one place of a log."""

    author: PublicKey
    log_id: int
    seq_num: int
    lipmaa_link: Hash | None
    backlink: Hash | None
    flavour: Flavour


def find_next_entry(verified: Mapping[int, SignedEntry | VerifiedEntry]) -> NextEntry:
    """The place behind the newest of a log's entries, which are given by sequence number."""
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


def sign_next(key: SecretKey, payload: bytes, place: NextEntry, *, is_end_of_log: bool = False) -> Entry:
    """Sign an entry for this very place."""
    return sign_entry(
        key,
        payload,
        log_id=place.log_id,
        seq_num=place.seq_num,
        lipmaa_link=place.lipmaa_link,
        backlink=place.backlink,
        is_end_of_log=is_end_of_log,
        flavour=place.flavour,
    )


def sign_own(key: SecretKey, payload: bytes, place: NextEntry) -> SignedEntry:
    """Sign an entry for this very place; a signature made here and now need not be checked."""
    entry = sign_next(key, payload, place)
    return SignedEntry(entry, hash_entry(entry))

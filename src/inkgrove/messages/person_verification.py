"""Checks of the records of a person's file: signatures, hashes of payloads, links (docs/person-file.md).

A record is checked by itself, with the links among its entries. What leads from one record to another is handed on as
`RunFacts`, so that records can be checked side by side, and followed by `ChainCheck`. Every fault is `file.changed`.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from inkgrove.core import (
    Entry,
    Hash,
    IdentityId,
    SignedEntry,
    check_storable,
    decode_entry,
    linking_to,
    lipmaa,
    verify_payload,
    verify_signed,
)
from inkgrove.core.errors import InkgroveError, PayloadSizeMismatch, PersonFileError
from inkgrove.messages.delivery import OpenedParcel, Parcel, decode_delivery, open_parcel
from inkgrove.messages.identity import IdentityDocument, KeyOf
from inkgrove.messages.instance import Create, Delete, Update
from inkgrove.messages.message import decode_if_valid
from inkgrove.messages.person_file import LogHeader, Record, changed, decode_record, read_copy, read_entries

_NOT_OF_SCHEMAS: Final = (Create, Update, Delete, IdentityDocument, KeyOf)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the entries of one record claim of those of others, after everything among themselves was checked."""

    digest: bytes
    """Of the record, by which it is known again when it is read a second time."""
    found: tuple[bytes, ...]
    """The hashes of the entries at the place that was asked for."""
    count: int
    first: int
    last: int
    backlink: bytes | None
    """The hash that the first entry claims for the one before it."""
    last_hash: bytes
    claims: tuple[tuple[int, bytes], ...]
    """What entries claim of those before this record by their lipmaa links: sequence number and hash."""
    later: tuple[tuple[int, bytes, int], ...]
    """Entries that later records link to: sequence number, hash, and the last one that does."""
    is_ended: bool
    payload_bytes: int
    """How many bytes of payloads come with them."""


def digest_record(body: bytes) -> bytes:
    """Return a short digest of a record."""
    return blake2b(body, digest_size=16).digest()


def check_entries(body: bytes, log: LogHeader, place: int = 0) -> RunFacts:
    """Check the entries of a record: each is signed and of this log, payloads are theirs, and links agree.

    `place`: a sequence number whose hashes are wanted.
    Of a log that is not whole only signatures and payloads are checked here: which of its entries count is decided when
    they are stored, as for entries of other nodes. Raises `file.changed`.
    """
    items = read_entries(decode_record(body))
    hashes: dict[int, Hash] = {}
    claims: list[tuple[int, bytes]] = []
    found: list[bytes] = []
    first = previous = None
    for encoded, payload in items:
        signed = _check_signed(encoded, payload, log)
        entry = signed.entry
        if entry.seq_num == place:
            found.append(signed.hash)
        if (entry.author, entry.log_id) != (log.author, log.log_id) or entry.seq_num > log.height:
            raise changed("an entry is of another log than it stands under")
        if log.is_whole:
            _check_links(entry, previous, hashes, claims)
        first = first or signed
        previous = signed
        hashes[entry.seq_num] = signed.hash
    assert first is not None
    assert previous is not None
    last = previous.entry.seq_num
    later = []
    if log.is_whole:
        for seq_num, entry_hash in hashes.items():
            final = max((at for at in linking_to(seq_num, log.height) if at > last), default=0)
            if final > seq_num + 1:
                later.append((seq_num, bytes(entry_hash), final))
    return RunFacts(
        digest_record(body),
        tuple(found),
        len(items),
        first.entry.seq_num,
        last,
        first.entry.backlink,
        previous.hash,
        tuple(claims),
        tuple(later),
        previous.entry.is_end_of_log,
        sum(len(payload or b"") for _, payload in items),
    )


def _check_signed(encoded: bytes, payload: bytes | None, log: LogHeader) -> SignedEntry:
    try:
        entry = decode_entry(encoded)
        check_storable(entry)
        signed = verify_signed(entry)
        if payload is not None:
            _check_payload(entry, payload, log)
    except InkgroveError as err:
        raise changed(f"an entry does not hold ({err.message})") from err
    return signed


def _check_payload(entry: Entry, payload: bytes, log: LogHeader) -> None:
    try:
        verify_payload(entry, payload)
    except PayloadSizeMismatch:
        if log.is_whole:  # else the author lied, and this payload proves it: it is kept
            raise
    if log.part == "schema" and isinstance(decode_if_valid(payload), _NOT_OF_SCHEMAS):
        raise changed("among the schemas there is something else")


def _check_links(
    entry: Entry, previous: SignedEntry | None, hashes: dict[int, Hash], claims: list[tuple[int, bytes]]
) -> None:
    if previous is not None:
        if entry.seq_num != previous.entry.seq_num + 1 or entry.backlink != previous.hash:
            raise changed(f"entry {entry.seq_num} does not follow the one before it")
        if previous.entry.is_end_of_log:
            raise changed(f"entry {entry.seq_num} follows the end of its log")
    if entry.lipmaa_link is not None:
        target = lipmaa(entry.seq_num)
        held = hashes.get(target)
        if held is None:
            claims.append((target, entry.lipmaa_link))
        elif held != entry.lipmaa_link:
            raise changed(f"the lipmaa link of entry {entry.seq_num} does not lead to entry {target}")


def says_key_of(body: bytes, identity: IdentityId) -> bool:
    """Whether a record with entries of a log 0 holds an entry 1 that says `key-of` the identity."""
    for encoded, payload in read_entries(decode_record(body)):
        if payload is not None and decode_entry(encoded).seq_num == 1 and decode_if_valid(payload) == KeyOf(identity):
            return True
    return False


def check_request(row: Record) -> None:
    """Check a parcel of the request box: its form, its sender, and the signatures; raises `file.changed`."""
    try:
        delivery = decode_delivery(row["parcel"])
        if delivery.via != row["via"] or [item.instance for item in delivery.parcels] != [row["instance"]]:
            raise changed("a parcel of the request box is another one than it says")
        for encoded, payload in delivery.parcels[0].entries:
            entry = verify_signed(decode_entry(encoded)).entry
            if payload is not None:
                verify_payload(entry, payload)
    except PersonFileError:
        raise
    except InkgroveError as err:
        raise changed(f"a parcel of the request box does not hold ({err.message})") from err


def check_copy(body: bytes) -> tuple[bytes, OpenedParcel]:
    """Check a copy: signatures, payloads, and that all of it is of one instance; return its digest and the parcel.

    Raises `file.changed`.
    """
    instance, create, entries = read_copy(decode_record(body))
    try:
        begun = None if create is None else verify_signed(decode_entry(create))
        if begun is not None and begun.hash != instance:
            raise changed("a copy begins with another entry than it says")
        opened = open_parcel(Parcel(instance, (), entries), begun.entry if begun is not None else None)
    except PersonFileError:
        raise
    except InkgroveError as err:
        raise changed(f"a copy does not hold ({err.message})") from err
    return digest_record(body), opened


class ChainCheck:
    """Follows the records of one whole log: each goes on where the one before it ended.

    Of all entries only those are remembered that later ones still link to, which are few however long the log is.
    """

    def __init__(self, log: LogHeader) -> None:
        self._log = log
        self._last, self._is_ended = 0, False
        self._last_hash: bytes | None = None
        self._open: dict[int, bytes] = {}
        self._until: dict[int, list[int]] = {}
        self._count = 0

    def add(self, facts: RunFacts) -> None:
        """Take the next record; raises `file.changed` if it does not go on there."""
        self._count += facts.count
        if not self._log.is_whole:
            self._last = max(self._last, facts.last)
            return
        if facts.first != self._last + 1 or (self._last and facts.backlink != self._last_hash) or self._is_ended:
            raise changed(f"entry {facts.first} does not follow the one before it")
        for target, claimed in facts.claims:
            if self._open.get(target) != claimed:
                raise changed(f"a lipmaa link does not lead to entry {target}")
        for done in [at for at in self._until if at <= facts.last]:
            for seq_num in self._until.pop(done):
                del self._open[seq_num]
        for seq_num, entry_hash, final in facts.later:
            self._open[seq_num] = entry_hash
            self._until.setdefault(final, []).append(seq_num)
        self._last, self._last_hash, self._is_ended = facts.last, facts.last_hash, facts.is_ended

    def finish(self) -> None:
        """Raise `file.changed` if the log has not as many entries as it said."""
        if self._count != self._log.count or (self._log.is_whole and self._last != self._log.height):
            raise changed("a log has not as many entries as it says")

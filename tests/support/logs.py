"""Builds signed logs for tests, with deterministic keys."""

from inkgrove.core import (
    Entry,
    Flavour,
    Hash,
    HeldEntry,
    SecretKey,
    SignedEntry,
    has_lipmaa_link,
    hash_entry,
    hash_yamf,
    lipmaa,
    sign_entry,
    verify_signed,
)


def key(number: int) -> SecretKey:
    """The test key of that number."""
    return SecretKey.from_seed(bytes([number]) * 32 if number < 256 else number.to_bytes(32, "big"))


class LogBuilder:
    """A log that grows by `append`; every entry can be overridden to build a wrong one."""

    def __init__(self, secret: SecretKey | None = None, log_id: int = 1, flavour: Flavour = Flavour.YAMF) -> None:
        self.secret = secret or key(1)
        self.log_id = log_id
        self.flavour = flavour
        self.entries: list[Entry] = []
        self.payloads: list[bytes] = []

    def append(
        self,
        payload: bytes | None = None,
        *,
        backlink: Hash | None = None,
        lipmaa_link: Hash | None = None,
        is_end_of_log: bool = False,
    ) -> Entry:
        """Sign the next entry; links can be forged."""
        seq_num = len(self.entries) + 1
        content = f"payload {seq_num}".encode() if payload is None else payload
        entry = sign_entry(
            self.secret,
            content,
            log_id=self.log_id,
            seq_num=seq_num,
            lipmaa_link=lipmaa_link or (self.hash(lipmaa(seq_num)) if has_lipmaa_link(seq_num) else None),
            backlink=backlink or (self.hash(seq_num - 1) if seq_num > 1 else None),
            is_end_of_log=is_end_of_log,
            flavour=self.flavour,
        )
        self.entries.append(entry)
        self.payloads.append(content)
        return entry

    def grow(self, count: int) -> "LogBuilder":
        """Append `count` entries with small payloads."""
        for _ in range(count):
            self.append()
        return self

    def fork_at(self, seq_num: int) -> "LogBuilder":
        """Another log that shares the entries before `seq_num` and differs from there on."""
        branch = LogBuilder(self.secret, self.log_id, self.flavour)
        branch.entries, branch.payloads = self.entries[: seq_num - 1], self.payloads[: seq_num - 1]
        branch.append(f"branch at {seq_num}".encode())
        return branch

    def entry(self, seq_num: int) -> Entry:
        return self.entries[seq_num - 1]

    def hash(self, seq_num: int) -> Hash:
        return hash_entry(self.entry(seq_num))

    def signed(self, *seq_nums: int) -> list[SignedEntry]:
        """The entries as signed ones, all of them unless some are named."""
        return [verify_signed(self.entry(n)) for n in seq_nums or range(1, len(self.entries) + 1)]

    def held(self, *seq_nums: int, payloads: bool = True) -> list[HeldEntry]:
        """The entries as held ones, all of them unless some are named."""
        numbers = seq_nums or range(1, len(self.entries) + 1)
        return [HeldEntry(verify_signed(self.entry(n)), self.payloads[n - 1] if payloads else None) for n in numbers]


def sparse_log(secret: SecretKey, count: int) -> list[Entry]:
    """A log of which only entries 1, 4, 13, 40, ... are there, each linked to the one before: few, and very high."""
    entries: list[Entry] = []
    for power in range(1, count + 1):
        seq_num = (3**power - 1) // 2
        before, missing = (hash_entry(entries[-1]), hash_yamf(b"not here")) if entries else (None, None)
        signed = sign_entry(secret, b"sparse", log_id=1, seq_num=seq_num, lipmaa_link=before, backlink=missing)
        entries.append(signed)
    return entries


def resign(secret: SecretKey, encoded: bytes) -> bytes:
    """Entry bytes with a fresh signature over whatever stands before it."""
    unsigned = encoded[:-64]
    return unsigned + secret.sign(unsigned)

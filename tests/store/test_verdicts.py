"""Whatever arrives in whatever order, the store's verdicts are those of `verify_log` on what it accepted."""

import random
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inkgrove.core import (
    Entry,
    HeldEntry,
    SecretKey,
    decode_entry,
    hash_entry,
    linking_to,
    lipmaa,
    verify_log,
    verify_signed,
)
from inkgrove.store.logs import IngestStatus, LogStore, LogValidity, find_fork_proof, find_log, open_store, read_entries
from tests.support.logs import LogBuilder, resign
from tests.support.templates import copy_empty_store
from tests.support.tiers import amount

_AUTHORS = count(1)
Offer = tuple[Entry, bytes | None]


def _grow(rng: random.Random, log: LogBuilder, height: int) -> None:
    while len(log.entries) < height:
        log.append(rng.randbytes(4), is_end_of_log=rng.random() < 0.02)
        if rng.random() < 0.03:
            entry = log.entries[-1]
            wrong = bytearray(entry.encoded)
            wrong[-64 - len(entry.payload_hash) - 1] += 1
            log.entries[-1] = decode_entry(resign(log.secret, bytes(wrong)))


def make_offers(rng: random.Random) -> list[Offer]:
    """Entries of one new log with branches: some missing, some twice, some with no payload or a wrong one."""
    log = LogBuilder(SecretKey.from_seed(next(_AUTHORS).to_bytes(32, "big")))
    _grow(rng, log, rng.choice([1, 3, 9, 20, 45]))
    lines = [log]
    for _ in range(rng.choice([0, 0, 1, 2])):
        line = rng.choice(lines)
        branch = line.fork_at(rng.randint(1, len(line.entries)))
        _grow(rng, branch, len(branch.entries) + rng.randint(0, 6))
        lines.append(branch)
    held = rng.choice([1.0, 0.9, 0.4])
    offers: list[Offer] = []
    for line in lines:
        for entry, payload in zip(line.entries, line.payloads, strict=True):
            if rng.random() < held or lipmaa(entry.seq_num) in (0, 1, 4, 13):
                offers.append((entry, rng.choice([payload, payload, None, b"rubbish"])))
                if rng.random() < 0.2:
                    offers.append((entry, payload))
    return offers


@pytest.mark.parametrize("order", ["any", "mostly ascending"])
def test_verdicts_equal_those_on_the_accepted_set(store: LogStore, order: str) -> None:
    @settings(max_examples=amount(20, 60), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        rng = random.Random(seed)
        offers = make_offers(rng)
        if order == "any":
            rng.shuffle(offers)
        else:
            offers.sort(key=lambda offer: offer[0].seq_num + rng.choice([0, 0, 0, 5]))
        accepted: dict[bytes, HeldEntry] = {}
        while offers:
            size = rng.choice([1, 2, 5, 100])
            batch, offers = offers[:size], offers[size:]
            for offer, receipt in zip(batch, store.ingest(batch), strict=True):
                assert receipt.hash is not None
                if receipt.status is not IngestStatus.REFUSED:
                    _accept(accepted, receipt.hash, *offer)
        if accepted:
            _compare(store, list(accepted.values()))

    check()


def _accept(accepted: dict[bytes, HeldEntry], entry_hash: bytes, entry: Entry, payload: bytes | None) -> None:
    before = accepted.get(entry_hash)
    if payload == b"rubbish" or payload is None:
        payload = before.payload if before else None
    accepted[entry_hash] = HeldEntry(verify_signed(entry), payload)


def _compare(store: LogStore, accepted: list[HeldEntry]) -> None:
    entry = accepted[0].signed.entry
    report = verify_log(accepted, partial=True)
    state = store.read(find_log, entry.author, entry.log_id)
    assert state is not None
    standing = state.standing
    assert standing.forked_at == (report.fork.seq_num if report.fork else None)
    assert standing.lied_at == report.wrong_size
    assert state.invalid_from == report.invalid_from
    stored = store.read(read_entries, entry.author, entry.log_id)
    assert {(item.hash, item.payload) for item in stored} == {(item.signed.hash, item.payload) for item in accepted}
    assert {item.hash for item in stored if item.refusal is None} == {item.hash for item in report.verified.values()}
    for item in stored:
        if report.invalid_from is not None and item.entry.seq_num >= report.invalid_from:
            is_forked = report.fork is not None and item.entry.seq_num >= report.fork.seq_num
            assert item.refusal == ("log.forked" if is_forked else "log.invalid-since")
    assert state.height == max(item.entry.seq_num for item in stored)
    assert state.held == len(stored)
    proof = store.read(find_fork_proof, entry.author, entry.log_id)
    assert (proof.seq_num if proof else None) == standing.forked_at


def test_batches_keep_what_entries_one_by_one_keep(store: LogStore, tmp_path: Path) -> None:
    plain = open_store(copy_empty_store(tmp_path / "plain"))

    @settings(max_examples=amount(40, 200), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        rng = random.Random(seed)
        offers = make_offers(rng)
        rng.shuffle(offers)
        part = len(offers) // 3
        # Within a batch items are taken by sequence number.
        rest = sorted(offers[part:], key=lambda offer: (offer[0].seq_num, hash_entry(offer[0])))
        for offer in (*offers[:part], *rest):
            plain.ingest([offer])
        for offer in offers[:part]:
            store.ingest([offer])
        for at in range(0, len(rest), 3):
            store.ingest(rest[at : at + 3])
        author, log_id = offers[0][0].author, offers[0][0].log_id
        found, expected = (
            (one.read(find_log, author, log_id), one.read(read_entries, author, log_id)) for one in (store, plain)
        )
        assert (found[0] is None) == (expected[0] is None)
        if found[0] is not None and expected[0] is not None:
            assert found[0].standing == expected[0].standing
        assert {(item.hash, item.payload) for item in found[1]} == {(item.hash, item.payload) for item in expected[1]}

    check()
    plain.close()


def test_fork_that_moves_down_inside_a_batch_lets_the_rest_be_kept(store: LogStore) -> None:
    log = LogBuilder(SecretKey.from_seed(next(_AUTHORS).to_bytes(32, "big"))).grow(9)
    late, early = log.fork_at(8).grow(1), log.fork_at(2).grow(1)
    store.ingest(list(zip(log.entries, log.payloads, strict=True)))
    store.ingest([(late.entries[7], late.payloads[7])])
    # Both lie below the fork that is known; the first of them moves it to entry 2.
    receipts = store.ingest([(early.entries[1], early.payloads[1]), (early.entries[2], early.payloads[2])])
    assert [receipt.status for receipt in receipts] == [IngestStatus.EVIDENCE] * 2


def test_generator_makes_every_kind_of_log(store: LogStore) -> None:
    seen: set[str] = set()
    for seed in range(60):
        rng = random.Random(seed)
        offers = make_offers(rng)
        rng.shuffle(offers)
        receipts = store.ingest(offers)
        state = store.read(find_log, offers[0][0].author, 1)
        standing = state.standing if state else LogValidity()
        seen |= {receipt.error.code for receipt in receipts if receipt.error}
        seen |= {name for name in LogValidity.__slots__ if getattr(standing, name) is not None}
    assert seen >= {
        "forked_at", "lied_at", "ended_at", "log.forked", "log.invalid-since", "entry.after-end-of-log",
        "entry.no-path-to-first", "payload.size-mismatch", "payload.hash-mismatch",
    }  # fmt: skip


def test_entries_that_link_to_a_place_are_all_found() -> None:
    linking: dict[int, set[int]] = {n: {n + 1} for n in range(1, 400)}
    for n in range(2, 400):
        linking[lipmaa(n)].add(n)
    for n in range(1, 400):
        assert sorted(linking_to(n, 399)) == sorted(m for m in linking[n] if m <= 399), n

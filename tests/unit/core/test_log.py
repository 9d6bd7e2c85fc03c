"""Links, paths, pools, forks and payloads: what a set of entries of one log is worth."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inkgrove.core import (
    HeldEntry,
    LogReport,
    VerifiedEntry,
    certificate_pool,
    decode_entry,
    find_fork,
    find_next_entry,
    hash_yamf,
    lipmaa,
    list_claims,
    shortest_path,
    union_of_pools,
    verify_entry,
    verify_fork_proof,
    verify_log,
    verify_payload,
    verify_signed,
)
from inkgrove.core.errors import AfterEndOfLog, InkgroveError, MissingLink, PayloadHashMismatch, PayloadSizeMismatch
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key, resign


def verified(log: LogBuilder) -> dict[int, VerifiedEntry]:
    return verify_log(log.held()).verified


def codes(report: LogReport) -> list[str]:
    return ["ok" if isinstance(v, VerifiedEntry) else v.code for v in report.verdicts]


def test_entry_verifies_with_either_link_or_both() -> None:
    log = LogBuilder().grow(8)
    done = verified(log)
    for links in ({"backlink": done[7]}, {"lipmaa_link": done[4]}, {"backlink": done[7], "lipmaa_link": done[4]}):
        assert verify_entry(log.entry(8), **links).hash == log.hash(8)
    assert verify_entry(log.entry(1)).entry == log.entry(1)
    # Where lipmaa(n) = n - 1 the backlink serves for both.
    assert verify_entry(log.entry(3), lipmaa_link=done[2]).hash == log.hash(3)


def test_entry_without_a_held_link_has_no_path() -> None:
    with raises("entry.no-path-to-first"):
        verify_entry(LogBuilder().grow(2).entry(2))


def test_link_target_must_be_of_the_same_log_and_the_right_place() -> None:
    log = LogBuilder().grow(8)
    done, others = verified(log), verified(LogBuilder(key(2)).grow(8))
    with raises("entry.wrong-link-target"):
        verify_entry(log.entry(8), backlink=others[7])
    with raises("entry.wrong-link-target"):
        verify_entry(log.entry(8), backlink=done[6])
    with raises("entry.wrong-link-target"):
        verify_entry(log.entry(8), backlink=done[7], lipmaa_link=done[5])


def test_wrong_links_have_their_codes() -> None:
    log, branch = LogBuilder().grow(8), LogBuilder(log_id=1)
    branch.append(b"another start")
    branch.grow(7)
    with raises("entry.backlink-mismatch"):
        verify_entry(log.entry(8), backlink=verified(branch)[7])
    with raises("entry.lipmaa-mismatch"):
        verify_entry(log.entry(8), lipmaa_link=verified(branch)[4])


def test_entry_after_end_of_log_is_refused() -> None:
    log = LogBuilder()
    log.append(is_end_of_log=True)
    done = verified(log)
    log.append()
    with pytest.raises(AfterEndOfLog):
        verify_entry(log.entry(2), backlink=done[1])
    with raises("log.ended"):
        find_next_entry(done)


def test_next_entry_carries_both_links() -> None:
    log = LogBuilder().grow(7)
    place = find_next_entry(verified(log))
    assert (place.author, place.log_id, place.seq_num) == (log.secret.public, 1, 8)
    assert (place.lipmaa_link, place.backlink) == (log.hash(4), log.hash(7))
    without_four = {n: entry for n, entry in verified(log).items() if n != 4}
    with pytest.raises(MissingLink):
        find_next_entry(without_four)


def test_payload_is_checked_by_hash_first_and_then_by_size() -> None:
    log = LogBuilder().grow(1)
    entry = log.entry(1)
    assert verify_payload(entry, b"payload 1") == b"payload 1"
    with pytest.raises(PayloadHashMismatch):
        verify_payload(entry, b"payload")
    lie = bytearray(entry.encoded)
    lie[35] += 1
    with pytest.raises(PayloadSizeMismatch):
        verify_payload(decode_entry(resign(log.secret, bytes(lie))), b"payload 1")


def test_shortest_path_jumps_where_it_can() -> None:
    assert shortest_path(23, 1) == [23, 22, 21, 17, 13, 4, 1]
    assert shortest_path(40, 23) == [40, 39, 26, 25, 24, 23]
    assert shortest_path(1, 1) == [1]
    for start, target in ((1, 2), (3, 0)):
        with raises("entry.zero-seq-num"):
            shortest_path(start, target)


def test_certificate_pool_of_23() -> None:
    assert certificate_pool(23) == [1, 4, 13, 17, 21, 22, 23, 24, 25, 26, 39, 40]
    assert certificate_pool(23, height=25) == [1, 4, 13, 17, 21, 22, 23, 24, 25]
    assert union_of_pools([2, 23], height=25) == [1, 2, 3, 4, 13, 17, 21, 22, 23, 24, 25]


@given(st.integers(1, 10**15))
def test_pool_is_logarithmic_and_connected(n: int) -> None:
    pool = certificate_pool(n)
    assert len(pool) <= 6 * (n.bit_length() + 2)
    for member in pool[1:]:
        assert lipmaa(member) in pool or member - 1 in pool


@given(st.integers(1, 121), st.integers(1, 121))
def test_two_pools_contain_a_link_path_between_their_entries(a: int, b: int) -> None:
    low, high = sorted((a, b))
    union = set(certificate_pool(low)) | set(certificate_pool(high))
    reached, frontier = {high}, [high]
    while frontier:
        n = frontier.pop()
        for target in (n - 1, lipmaa(n)):
            if target in union and target not in reached and target >= low:
                reached.add(target)
                frontier.append(target)
    assert low in reached


def test_every_pair_of_pools_of_conflicting_entries_shows_the_fork() -> None:
    """A log forked at 5: whichever entry of either branch two readers hold, their pools contradict each other."""
    height = 121
    left = LogBuilder().grow(height)
    right = left.fork_at(5)
    right.grow(height - 5)
    claims: list[dict[int, set[tuple[int, bytes]]]] = [
        {signed.entry.seq_num: set(list_claims(signed)) for signed in log.signed()} for log in (left, right)
    ]
    pools = [
        {x: set().union(*(claims[side][n] for n in certificate_pool(x, height))) for x in range(5, height + 1)}
        for side in (0, 1)
    ]
    for x, y in product(range(5, height + 1), repeat=2):
        together: dict[int, bytes] = {}
        forked = {seq for seq, claimed in pools[0][x] | pools[1][y] if together.setdefault(seq, claimed) != claimed}
        assert forked, (x, y)
        assert min(forked) >= 5, (x, y)


def test_fork_proof_is_found_and_checked() -> None:
    log = LogBuilder().grow(6)
    branch = log.fork_at(3)
    proof = find_fork([*log.signed(), *branch.signed(3)])
    assert proof is not None
    assert proof.seq_num == 3
    assert verify_fork_proof(proof.first, proof.second) == proof
    with raises("log.not-a-fork"):
        verify_fork_proof(*log.signed(2, 3))
    with raises("log.not-a-fork"):
        verify_fork_proof(log.signed(1)[0], LogBuilder(log_id=2).grow(1).signed(1)[0])


def test_wrong_link_alone_is_a_fork_at_its_target() -> None:
    log = LogBuilder().grow(3)
    log.append(lipmaa_link=hash_yamf(b"elsewhere"))
    proof = find_fork(log.signed())
    assert proof is not None
    assert proof.seq_num == 1


def test_log_is_invalid_from_the_earlier_of_fork_and_lie() -> None:
    log = LogBuilder().grow(6)
    branch = log.fork_at(5)
    report = verify_log([*log.held(), *branch.held(5)])
    assert (report.invalid_from, sorted(report.verified)) == (5, [1, 2, 3, 4])
    lie = LogBuilder().grow(2)
    wrong = bytearray(LogBuilder().grow(3).entry(3).encoded)
    wrong[101] += 1
    lie.entries.append(decode_entry(resign(lie.secret, bytes(wrong))))
    lie.payloads.append(b"payload 3")
    lie.grow(1)
    report = verify_log(lie.held())
    assert report.invalid_from == 3
    assert codes(report) == ["ok", "ok", "payload.size-mismatch", "log.invalid-since"]
    # Without the payload the lie does not show.
    assert codes(verify_log(lie.held(payloads=False))) == ["ok"] * 4


def test_partial_log_needs_a_path_and_a_whole_log_every_entry() -> None:
    log = LogBuilder().grow(13)
    assert codes(verify_log(log.held(1, 4, 13), partial=True)) == ["ok", "ok", "ok"]
    assert codes(verify_log(log.held(1, 4, 13))) == ["ok", "log.missing-predecessor", "log.missing-predecessor"]
    assert codes(verify_log(log.held(4, 13), partial=True)) == ["entry.no-path-to-first"] * 2


def test_empty_log_is_fine() -> None:
    assert verify_log([]) == LogReport([], {}, None, None)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.integers(1, 30), st.booleans())
def test_verdict_does_not_depend_on_the_order(rng: random.Random, height: int, fork: bool) -> None:
    log = LogBuilder().grow(height)
    held = log.held()
    if fork:
        at = rng.randint(1, height)
        held += log.fork_at(at).grow(2).held(at, at + 1)
    expected = {item.signed.hash: code for item, code in zip(held, codes(verify_log(held)), strict=True)}
    rng.shuffle(held)
    assert {item.signed.hash: code for item, code in zip(held, codes(verify_log(held)), strict=True)} == expected


MUTATIONS = {
    "entry.bad-tag": lambda e, s: resign(s, bytes([2]) + e.encoded[1:]),
    "entry.bad-signature": lambda e, s: e.encoded[:-1] + bytes([e.encoded[-1] ^ 128]),
    "entry.truncated": lambda e, s: e.encoded[:-7],
    "entry.trailing-bytes": lambda e, s: e.encoded + b"\1",
    "entry.backlink-mismatch": lambda e, s: resign(
        s, e.encoded.replace(e.backlink, hash_yamf(b"forged")) if e.backlink else b""
    ),
    "entry.lipmaa-mismatch": lambda e, s: resign(
        s, e.encoded.replace(e.lipmaa_link, hash_yamf(b"forged")) if e.lipmaa_link else b""
    ),
}


@settings(max_examples=150)
@given(st.integers(2, 45), st.data(), st.sampled_from(sorted(MUTATIONS)))
def test_every_mutation_of_a_valid_log_is_caught_with_its_code(height: int, data: st.DataObject, code: str) -> None:
    log = LogBuilder().grow(height)
    seq_num = data.draw(st.integers(2, height))
    entry = log.entry(seq_num)
    if code == "entry.lipmaa-mismatch" and entry.lipmaa_link is None:
        return
    mutated = MUTATIONS[code](entry, log.secret)
    held, verdict = [], None
    for item in log.held():
        if item.signed.entry.seq_num != seq_num:
            held.append(item)
            continue
        try:
            held.append(HeldEntry(verify_signed(decode_entry(mutated))))
        except InkgroveError as error:
            verdict = error.code
    report = verify_log(held)
    by_seq = {item.signed.entry.seq_num: result for item, result in zip(held, codes(report), strict=True)}
    assert by_seq.pop(seq_num, verdict) == code
    # Nothing behind it counts; what stands before the first contradicted entry still does.
    assert all(by_seq[n] != "ok" for n in range(seq_num + 1, height + 1))
    first_bad = report.invalid_from or seq_num
    assert all(by_seq[n] == "ok" for n in range(1, min(first_bad, seq_num)))

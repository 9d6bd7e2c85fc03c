"""Other people's vectors: bamboo-rs, varu64, lipmaa, RFC 8949, Wycheproof, ed25519-speccheck, p2panda."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import (
    Entry,
    Hash,
    PublicKey,
    SecretKey,
    decode_entry,
    decode_varu64,
    encode_varu64,
    has_lipmaa_link,
    hash_entry,
    lipmaa,
    sign_entry,
    verify_signature,
)
from inkgrove.core.errors import BadSignature, InkgroveError, VarU64Error
from inkgrove.messages import cbor, decode_message
from tests.support.command import inkgrove
from tests.support.ed25519_by_hand import holds_strictly

Published = Callable[[str], Any]

BAMBOO = {"0040": "bamboo_blake2b_test_vectors.json", "0020": "bamboo_blake3_yasmf_test_vectors.json"}


def test_varu64(published: Published) -> None:
    vectors = published("varu64.json")
    for number, encoded in vectors["valid"]:
        assert encode_varu64(int(number)).hex() == encoded
        assert decode_varu64(bytes.fromhex(encoded)) == (int(number), len(encoded) // 2)
    for encoded in vectors["invalid"]:
        with pytest.raises(VarU64Error):
            decode_varu64(bytes.fromhex(encoded))


def test_lipmaa(published: Published) -> None:
    vectors = published("lipmaa.json")
    for n, target in vectors["pairs"]:
        assert lipmaa(n) == target
    assert [n for n in range(1, 21) if has_lipmaa_link(n)] == vectors["skip_seqs_up_to_20"]


def link(header: str, value: dict[str, str] | None) -> Hash | None:
    return None if value is None else Hash(bytes.fromhex(header + next(iter(value.values()))))


@pytest.mark.parametrize("header", BAMBOO)
def test_bamboo_entries_decode_verify_and_are_signed_alike(published: Published, header: str) -> None:
    vectors = published(BAMBOO[header])
    cases = [vectors["validFirstEntry"], *vectors["fiveValidEntries"]["entries"]]
    cases += vectors["valid_partial_replicated_seq_100"]["entries"]
    secret = SecretKey.from_seed(bytes.fromhex(vectors["validFirstEntry"]["author"]["secret"]))
    for case in cases:
        entry, wanted = decode_entry(bytes.fromhex(case["encoded"])), case["decoded"]
        assert entry == Entry(
            bytes.fromhex(case["encoded"]),
            wanted["isEndOfFeed"],
            PublicKey(bytes.fromhex(wanted["author"])),
            wanted["logId"],
            wanted["seqNum"],
            link(header, wanted["lipmaaLink"]),
            link(header, wanted["backlink"]),
            wanted["payloadSize"],
            Hash(bytes.fromhex(header + next(iter(wanted["payloadHash"].values())))),
        )
        assert entry.signature.hex() == wanted["sig"]
        if "payload" in case:
            again = sign_entry(
                secret,
                bytes.fromhex(case["payload"]),
                log_id=entry.log_id,
                seq_num=entry.seq_num,
                lipmaa_link=entry.lipmaa_link,
                backlink=entry.backlink,
                flavour=entry.flavour,
            )
            assert again == entry


@pytest.mark.parametrize("header", BAMBOO)
def test_log_verify_gives_the_right_verdict_on_every_bamboo_vector(
    published: Published, header: str, tmp_path: Path
) -> None:
    vectors = published(BAMBOO[header])
    logs = {
        "first": ([vectors["validFirstEntry"]], False),
        "whole": (vectors["fiveValidEntries"]["entries"], False),
        "partial": (vectors["valid_partial_replicated_seq_100"]["entries"], True),
    }
    for name, (cases, is_partial) in logs.items():
        file = tmp_path / f"{name}.jsonl"
        lines = [{"entry": case["encoded"], "payload": case.get("payload")} for case in cases]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = inkgrove("log", "verify", str(file), *(["--partial"] if is_partial else []))
        verdicts = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 0, verdicts
        assert [verdict["seq_num"] for verdict in verdicts] == [case["decoded"]["seqNum"] for case in cases]
        assert verdicts[0]["hash"] == str(hash_entry(decode_entry(bytes.fromhex(cases[0]["encoded"]))))
        if is_partial:
            whole = inkgrove("log", "verify", str(file))
            assert whole.returncode == 1
            assert "log.missing-predecessor" in whole.stdout


def is_accepted(key: str, message: str, signature: str) -> bool:
    try:
        verify_signature(PublicKey(bytes.fromhex(key)), bytes.fromhex(message), bytes.fromhex(signature))
    except BadSignature:
        return False
    return True


def test_ed25519_speccheck_accepts_only_what_the_strict_rule_accepts(published: Published) -> None:
    cases = published("ed25519-speccheck/cases.json")
    accepted = [is_accepted(case["pub_key"], case["message"], case["signature"]) for case in cases]
    # Number 3 mixes torsion into A and R of full order, with canonical encodings, and the equation holds as it is.
    assert [number for number, is_good in enumerate(accepted) if is_good] == [3]
    assert len(cases) == 12


def test_all_published_ed25519_verdicts_hold(published: Published) -> None:
    """The verdict that counts, of the library and of the rule as docs/protocol.md section 2.8 has it."""
    cases = published("ed25519_strict_verdicts.json")
    for case in cases:
        key, message, signature = case["key"], case["msg"], case["sig"]
        assert is_accepted(key, message, signature) == case["accepted"], (case["suite"], case["id"])
        by_hand = holds_strictly(*map(bytes.fromhex, (key, message, signature)))
        assert by_hand == case["accepted"], (case["suite"], case["id"])
    assert Counter(case["accepted"] for case in cases) == {True: 48, False: 1078}


def test_wycheproof_ed25519(published: Published) -> None:
    count = 0
    for group in published("wycheproof/ed25519_test.json")["testGroups"]:
        for case in group["tests"]:
            good = is_accepted(group["publicKey"]["pk"], case["msg"], case["sig"])
            assert good == (case["result"] == "valid"), case["tcId"]
            count += 1
    assert count == 151


REFUSED_BY_PROFILE = {
    "c249010000000000000000": "cbor.bignum",
    "c349010000000000000000": "cbor.bignum",
    "f97c00": "cbor.not-finite",
    "f97e00": "cbor.not-finite",
    "f9fc00": "cbor.not-finite",
    "fa7f800000": "cbor.not-finite",
    "fa7fc00000": "cbor.not-finite",
    "faff800000": "cbor.not-finite",
    "fb7ff0000000000000": "cbor.not-finite",
    "fb7ff8000000000000": "cbor.not-finite",
    "fbfff0000000000000": "cbor.not-finite",
    "f7": "cbor.undefined",
    "f0": "cbor.simple-value",
    "f818": "cbor.simple-value",
    "f8ff": "cbor.simple-value",
    "d74401020304": "cbor.forbidden-tag",
    "d818456449455446": "cbor.forbidden-tag",
    "d82076687474703a2f2f7777772e6578616d706c652e636f6d": "cbor.forbidden-tag",
    "a201020304": "cbor.key-not-text",
}


def test_rfc_8949_appendix_a(published: Published) -> None:
    for case in published("cbor/appendix_a.json"):
        data = bytes.fromhex(case["hex"])
        is_indefinite = not case["roundtrip"] and case["hex"] not in REFUSED_BY_PROFILE
        wanted = "cbor.indefinite-length" if is_indefinite else REFUSED_BY_PROFILE.get(case["hex"])
        if wanted is not None:
            with pytest.raises(InkgroveError) as caught:
                cbor.decode(data)
            assert caught.value.code == wanted, case
            continue
        value = cbor.decode(data)
        if "decoded" in case:
            assert repr(value) == repr(case["decoded"])
        if case["hex"][:2] not in ("c0", "c1"):  # timestamps are rewritten as tag 0 in UTC
            assert cbor.encode(value) == data


def test_p2panda_payloads_are_cbor_but_no_messages_of_ours(published: Published) -> None:
    codes = []
    for case in published("p2panda_cbor_vectors.json"):
        with pytest.raises(InkgroveError) as caught:
            decode_message(bytes.fromhex(case["hex"]))
        codes.append(caught.value.code)
    assert codes == [
        "message.unknown-kind",
        "message.unknown-kind",
        "message.not-a-map",
        "message.not-a-map",
        "message.not-a-map",
        "message.not-a-map",
        "cbor.duplicate-key",
        "cbor.trailing-bytes",
    ]

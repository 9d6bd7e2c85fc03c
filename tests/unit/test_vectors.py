"""Every file under tests/vectors/{valid,invalid} gets the verdict it states."""

import json
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import HeldEntry, VerifiedEntry, decode_entry, verify_log, verify_signed
from inkgrove.core.errors import CODES, InkgroveError
from inkgrove.messages import cbor, decode_message, encode_message
from inkgrove.messages.yaml_form import parse_messages

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "tests" / "vectors").glob("*valid/*.json"))


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


LOGS = [path for path in CASES if load(path)["form"] == "log"]
MESSAGES = [path for path in CASES if load(path)["form"] == "message"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_log_vector_gets_its_verdicts(path: Path) -> None:
    case = load(path)
    verdicts: dict[int, str] = {}
    logs: dict[tuple[bytes, int], dict[int, HeldEntry]] = {}
    for number, line in enumerate(case["lines"]):
        payload = line["payload"]
        try:
            signed = verify_signed(decode_entry(bytes.fromhex(line["entry"])))
        except InkgroveError as error:
            verdicts[number] = error.code
            continue
        held = HeldEntry(signed, None if payload is None else bytes.fromhex(payload))
        logs.setdefault((signed.entry.author, signed.entry.log_id), {})[number] = held
    for log in logs.values():
        report = verify_log(log.values(), partial=case["partial"])
        for number, verdict in zip(log, report.verdicts, strict=True):
            verdicts[number] = "ok" if isinstance(verdict, VerifiedEntry) else verdict.code
    assert [verdicts[number] for number in range(len(case["lines"]))] == case["verdicts"]


@pytest.mark.parametrize("path", MESSAGES, ids=lambda path: path.stem)
def test_message_vector_gets_its_verdict(path: Path) -> None:
    case = load(path)
    payload = bytes.fromhex(case["payload"])
    if "same_as" in case:
        canonical = bytes.fromhex(case["same_as"])
        message = decode_message(payload)
        assert cbor.decode_strictly(payload) == cbor.decode(payload) == cbor.decode(canonical)
        assert message == decode_message(canonical)
        assert encode_message(message) == canonical != payload
    elif case["verdict"] == "ok":
        message = decode_message(payload)
        assert encode_message(message) == payload
        assert parse_messages(case["yaml"]) == [message]
    else:
        with pytest.raises(InkgroveError) as caught:
            decode_message(payload)
        assert caught.value.code == case["verdict"]


# Raised by functions that take values, not bytes from outside, or for more bytes than any message has; each has a unit
# test of its own.
NO_VECTOR = {
    "cbor.too-complex",
    "entry.missing-link",
    "entry.unexpected-link",
    "entry.wrong-link-target",
    "hash.bad-text",
    "log.ended",
    "log.key-revoked",
    "log.other-branch",
    "log.not-a-fork",
    "log.stale",
    "message.too-large",
    "varu64.out-of-range",
}


def test_every_code_about_bytes_from_outside_has_a_vector() -> None:
    families = ("varu64.", "hash.", "entry.", "log.", "payload.", "cbor.", "message.")
    shown = {code for path in LOGS for code in load(path)["verdicts"]} | {load(path)["verdict"] for path in MESSAGES}
    missing = {code for code in CODES if code.startswith(families)} - shown
    assert missing == NO_VECTOR

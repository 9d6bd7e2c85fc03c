"""The strict Ed25519 rule is held by verdicts: a library that comes to others is not used at all."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from inkgrove.core import RULE_CASES, PublicKey, RuleCase, require_strict_rule, verify_signature
from inkgrove.core.errors import BadSignature
from tests.support.ed25519_by_hand import holds_strictly, holds_with_the_cofactor
from tests.support.errors import raises

ROOT = Path(__file__).resolve().parents[3]
CASES = {case["name"]: case for case in json.loads((ROOT / "tests" / "vectors" / "ed25519.json").read_text())}
# As if a later libsodium verified with the cofactor.
LENIENT = """
import nacl.bindings, nacl.exceptions
from tests.support.ed25519_by_hand import holds_with_the_cofactor

def crypto_sign_open(signed, key):
    if not holds_with_the_cofactor(bytes(key), signed[64:], signed[:64]):
        raise nacl.exceptions.BadSignatureError("Signature was forged or corrupt")
    return signed[64:]

nacl.bindings.crypto_sign_open = crypto_sign_open
"""


def is_accepted(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        verify_signature(PublicKey(key), message, signature)
    except BadSignature:
        return False
    return True


def parts(case: dict[str, str]) -> tuple[bytes, bytes, bytes]:
    return tuple(bytes.fromhex(case[name]) for name in ("key", "message", "signature"))  # type: ignore[return-value]


@pytest.mark.parametrize("name", CASES)
def test_crafted_signature_gets_the_verdict_of_the_strict_rule(name: str) -> None:
    case = CASES[name]
    assert is_accepted(*parts(case)) == case["accepted"] == holds_strictly(*parts(case))


def test_cases_tell_the_rule_with_the_cofactor_apart() -> None:
    differing = {name for name, case in CASES.items() if holds_with_the_cofactor(*parts(case)) != case["accepted"]}
    assert differing == {"mixed-key", "mixed-r"}
    assert all(CASES[name]["accepted_with_the_cofactor"] for name in differing)


def test_what_is_asked_of_the_library_is_among_the_vectors() -> None:
    for case in RULE_CASES:
        assert case == RuleCase(case.name, *parts(CASES[case.name]), CASES[case.name]["accepted"])


def test_rule_as_it_is_written_passes() -> None:
    require_strict_rule(holds_strictly)


@pytest.mark.parametrize(
    ("verify", "case"),
    [
        (holds_with_the_cofactor, "mixed-key"),
        (lambda *_: False, "ordinary"),
        (lambda key, *rest: not key.startswith(b"\xd8") and holds_strictly(key, *rest), "mixed-key-that-holds"),
        (lambda *given: given == parts(CASES["s-plus-l"]) or holds_strictly(*given), "s-plus-l"),
    ],
)
def test_library_with_another_rule_is_refused(verify: Callable[[bytes, bytes, bytes], bool], case: str) -> None:
    with raises("key.unfit-library") as caught:
        require_strict_rule(verify)
    assert caught.value.data == {"case": case}


@pytest.mark.parametrize("loads", ["import inkgrove.core.keys", "import inkgrove.core.verify"])
def test_package_does_not_load_with_a_library_that_verifies_with_the_cofactor(loads: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{LENIENT}\n{loads}"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "KeysError: the installed libsodium does not verify Ed25519 by the strict rule" in done.stderr


def test_command_says_what_to_do_about_such_a_library() -> None:
    program = f"{LENIENT}\nfrom inkgrove.cli.start import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "--help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: the installed libsodium")
    assert done.stderr.endswith("Install the version of PyNaCl that constraints.txt names. [key.unfit-library]\n")

"""Whether a library verifies Ed25519 by the strict rule of docs/protocol.md section 2.8: held by verdicts, not by name.

A library that multiplies the equation by the cofactor accepts more signatures. A node with it would take entries that
all others refuse, so it must not verify a single one. scripts/ed25519_cases.py made these cases; tests/vectors has all.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from inkgrove.core.errors import KeysError


class RuleCase(NamedTuple):
    """A signature that tells the strict rule from another."""

    name: str
    key: bytes
    message: bytes
    signature: bytes
    is_accepted: bool


_KEY: Final = bytes.fromhex("bde22e5bd7caec4c0f895b918ce4766d9d94b7969e835e9f1d71625e4d19365e")
_MIXED_KEY: Final = bytes.fromhex("d898b9c465404dc4466b100fa4f9756da63ce9fb278b6b18737b688f425b667e")
_R: Final = bytes.fromhex("0ce58b7458a3bd0107ee4ad429297a8a9335b4c258103a75a7453945e53c6328")
_MIXED_R: Final = bytes.fromhex("04038c727e1c60791f18e4d59f04d25fe2e44feab34edea64ff47212042f62bb")


def _s(text: str) -> bytes:
    return bytes.fromhex(text)


RULE_CASES: Final = (
    RuleCase(
        "ordinary",
        _KEY,
        b"case 22",
        _R + _s("0ad6c2f6af643d4858b1c1895460306107594aded3e00014b1dfb003c4ce760e"),
        True,
    ),
    RuleCase(
        "mixed-key-that-holds",
        _MIXED_KEY,
        b"case 6",
        _R + _s("7a6cd259cc20847d60d33298c1361909d278fa14a2bea56051424e983150af0f"),
        True,
    ),
    RuleCase(
        "mixed-key",
        _MIXED_KEY,
        b"case 1",
        _R + _s("fdb871d56e2e31f24d8f22f6b68c9da08af68847d6c45aa6483baa962f83b007"),
        False,
    ),
    RuleCase(
        "mixed-r",
        _KEY,
        b"case 11",
        _MIXED_R + _s("a58cea9b1d69406b5d077146a763ef2dabd130cac2b29f8cd50942bc105bc007"),
        False,
    ),
    RuleCase(
        "s-plus-l",
        _KEY,
        b"case 22",
        _R + _s("f7a9b853cac74fa02e4eb92c335a0f7607594aded3e00014b1dfb003c4ce761e"),
        False,
    ),
    RuleCase(
        "small-order-key",
        _s("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
        b"case 1",
        _R + _s("e94b387d44948f2e81557aa4068fc4b78343fee2d5ece3bcdeaaafaab42f710c"),
        False,
    ),
    RuleCase(
        "small-order-r",
        _KEY,
        b"case 14",
        b"\1" + bytes(31) + _s("8a0d40197eb6743e8a98320560ced1d409196077b061ab1396f9b96768aa9c0f"),
        False,
    ),
)


def require_strict_rule(is_accepted: Callable[[bytes, bytes, bytes], bool]) -> None:
    """Raise `key.unfit-library` unless `is_accepted(key, message, signature)` gives the verdict of every case."""
    for case in RULE_CASES:
        if is_accepted(case.key, case.message, case.signature) != case.is_accepted:
            raise KeysError(
                "key.unfit-library",
                "the installed libsodium does not verify Ed25519 by the strict rule: it"
                f" {'refuses' if case.is_accepted else 'accepts'} the case {case.name!r}, and would come to other"
                " verdicts than all other nodes. Install the version of PyNaCl that constraints.txt names.",
                case=case.name,
            )

"""Which values fit a type and how they convert (docs/protocol.md section 4, values and conversion)."""

import pytest

from inkgrove.core import Hash
from inkgrove.messages import Timestamp
from inkgrove.messages.cbor import Value
from inkgrove.reference import UNFIT, Unfit, convert, fit
from inkgrove.schema import CHECKS, MISFIT

HASH = b"\x00\x20" + b"\x01" * 32
EPOCH = Timestamp(0)


@pytest.mark.parametrize(
    ("value", "field_type", "expected"),
    [
        ("é" * 255, "varchar", "é" * 255),
        ("é" * 256, "varchar", UNFIT),
        ("é" * 256, "text", "é" * 256),
        (b"x", "text", UNFIT),
        (2**63 - 1, "integer", 2**63 - 1),
        (-(2**63), "integer", -(2**63)),
        (2**63, "integer", UNFIT),
        (True, "integer", UNFIT),
        (1.0, "integer", UNFIT),
        (2**53, "float", 2.0**53),
        (2**53 + 1, "float", UNFIT),
        (-(2**64), "float", -(2.0**64)),
        (False, "float", UNFIT),
        (False, "boolean", False),
        (0, "boolean", UNFIT),
        (EPOCH, "timestamp", EPOCH),
        ("1970-01-01T01:00:00+0100", "timestamp", EPOCH),
        ("1970-01-01T00:00:00", "timestamp", UNFIT),
        (0, "timestamp", UNFIT),
        (HASH, "relation", Hash(HASH)),
        ("00FF", "relation", Hash(b"\x00\xff")),
        (b"", "relation", UNFIT),
        (b"x" * 67, "relation", UNFIT),
        ("zz", "relation", UNFIT),
        (1, "relation", UNFIT),
        (
            {"hash": HASH.hex(), "size": 0, "type": "image/png"},
            "blob",
            {"hash": Hash(HASH), "size": 0, "type": "image/png"},
        ),
        ({"hash": HASH[:33], "size": 0, "type": "image/png"}, "blob", UNFIT),
        ({"hash": HASH, "size": True, "type": "image/png"}, "blob", UNFIT),
        ({"hash": HASH, "size": 2**63, "type": "image/png"}, "blob", UNFIT),
        ({"hash": HASH, "size": 0, "type": "image/ png"}, "blob", UNFIT),
        ({"hash": HASH, "size": 0, "type": "a/" + "b" * 254}, "blob", UNFIT),
        ({"hash": HASH, "size": 0}, "blob", UNFIT),
        ({"hash": HASH, "size": 0, "type": "a/b", "name": "c"}, "blob", UNFIT),
        (None, "boolean", None),
        (None, "text[]", None),
        ([], "text[]", []),
        ([1, 2], "float[]", [1.0, 2.0]),
        ([1, None], "integer[]", UNFIT),
        (1, "integer[]", UNFIT),
        ([1], "integer", UNFIT),
        ([0] * 1024, "integer[]", [0] * 1024),
        ([0] * 1025, "integer[]", UNFIT),
    ],
)
def test_value_fits_its_type_in_one_form(value: Value, field_type: str, expected: Value | Unfit) -> None:
    found = fit(value, field_type)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "old", "new", "expected"),
    [
        (-5, "integer", "text", "-5"),
        ("-5", "text", "integer", -5),
        ("9223372036854775807", "text", "integer", 2**63 - 1),
        ("9223372036854775808", "text", "integer", UNFIT),
        ("-9223372036854775808", "text", "integer", -(2**63)),
        ("9" * 5000, "text", "integer", UNFIT),
        ("-0", "text", "integer", UNFIT),
        ("07", "text", "integer", UNFIT),
        ("7\n", "text", "integer", UNFIT),
        ("٣", "text", "integer", UNFIT),
        (2**53 + 1, "integer", "float", UNFIT),
        (3, "integer", "float", 3.0),
        (-0.0, "float", "integer", 0),
        (0.5, "float", "integer", UNFIT),
        (2.0**63, "float", "integer", UNFIT),
        (-(2.0**63), "float", "integer", -(2**63)),
        (True, "boolean", "text", "true"),
        ("false", "text", "boolean", False),
        ("False", "text", "boolean", UNFIT),
        (EPOCH, "timestamp", "text", "1970-01-01T00:00:00Z"),
        ("1970-01-01T00:00:00.5Z", "text", "timestamp", Timestamp(500_000)),
        ("1970-01-01T00:00:00", "text", "timestamp", UNFIT),
        ("x", "varchar", "text", "x"),
        ("x" * 256, "text", "varchar", UNFIT),
        (5, "integer", "varchar", UNFIT),
        ("5", "varchar", "integer", UNFIT),
        (1.5, "float", "text", UNFIT),
        (True, "boolean", "integer", UNFIT),
        ("x", "text", "text[]", ["x"]),
        (5, "integer", "text[]", UNFIT),
        ("x", "varchar", "text[]", UNFIT),
        (["x"], "text[]", "text", "x"),
        (["x", "y"], "text[]", "text", UNFIT),
        ([], "text[]", "text", UNFIT),
        (["5"], "text[]", "integer", UNFIT),
        (["5", "6"], "text[]", "integer[]", [5, 6]),
        (["5", "x"], "text[]", "integer[]", UNFIT),
        ([], "blob[]", "float[]", []),
        (Hash(HASH), "relation", "text", UNFIT),
        (None, "relation", "blob", None),
        (None, "text", "integer[]", None),
    ],
)
def test_value_converts_as_the_table_says(value: Value, old: str, new: str, expected: Value | Unfit) -> None:
    found = convert(value, old, new)
    assert found == expected
    assert type(found) is type(expected)


WHITE_SPACE = {*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029}
WHITE_SPACE |= {0x202F, 0x205F, 0x3000}


def test_both_folds_refuse_the_white_space_that_the_protocol_lists_in_the_type_of_a_blob() -> None:
    for number in [*range(0x3100), 0xFEFF, 0x1F995]:
        blob: Value = {"hash": HASH, "size": 0, "type": f"a{chr(number)}b/c{chr(number)}d"}
        is_refused = number in WHITE_SPACE or chr(number) == "/"
        assert (fit(blob, "blob") is UNFIT) is is_refused, hex(number)
        assert (CHECKS["blob"](blob) is MISFIT) is is_refused, hex(number)

"""Which values fit which type, and the conversion table row by row; all expectations by hand."""

from typing import Any

import pytest

from inkgrove.core import Hash, hash_yamf
from inkgrove.core.errors import BadFilter
from inkgrove.messages import Timestamp, parse_timestamp
from inkgrove.reference import Unfit, fit
from inkgrove.schema import CHECKS, CONVERSIONS, MISFIT, find_conversion
from inkgrove.store.views import cells_of, make_filter

MOMENT = parse_timestamp("2020-05-22T11:58:50Z")
PICTURE = {"hash": hash_yamf(b"picture"), "size": 7, "type": "image/png"}
M = MISFIT


@pytest.mark.parametrize(
    ("type_name", "value", "kept"),
    [
        ("varchar", "", ""),
        ("varchar", "ü" * 255, "ü" * 255),
        ("varchar", "ü" * 256, M),
        ("varchar", 1, M),
        ("varchar", b"a", M),
        ("text", "x" * 100_000, "x" * 100_000),
        ("text", MOMENT, M),
        ("integer", 0, 0),
        ("integer", 2**63 - 1, 2**63 - 1),
        ("integer", -(2**63), -(2**63)),
        ("integer", 2**63, M),
        ("integer", -(2**63) - 1, M),
        ("integer", 1.0, M),
        ("integer", True, M),
        ("integer", "1", M),
        ("float", 1.5, 1.5),
        ("float", 3, 3.0),
        ("float", 2**53, 2.0**53),
        ("float", 2**53 + 1, M),
        ("float", -(2**64), -(2.0**64)),
        ("float", 10**20, 1e20),
        ("float", 10**400, M),
        ("float", -(10**400), M),
        ("float[]", [1, 10**400], M),
        ("float", True, M),
        ("float", "1.5", M),
        ("boolean", True, True),
        ("boolean", False, False),
        ("boolean", 1, M),
        ("boolean", "true", M),
        ("timestamp", MOMENT, MOMENT),
        ("timestamp", "2020-05-22T11:58:50+0000", MOMENT),
        ("timestamp", "2020-05-22T11:58:50", M),
        ("timestamp", 1590148730, M),
        ("relation", bytes(hash_yamf(b"x")), hash_yamf(b"x")),
        ("relation", hash_yamf(b"x").hex().upper(), hash_yamf(b"x")),
        ("relation", "98" * 32, Hash(b"\x98" * 32)),
        ("relation", b"", M),
        ("relation", b"x" * 67, M),
        ("relation", "xyz", M),
        ("relation", 3, M),
        ("blob", dict(PICTURE), PICTURE),
        ("blob", {**PICTURE, "hash": hash_yamf(b"picture").hex()}, PICTURE),
        ("blob", {**PICTURE, "hash": b"\0" * 32}, M),
        ("blob", {**PICTURE, "size": -1}, M),
        ("blob", {**PICTURE, "size": True}, M),
        ("blob", {**PICTURE, "type": "png"}, M),
        ("blob", {**PICTURE, "type": "a b/c"}, M),
        ("blob", {"hash": hash_yamf(b""), "size": 1}, M),
        ("blob", {**PICTURE, "name": "x"}, M),
        ("blob", b"", M),
        ("text[]", [], []),
        ("text[]", ["a", "b"], ["a", "b"]),
        ("text[]", ["a", None], M),
        ("text[]", ["a", 1], M),
        ("text[]", "a", M),
        ("float[]", [1, 2.5], [1.0, 2.5]),
        ("integer[]", [0] * 1024, [0] * 1024),
        ("integer[]", [0] * 1025, M),
        ("timestamp[]", ["2020-05-22T11:58:50Z"], [MOMENT]),
        ("relation[]", ["ab", b"\1"], [Hash(b"\xab"), Hash(b"\1")]),
        ("blob[]", [PICTURE], [PICTURE]),
    ],
)
def test_value_against_type(type_name: str, value: Any, kept: Any) -> None:
    result = CHECKS[type_name](value)
    assert repr(result) == repr(kept)


def test_there_are_eight_types_and_their_arrays() -> None:
    scalars = {"varchar", "text", "integer", "float", "boolean", "timestamp", "relation", "blob"}
    assert set(CHECKS) == scalars | {f"{name}[]" for name in scalars}


ROWS = [
    # integer -> text, base 10
    ("integer", "text", -7, "-7"),
    ("integer", "text", 0, "0"),
    ("integer", "text", 2**63 - 1, "9223372036854775807"),
    # text -> integer: -?(0|[1-9][0-9]*), not -0, in range
    ("text", "integer", "0", 0),
    ("text", "integer", "-7", -7),
    ("text", "integer", "9223372036854775807", 2**63 - 1),
    ("text", "integer", "-9223372036854775808", -(2**63)),
    ("text", "integer", "9223372036854775808", M),
    ("text", "integer", "-0", M),
    ("text", "integer", "007", M),
    ("text", "integer", "+7", M),
    ("text", "integer", " 7", M),
    ("text", "integer", "7\n", M),
    ("text", "integer", "７", M),
    ("text", "integer", "1e3", M),
    ("text", "integer", "", M),
    ("text", "integer", "9" * 100_000, M),
    # integer -> float if exact
    ("integer", "float", 2**53, 2.0**53),
    ("integer", "float", 2**53 + 1, M),
    # float -> integer if integral and in range
    ("float", "integer", 3.0, 3),
    ("float", "integer", -0.0, 0),
    ("float", "integer", 1.5, M),
    ("float", "integer", 2.0**63, M),
    ("float", "integer", -(2.0**63), -(2**63)),
    ("float", "integer", 1e300, M),
    # boolean <-> text
    ("boolean", "text", True, "true"),
    ("boolean", "text", False, "false"),
    ("text", "boolean", "true", True),
    ("text", "boolean", "false", False),
    ("text", "boolean", "True", M),
    ("text", "boolean", "1", M),
    # timestamp <-> text
    ("timestamp", "text", MOMENT, "2020-05-22T11:58:50Z"),
    ("timestamp", "text", Timestamp(1), "1970-01-01T00:00:00.000001Z"),
    ("text", "timestamp", "2020-05-22T13:58:50+02:00", MOMENT),
    ("text", "timestamp", "2020-05-22T11:58:50", M),
    ("text", "timestamp", "yesterday", M),
    # varchar <-> text
    ("varchar", "text", "abc", "abc"),
    ("text", "varchar", "x" * 255, "x" * 255),
    ("text", "varchar", "x" * 256, M),
    # T -> T[] and back
    ("integer", "integer[]", 7, [7]),
    ("relation", "relation[]", Hash(b"\1"), [Hash(b"\1")]),
    ("blob", "blob[]", PICTURE, [PICTURE]),
    ("integer[]", "integer", [7], 7),
    ("integer[]", "integer", [], M),
    ("integer[]", "integer", [7, 8], M),
    # T[] -> U[], element by element
    ("integer[]", "text[]", [1, -2], ["1", "-2"]),
    ("text[]", "integer[]", ["1", "x"], M),
    ("text[]", "integer[]", [], []),
    ("relation[]", "text[]", [Hash(b"\1")], M),
    # everything else
    ("integer", "varchar", 7, M),
    ("integer", "boolean", 1, M),
    ("float", "text", 1.5, M),
    ("boolean", "integer", True, M),
    ("timestamp", "integer", MOMENT, M),
    ("relation", "text", Hash(b"\1"), M),
    ("text", "relation", "ab", M),
    ("blob", "text", PICTURE, M),
    ("integer", "text[]", 7, M),
    ("text[]", "integer", ["7"], M),
    ("varchar", "integer", "7", M),
    # the same type
    ("text", "text", "abc", "abc"),
    ("blob[]", "blob[]", [PICTURE], [PICTURE]),
]


@pytest.mark.parametrize(("before", "after", "value", "converted"), ROWS)
def test_conversion(before: str, after: str, value: Any, converted: Any) -> None:
    assert repr(find_conversion(before, after)(value)) == repr(converted)


def test_every_pair_of_the_table_is_tested_where_it_converts_and_where_it_falls_back() -> None:
    converts = {(before, after) for before, after, _, converted in ROWS if converted is not M}
    falls_back = {(before, after) for before, after, _, converted in ROWS if converted is M}
    never_fail = {("integer", "text"), ("boolean", "text"), ("timestamp", "text"), ("varchar", "text")}
    assert set(CONVERSIONS) <= converts
    assert set(CONVERSIONS) - never_fail <= falls_back


@pytest.mark.parametrize("text", ["[1" + "0" * 400 + "]", "[1e999]", "[" + "9" * 5000 + "]"])
def test_filter_with_a_number_beyond_all_floats_is_refused(text: str) -> None:
    with pytest.raises(BadFilter):
        cells_of({"weight": "float"}, make_filter("weight", "in", text, {"weight": "float"}))


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**53 + 1, 10**20, 2**1023])
def test_both_folds_take_the_same_integers_for_floats(number: int) -> None:
    kept, fitting = CHECKS["float"](number), fit(number, "float")
    assert (kept is M) == isinstance(fitting, Unfit)
    assert kept is M or kept == fitting

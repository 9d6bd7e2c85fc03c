"""JSON Patch and merge patch, as documents are changed by them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from inkgrove.node.publishing import apply_patch, is_same, merge_patch
from tests.support.components import require_component
from tests.support.errors import raises


def published_cases() -> list[dict[str, Any]]:
    folder = os.environ.get("INKGROVE_VECTORS")
    if not folder:
        return []
    files = sorted((Path(folder) / "json-patch-tests").glob("*.json"))
    return [
        case for file in files for case in json.loads(file.read_text()) if "patch" in case and not case.get("disabled")
    ]


def test_published_suite_passes() -> None:
    cases = published_cases()
    require_component("INKGROVE_VECTORS", cases or None, "set it to the folder of the published vectors")
    assert len(cases) > 80
    for case in cases:
        before = json.dumps(case["doc"])
        if "error" in case:
            with raises("publish.bad-patch", "publish.patch-failed"):
                apply_patch(case["doc"], case["patch"])
        else:
            after = apply_patch(case["doc"], case["patch"])
            if "expected" in case:
                assert is_same(after, case["expected"]), case
        assert json.dumps(case["doc"]) == before


@pytest.mark.parametrize(
    ("document", "operation"),
    [
        ([1, 2], {"op": "add", "path": "/3", "value": 0}),
        ([1, 2], {"op": "remove", "path": "/2"}),
        ([1, 2], {"op": "remove", "path": "/-"}),
        ([1, 2], {"op": "replace", "path": "/-", "value": 0}),
        ([1, 2], {"op": "test", "path": "/00", "value": 1}),
        ([1, 2], {"op": "test", "path": "/-1", "value": 2}),
        ([1, 2], {"op": "test", "path": "/1e0", "value": 2}),
        ([1, 2], {"op": "test", "path": "/\N{ARABIC-INDIC DIGIT ONE}", "value": 2}),
        ({"a": True}, {"op": "test", "path": "/a", "value": 1}),
        ({"a": 0}, {"op": "test", "path": "/a", "value": False}),
        ({"a": [1]}, {"op": "test", "path": "/a", "value": [True]}),
        ({"a": "x"}, {"op": "add", "path": "/a/0", "value": 1}),
        ({"a": {"b": 1}}, {"op": "move", "from": "/a", "path": "/a/b/c"}),
        ({}, {"op": "move", "from": "/a", "path": "/a"}),
        ({}, {"op": "replace", "path": "/a", "value": 1}),
        ({}, {"op": "remove", "path": ""}),
    ],
)
def test_what_does_not_fit_the_document_fails(document: Any, operation: dict[str, Any]) -> None:
    with raises("publish.patch-failed"):
        apply_patch(document, [operation])


@pytest.mark.parametrize(
    "patch",
    [
        {},
        None,
        [None],
        [{"op": "add", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 1}],
        [{"op": "add", "path": "/~2", "value": 1}],
        [{"op": "add", "path": 5, "value": 1}],
        [{"op": "ADD", "path": "/a", "value": 1}],
        [{"op": "copy", "path": "/a"}],
        [{"op": "test", "path": ""}] * 1001,
    ],
)
def test_malformed_patches_are_refused(patch: Any) -> None:
    with raises("publish.bad-patch"):
        apply_patch({}, patch)


def test_numbers_are_the_same_by_value() -> None:
    assert apply_patch({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}]) == {"a": 1}


def test_copies_of_copies_are_bounded() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(60)]
    with raises("publish.patch-failed", match="copies too much"):
        apply_patch({"a": {"x": 1}}, doubling)


def test_parts_of_the_patch_are_not_shared_with_the_document() -> None:
    value: list[int] = []
    patch = [{"op": "add", "path": "/a", "value": value}, {"op": "add", "path": "/a/0", "value": 1}]
    assert apply_patch({}, patch) == {"a": [1]}
    assert value == []


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    # Appendix A of RFC 7386, line by line.
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_its_specification(document: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(document, patch) == expected

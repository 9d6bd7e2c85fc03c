"""The table of codes and the source agree: what is raised is in the table, and what is in the table is raised."""

import ast
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from inkgrove.client.errors import ClientError
from inkgrove.core import errors as core_errors
from inkgrove.core.errors import CODES, InkgroveError, SingleCode, make_error
from inkgrove.federation import errors as federation_errors
from inkgrove.node import errors as node_errors

TABLES = {Path(str(module.__file__)) for module in (core_errors, node_errors, federation_errors)}
SOURCE = Path(str(core_errors.__file__)).parents[1]
FAMILIES = {family.__name__: family for family in InkgroveError.__subclasses__() if family.codes}
BY_NAME = {
    "oauth.access-denied",
    "oauth.unauthorized-client",
    "oauth.unsupported-grant-type",
    "oauth.unsupported-response-type",
    "oauth.unsupported-token-type",
}  # made from the name that the OAuth library gives
SINGLE = {kind.code: kind for kind in SingleCode.__subclasses__()}


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path not in TABLES:
            yield path, ast.parse(path.read_text())


def name_of(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def test_every_family_is_raised_with_codes_of_its_own() -> None:
    wrong = []
    for path, tree in sources():
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or name_of(call.func) not in FAMILIES:
                continue
            first = call.args[0] if call.args else None
            if isinstance(first, ast.Constant):
                own = {item.name for item in FAMILIES[name_of(call.func)].codes}
                if first.value not in own:
                    wrong.append(f"{path.name}:{call.lineno}: {first.value!r} is no code of {name_of(call.func)}")
                elif first.value in SINGLE:
                    wrong.append(f"{path.name}:{call.lineno}: {first.value!r} has the class {SINGLE[first.value]}")
            elif not isinstance(first, ast.Name):
                wrong.append(f"{path.name}:{call.lineno}: {name_of(call.func)} without a code")
    assert wrong == []


def test_every_code_that_routes_document_is_in_the_table() -> None:
    wrong = []
    for path, tree in sources():
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and name_of(call.func) in ("responses", "make_error"):
                found = [item.value for item in call.args if isinstance(item, ast.Constant) and "." in str(item.value)]
                wrong += [f"{path.name}:{call.lineno}: {code}" for code in map(str, found[:1]) if code not in CODES]
    assert wrong == []


def test_no_code_is_unused() -> None:
    texts, names = set(), set()
    for _path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.Name | ast.Attribute):
                names.add(name_of(node))
    unused = {code for code in CODES if code not in texts and not (code in SINGLE and SINGLE[code].__name__ in names)}
    assert unused <= BY_NAME


def test_every_class_for_one_code_is_of_the_family_that_has_the_code() -> None:
    for code, kind in SINGLE.items():
        assert code in {item.name for item in kind.codes}, kind


def test_no_code_is_in_two_tables() -> None:
    assert FAMILIES["ClientError"] is ClientError
    assert len(CODES) == sum(len(family.codes) for family in FAMILIES.values())


def test_error_shows_message_and_code_and_keeps_its_data() -> None:
    error = core_errors.HashError("hash.unknown", "the header is 00 41", header=b"\0A")
    assert str(error) == "the header is 00 41 [hash.unknown]"
    assert (error.message, error.data, error.about.status) == ("the header is 00 41", {"header": b"\0A"}, 422)


@pytest.mark.parametrize("code", ["hash.unknown", "store.unavailable"])
def test_error_made_for_a_code_survives_copies(code: str) -> None:
    error = make_error(code, "a reason", seq_num=3)
    for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is SINGLE.get(code, core_errors.HashError)
        assert (again.code, again.message, again.data) == (code, "a reason", {"seq_num": 3})


def test_internal_error_shows_its_meaning_and_advice_alone() -> None:
    hidden = core_errors.StoreUnavailable("/var/lib/node.db is locked", advice="try again")
    assert hidden.is_internal
    meaning = "The database cannot be reached, read or written; nothing of the call was stored"
    assert hidden.public_message == f"{meaning}: try again"
    assert core_errors.StoreUnavailable("/var/lib/node.db is locked").public_message == f"{meaning}."

"""Positions: handed back by clients, and telling them nothing about how much others write."""

import re
from base64 import urlsafe_b64decode

import pytest

from inkgrove.node.reading import MAX_TOKEN, parse_position, render_position
from inkgrove.node.runtime import Vault
from inkgrove.store.logs import Offset
from inkgrove.store.views import ChangeCursor, parse_change_cursor
from tests.support.errors import raises
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import create, make_schema

OFFSETS = [Offset(0, 0), Offset(0, 7), Offset(981, 123_456_789), Offset(-3, 12), Offset(2**62, 2**63 - 1)]


@pytest.fixture(scope="module")
def vault() -> Vault:
    return Vault(b"correct horse battery staple")


def test_token_of_a_position_comes_back_and_says_nothing(vault: Vault) -> None:
    tokens = [render_position(vault, offset) for offset in OFFSETS]
    assert [parse_position(vault, token) for token in tokens] == OFFSETS
    assert len({len(token) for token in tokens}) == 1
    assert len(tokens[0]) <= MAX_TOKEN
    assert render_position(vault, OFFSETS[0]) != tokens[0]  # not even that it is the same one


@pytest.mark.parametrize("text", ["", "MC4xMg", "x" * 200, "é", "0.12", "%00"])
def test_token_that_the_node_did_not_make_is_refused(vault: Vault, text: str) -> None:
    with raises("request.invalid"):
        parse_position(vault, text)


def test_what_is_hidden_for_another_purpose_or_by_another_node_is_no_position(vault: Vault) -> None:
    token = render_position(vault, OFFSETS[1])
    forged = f"{token[:50]}{'A' if token[50] != 'A' else 'B'}{token[51:]}"
    for other in (vault.encrypt_text("event 1 2"), vault.encrypt_text("position 1"), forged):
        with raises("request.invalid"):
            parse_position(vault, other)
    with raises("request.invalid"):
        parse_position(Vault(b"another passphrase!"), token)


def test_place_of_a_stream_is_as_long_for_few_changes_as_for_many() -> None:
    few, many = (
        ChangeCursor(1, 1, 2, 3, b"", Offset(0, 4), 5),
        ChangeCursor(1, 99, 2**60, 2**60, b"", Offset(-5, 2**62), 2**62),
    )
    assert len(str(few)) == len(str(many))
    assert (parse_change_cursor(str(few)), parse_change_cursor(str(many))) == (few, many)


def test_answers_tell_nobody_how_much_others_write(running: RunningNode) -> None:
    with Person(running, "jane.haiku.ink") as jane, Person(running, "john.haiku.ink") as john:
        schema = make_schema(jane)
        first = create(john, schema, fields={"subject": "one"})["position"]
        for _ in range(20):
            create(jane, schema, fields={"subject": "many"})
        second = create(john, schema, fields={"subject": "two"})["position"]
        shown = john.get("/views").json()["freshness"]["position"]
        for token in (first, second, shown):
            raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
            assert re.fullmatch(rb"-?\d+\.\d+", raw) is None
        assert len(first) == len(second) == len(shown)
        assert john.get("/views", params={"nothing": 1}).status_code == 400
        refused = john.get(f"/instances/{'00' * 66}", params={"at_least": "MC4xMg"})
        assert (refused.status_code, refused.json()["code"]) == (400, "request.invalid")
    assert running.anybody.get("/readyz").json()["view_lag"] > 0
    elsewhere = running.anybody.get("/readyz", headers={"X-Forwarded-For": "192.0.2.7"})
    assert (elsewhere.status_code, elsewhere.json()["view_lag"]) == (200, None)

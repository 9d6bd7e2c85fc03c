"""`inkgrove identity move`, between two processes."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from examples.demo.ports import free_port
from inkgrove.client import Client, Refused, new_words
from tests.support.command import inkgrove
from tests.support.node_processes import Serving
from tests.support.nodes import PASSWORD

OLD, NEW, NEW_PASSWORD = "jane.a.ink", "jane.b.ink", "another horse battery"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[Serving, Serving]]:
    ports = {letter: free_port() for letter in "ab"}
    resolve = ",".join(f"*.{letter}.ink=127.0.0.1:{port}" for letter, port in ports.items())
    with ExitStack() as stack:
        old, new = (
            stack.enter_context(
                Serving(
                    tmp_path / letter,
                    {"registration": "open", "domains": f"{letter}.ink", "resolve": resolve},
                    port=ports[letter],
                )
            )
            for letter in "ab"
        )
        yield old, new


def move(old: Serving, new: Serving, name: str = NEW, *more: str) -> "tuple[int, dict[str, object]]":
    told = f"{PASSWORD}\n{NEW_PASSWORD}\n"
    where = ("--node", old.url, "--to", new.url, "--as", name)
    done = inkgrove("identity", "move", OLD, *where, *more, "--json", stdin=told)
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_one_command_moves_an_identity_with_its_schemas(nodes: tuple[Serving, Serving]) -> None:
    old, new = nodes
    with Client(old.url) as client:
        jane = client.sign_up(OLD, PASSWORD, new_words(), name="Jane")
    with Client.sign_in(old.url, OLD, PASSWORD) as client:
        schema = client.create_schema("notes").schema
    code, facts = move(old, new)
    assert (code, facts["id"], facts["fqdn"], facts["recovery"]) == (0, jane.id, NEW, "words"), facts
    with Client.sign_in(new.url, NEW, NEW_PASSWORD) as client:
        assert client.me().id == jane.id
        assert client.schema(schema).name == "notes"
    with Client.sign_in(old.url, OLD, PASSWORD) as client:
        assert client.move_state().state == "moved"
        with pytest.raises(Refused):
            client.create_schema("notes")


def test_move_that_the_new_node_refuses_is_taken_back(nodes: tuple[Serving, Serving]) -> None:
    old, new = nodes
    with Client(old.url) as client:
        client.sign_up(OLD, PASSWORD, new_words())
    with Client(new.url) as client:
        client.create_identity(NEW, PASSWORD)
    code, error = move(old, new)
    assert (code != 0, error["code"]) == (True, "identity.exists"), error
    with Client.sign_in(old.url, OLD, PASSWORD) as client:
        assert client.move_state().state == "here"
        client.create_schema("notes")


def test_who_has_no_words_says_so_before_anything_happens(nodes: tuple[Serving, Serving]) -> None:
    old, new = nodes
    with Client(old.url) as client:
        client.create_identity(OLD, PASSWORD)
    code, error = move(old, new)
    assert (code != 0, error["code"]) == (True, "move.without-words"), error
    code, facts = move(old, new, NEW, "--without-words")
    assert (code, facts["recovery"]) == (0, "none"), facts

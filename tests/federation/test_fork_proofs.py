"""Anybody may prove that a log is forked, without a signature on the request; nothing else is taken by this way."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from httpx import Response

from inkgrove.core.errors import InkgroveError
from inkgrove.federation.replication import FORK_PROOFS_PATH, take_fork_proof
from inkgrove.messages import Create, FieldChange, SchemaMeta, SchemaMigration, SchemaVersion, encode_message
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.reference import fold_views
from inkgrove.store.logs import find_fork_proof, find_log
from tests.support.logs import LogBuilder, key
from tests.support.nodes import RunningNode
from tests.support.replication import held
from tests.support.views import held_by

SCHEMA = SchemaVersion(key(7).public, 1, 2)


def notes(*texts: str) -> LogBuilder:
    """jane's log 1 with a note for each text."""
    log = LogBuilder(key(1))
    for text in texts:
        log.append(encode_message(Create(SCHEMA, {"text": text})))
    return log


TRUNK, BRANCH = notes("one", "two", "three"), notes("one", "other")


@pytest.fixture
def held_node(node: Node) -> Node:
    """A node that holds jane's log as it was shown to it, and the schema."""
    schema = LogBuilder(key(7))
    for message in (SchemaMeta("note"), SchemaMigration((FieldChange("text", "create", "text"),))):
        schema.append(encode_message(message))
    for log in (schema, TRUNK):
        node.store.ingest((e.encoded, p) for e, p in zip(log.entries, log.payloads, strict=True))
    return node


def texts(node: Node) -> set[object]:
    return {row.fields["text"] for view in fold_views(held_by(node.store), [SCHEMA.schema_id]) for row in view.rows}


def test_proof_takes_back_what_follows_the_fork(held_node: Node) -> None:
    assert texts(held_node) == {"one", "two", "three"}
    log = take_fork_proof(held_node, TRUNK.entry(2).encoded, BRANCH.entry(2).encoded)
    assert log.seq_num == 2
    assert texts(held_node) == {"one"}
    proof = held_node.store.read(find_fork_proof, key(1).public, 1)
    assert proof is not None
    assert {proof.first.hash, proof.second.hash} == {TRUNK.hash(2), BRANCH.hash(2)}
    # Twice is as good as once, in whatever order.
    assert take_fork_proof(held_node, BRANCH.entry(2).encoded, TRUNK.entry(2).encoded).seq_num == 2


def test_proof_of_which_this_node_holds_neither_entry_counts_too(held_node: Node) -> None:
    one, other = notes("one", "two", "three", "four"), notes("one", "two", "three", "other")
    assert take_fork_proof(held_node, one.entry(4).encoded, other.entry(4).encoded).seq_num == 4
    assert texts(held_node) == {"one", "two", "three"}


UNSIGNED = BRANCH.entry(2).encoded[:-64] + bytes(64)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (TRUNK.entry(2).encoded, TRUNK.entry(2).encoded, "log.not-a-fork"),
        (TRUNK.entry(2).encoded, TRUNK.entry(3).encoded, "log.not-a-fork"),
        (TRUNK.entry(2).encoded, LogBuilder(key(1), log_id=2).grow(2).entry(2).encoded, "log.not-a-fork"),
        (TRUNK.entry(2).encoded, UNSIGNED, "entry.bad-signature"),
        (b"garbage", TRUNK.entry(2).encoded, "entry.bad-tag"),
        (notes("x").entry(1).encoded, b"", "entry.truncated"),
        (LogBuilder(key(9)).append(b"a").encoded, LogBuilder(key(9)).append(b"b").encoded, "view.unknown-log"),
    ],
    ids=["the same twice", "neighbours", "two logs", "unsigned", "garbage", "nothing", "unknown log"],
)
def test_anything_else_is_refused_and_leaves_nothing_behind(
    held_node: Node, first: bytes, second: bytes, code: str
) -> None:
    before = held(held_node)
    with pytest.raises(InkgroveError) as caught:
        take_fork_proof(held_node, first, second)
    assert caught.value.code == code
    assert held(held_node) == before
    state = held_node.store.read(find_log, key(1).public, 1)
    assert state is not None
    assert state.standing.forked_at is None


# By HTTP


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path, tmp_path, replace(NodeSettings(), fork_proofs_per_address=3)) as running:
        running.node.store.ingest((e.encoded, p) for e, p in zip(TRUNK.entries, TRUNK.payloads, strict=True))
        yield running


def prove(running: RunningNode, first: bytes, second: bytes) -> Response:
    body = {"first": b64encode(first).decode(), "second": b64encode(second).decode()}
    return running.anybody.post(FORK_PROOFS_PATH, json=body)


def test_stranger_proves_a_fork_over_http(serving: RunningNode) -> None:
    answer = prove(serving, TRUNK.entry(2).encoded, BRANCH.entry(2).encoded)
    assert (answer.status_code, answer.json()) == (
        200,
        {"author": key(1).public.hex(), "log_id": 1, "forked_at": 2},
    )
    state = serving.node.store.read(find_log, key(1).public, 1)
    assert state is not None
    assert state.standing.forked_at == 2


def test_what_proves_nothing_has_a_status_and_an_address_has_so_many_attempts(serving: RunningNode) -> None:
    same = prove(serving, TRUNK.entry(2).encoded, TRUNK.entry(2).encoded)
    assert (same.status_code, same.json()["code"]) == (422, "log.not-a-fork")
    unknown = prove(serving, LogBuilder(key(9)).append(b"a").encoded, LogBuilder(key(9)).append(b"b").encoded)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "view.unknown-log")
    garbage = serving.anybody.post(FORK_PROOFS_PATH, json={"first": "?", "second": "?"})
    assert garbage.status_code == 400
    fourth = prove(serving, TRUNK.entry(2).encoded, BRANCH.entry(2).encoded)
    assert (fourth.status_code, fourth.json()["code"]) == (429, "auth.too-many-attempts")
    assert int(fourth.headers["Retry-After"]) > 0


def test_proof_of_more_than_a_few_bytes_is_not_even_read(serving: RunningNode) -> None:
    answer = serving.anybody.post(FORK_PROOFS_PATH, json={"first": "A" * 5_000, "second": ""})
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too-large")

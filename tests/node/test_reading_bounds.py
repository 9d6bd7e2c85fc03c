"""Small questions get bounded answers: pages end early, related rows and the past of an instance have their limits."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from inkgrove.api.routes.changes import ViewWatch
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from tests.support.errors import raises
from tests.support.nodes import RunningNode
from tests.support.plain_views import build_views
from tests.support.publishing import create, make_schema, refusal

MOST = 100_000
LONG = "x" * 30_000
PUBLIC = {"mode": "public"}


@pytest.fixture
def running(place: Path | str, tmp_path: Path) -> Iterator[RunningNode]:
    settings = NodeSettings(
        registration="open",
        domains=("haiku.ink",),
        administrators=("admin.haiku.ink",),
        max_page_bytes=MOST,
        max_past_bytes=MOST,
    )
    with RunningNode(place, tmp_path, settings) as node:
        yield node


@pytest.fixture
def jane(running: RunningNode) -> httpx.Client:
    running.create("jane.haiku.ink")
    return running.sign_in("jane.haiku.ink")


def show(running: RunningNode, *schemas: str) -> None:
    running.create("admin.haiku.ink")
    admin = running.sign_in("admin.haiku.ink")
    for schema in schemas:
        assert admin.put(f"/views/{schema}").status_code == 200
    build_views(running.node)


def make_texts(jane: httpx.Client) -> str:
    fields = [{"text": {"action": "create", "type": "text"}}, {"number": {"action": "create", "type": "integer"}}]
    return make_schema(jane, "texts", fields)


def make_lists(jane: httpx.Client, texts: str) -> str:
    fields = [
        {"to": {"action": "create", "type": "relation[]", "schema": texts}},
        {"one": {"action": "create", "type": "relation", "schema": texts}},
        {"number": {"action": "create", "type": "integer"}},
    ]
    return make_schema(jane, "lists", fields)


def read_pages(client: httpx.Client, address: str, most: int = MOST + 10_000) -> list[dict[str, Any]]:
    """All pages; none may be larger than the bound."""
    pages, cursor = [], ""
    while True:
        answer = client.get(address + cursor)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) < most
        pages.append(answer.json())
        assert pages[-1]["rows"], "a page holds at least one row"
        if pages[-1]["cursor"] is None:
            return pages
        cursor = f"&cursor={pages[-1]['cursor']}"


@pytest.mark.parametrize("sort", ["number", "-number"])
def test_page_ends_where_it_would_get_too_large(running: RunningNode, jane: httpx.Client, sort: str) -> None:
    texts = make_texts(jane)
    for number, size in enumerate([10, 30_000, 30_000, 30_000, 30_000, 10]):
        create(jane, texts, fields={"text": "x" * size, "number": number}, access=PUBLIC)
    show(running, texts)
    pages = read_pages(running.anybody, f"/views/texts?sort={sort}&limit=1000")
    numbers = [row["fields"]["number"] for page in pages for row in page["rows"]]
    assert numbers == sorted(range(6), reverse=sort == "-number")
    assert len(pages) == 2
    # What is not shown does not count.
    assert len(read_pages(running.anybody, "/views/texts?fields=number&limit=1000")) == 1


def test_row_larger_than_a_page_is_a_page(running: RunningNode, jane: httpx.Client) -> None:
    texts = make_texts(jane)
    for number, size in enumerate([10, 200_000, 10]):
        create(jane, texts, fields={"text": "x" * size, "number": number}, access=PUBLIC)
    show(running, texts)
    pages = read_pages(running.anybody, "/views/texts?sort=number", most=220_000)
    assert [[row["fields"]["number"] for row in page["rows"]] for page in pages] == [[0], [1], [2]]


def test_related_rows_count_as_often_as_they_are_shown(running: RunningNode, jane: httpx.Client) -> None:
    texts = make_texts(jane)
    lists = make_lists(jane, texts)
    names = [create(jane, texts, fields={"text": LONG, "number": n}, access=PUBLIC)["instance"] for n in range(3)]
    for number in range(6):
        create(jane, lists, fields={"to": [names[0]], "one": names[number % 3], "number": number}, access=PUBLIC)
    show(running, texts, lists)
    pages = read_pages(running.anybody, "/views/lists?sort=number&expand=to,one")
    assert [len(page["rows"]) for page in pages] == [1, 1, 1, 1, 1, 1]
    for number, page in enumerate(pages):
        (row,) = page["rows"]
        assert "left_out" not in row
        assert [item["instance"] for item in row["expanded"]["to"]] == [names[0]]
        assert row["expanded"]["one"]["fields"]["number"] == number % 3
    assert [len(page["rows"]) for page in read_pages(running.anybody, "/views/lists?expand=one")] == [3, 3]


def test_list_that_names_one_row_many_times_is_cut(running: RunningNode, jane: httpx.Client) -> None:
    texts = make_texts(jane)
    lists = make_lists(jane, texts)
    name = create(jane, texts, fields={"text": LONG}, access=PUBLIC)["instance"]
    hidden = create(jane, texts, fields={"text": LONG})["instance"]
    for number in range(2):
        facts = {"to": [hidden] + [name] * 299, "one": name, "number": number}
        create(jane, lists, fields=facts, access=PUBLIC)
    show(running, texts, lists)
    answer = running.anybody.get("/views/lists?sort=number&expand=to,one&fields=number")
    assert len(answer.content) < MOST + 10_000
    (row,) = answer.json()["rows"]
    assert row["left_out"] == ["to", "one"]
    assert len(row["fields"]["to"]) == len(row["expanded"]["to"]) == 300
    assert [item is not None for item in row["expanded"]["to"]] == [False, True] + [False] * 298
    assert row["expanded"]["one"] is None
    assert answer.json()["cursor"] is not None
    # Of the small relation alone nothing is left out.
    rows = running.anybody.get("/views/lists?expand=one&fields=number").json()["rows"]
    assert [(row["expanded"]["one"]["instance"], "left_out" in row) for row in rows] == [(name, False)] * 2


def test_instance_with_a_long_past_shows_its_present_only(running: RunningNode, jane: httpx.Client) -> None:
    texts = make_texts(jane)
    name = create(jane, texts, fields={"text": LONG}, access=PUBLIC)["instance"]
    merge = {"Content-Type": "application/merge-patch+json"}
    for letter in "abcd":
        fields = {"fields": {"text": letter * 30_000}}
        assert jane.patch(f"/instances/{name}", json=fields, headers=merge).status_code == 200
    show(running, texts)
    assert running.anybody.get(f"/instances/{name}").json()["fields"]["text"] == "d" * 30_000
    for path in ("/history", "/proof", "?as_of=2"):
        answer = running.anybody.get(f"/instances/{name}{path}")
        assert refusal(answer) == (422, "view.past-too-long"), path
        assert answer.json()["limit"] == MOST
    page = running.anybody.get(f"/pages/instances/{name}", headers={"Accept": "text/html"})
    assert page.status_code == 200
    assert "too long" in page.text


# Streams of changes


def test_who_does_not_sign_in_takes_no_place_from_those_who_do(place: Path | str, tmp_path: Path) -> None:
    settings = NodeSettings(
        registration="open",
        domains=("haiku.ink",),
        administrators=("admin.haiku.ink",),
        max_listeners=20,
        heartbeat_seconds=0.1,
    )
    with RunningNode(place, tmp_path, settings) as running, ExitStack() as streams:
        running.create("jane.haiku.ink")
        jane = running.sign_in("jane.haiku.ink")
        show(running, make_texts(jane))

        def follow(client: httpx.Client) -> httpx.Response:
            return streams.enter_context(client.stream("GET", "/views/texts/changes"))

        assert [follow(running.anybody).status_code for _ in range(2)] == [200, 200]
        refused = running.anybody.get("/views/texts/changes")
        assert refusal(refused) == (503, "view.too-many-listeners")
        assert refused.headers["retry-after"] == "5"
        assert [follow(jane).status_code for _ in range(18)] == [200] * 18
        assert refusal(jane.get("/views/texts/changes")) == (503, "view.too-many-listeners")
        streams.close()
        # A place is free again as soon as its stream has ended.
        until = time.monotonic() + 20
        while follow(running.anybody).status_code != 200:
            assert time.monotonic() < until


def test_all_who_do_not_sign_in_have_half_of_the_places(tmp_path: Path) -> None:
    node = Node(tmp_path, NodeSettings(max_listeners=20), home=tmp_path)
    node.close()
    watch = ViewWatch(node)
    for number in range(10):
        watch.enter(f"192.0.2.{number}")
    with raises("view.too-many-listeners"):
        watch.enter("192.0.2.10")
    for _ in range(10):
        watch.enter(None)
    with raises("view.too-many-listeners"):
        watch.enter(None)
    watch.leave("192.0.2.3")
    watch.enter("192.0.2.10")

"""What a question to a view may cost: who asks for more is refused, and everything else goes on."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, insert, select, text

from inkgrove.core import IdentityId
from inkgrove.core.errors import QueryTooExpensive, TooManyQueries
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.store.db import NETWORK, Database, LimitOf, QueryLimit, parse_store_url
from inkgrove.store.views import views_called
from tests.node.test_reading_bounds import PUBLIC, show
from tests.support.nodes import RunningNode
from tests.support.publishing import create, make_schema, refusal

pytestmark = pytest.mark.both_databases
ROWS = 20_000
FILTERS = [("where", f"text:contains:{number % 10}") for number in range(7)]
QUESTIONS = {
    "page": ("/views/texts", [*FILTERS, ("where", "text:contains:never")]),
    "sorted": ("/views/texts", [("sort", "-text"), *FILTERS]),
    "counted": ("/views/texts", [("count", "true"), *FILTERS]),
    "asked through the framework": ("/views/texts", [("sort", "text"), ("count", "1"), *FILTERS]),
    "summary": ("/views/texts/summary", []),
    "outcomes": ("/views/texts/outcomes", []),
}
EXPENSIVE = (422, "input.query-too-expensive")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with a view of many rows, where strangers have as good as no time."""
    home = tmp_path_factory.mktemp("limits")
    where: Path | str = home
    if request.param == "postgresql":
        where = request.getfixturevalue("postgres").create_store("limits")
    settings = NodeSettings(
        registration="open",
        domains=("haiku.ink",),
        administrators=("admin.haiku.ink",),
        stranger_query_seconds=0.0001,
        query_seconds=60,
    )
    with RunningNode(where, home, settings) as running:
        running.create("jane.haiku.ink")
        jane = running.sign_in("jane.haiku.ink")
        schema = make_schema(jane, "texts", [{"text": {"action": "create", "type": "text"}}])
        create(jane, schema, fields={"text": "0123456789" * 10}, access=PUBLIC)
        show(running, schema)
        running.node.views.database.write(_multiply)
        yield running


def _multiply(connection: Connection) -> None:
    (view,) = views_called(connection, "texts")
    table = view.table()
    row = dict(connection.execute(select(table)).one()._mapping)
    names = (blake2b(b"%d" % number).digest() for number in range(ROWS))
    connection.execute(
        insert(table),
        [{**row, "_instance": name, "_seq_num": row["_seq_num"] + n + 1} for n, name in enumerate(names)],
    )


@pytest.fixture(scope="module")
def jane(filled: RunningNode) -> httpx.Client:
    return filled.sign_in("jane.haiku.ink")


@pytest.mark.parametrize("what", QUESTIONS)
def test_an_expensive_question_of_a_stranger_is_refused_and_with_a_token_answered(
    filled: RunningNode, jane: httpx.Client, what: str
) -> None:
    address, query = QUESTIONS[what]
    # More often than there are connections: each of them can be used again.
    for _ in range(20):
        answer = filled.anybody.get(address, params=tuple(query))
        assert refusal(answer) == EXPENSIVE
        assert "sign in" in answer.json()["detail"]
    answer = jane.get(address, params=tuple(query))
    assert answer.status_code == 200, answer.text


def test_what_the_site_asks_is_left_out_where_it_is_too_expensive(filled: RunningNode, jane: httpx.Client) -> None:
    assert [view["rows"] for view in filled.anybody.get("/views?count=true").json()["views"]] == [None]
    assert [view["rows"] for view in jane.get("/views?count=true").json()["views"]] == [ROWS + 1]
    home = filled.anybody.get("/")
    assert home.status_code == 200
    assert "too many rows to count" in home.text


def test_a_limit_holds_for_what_is_asked_inside_and_the_connection_goes_on(filled: RunningNode) -> None:
    """The same connection: refused, then used without a limit."""
    limit = QueryLimit(0.0001, running=1, waiting=1)
    many = text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT count(*) FROM n"
    )
    database = filled.node.views.database
    for _ in range(3):
        with database.reading() as connection:
            with pytest.raises(QueryTooExpensive), limit.on(connection):
                connection.execute(many).all()
            connection.rollback()
            assert connection.execute(many).scalar() == 300_000
    with database.reading() as connection, pytest.raises(ZeroDivisionError), limit.on(connection):
        raise ZeroDivisionError  # is not taken for a refusal


def test_queries_that_are_not_cheap_wait_for_a_place_and_are_refused_if_many_do(tmp_path: Path) -> None:
    """SQLite, where the processor is the node's own."""
    many = text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900000) SELECT count(*) FROM n"
    )
    database = Database(parse_store_url(tmp_path))
    limit = QueryLimit(60, running=1, waiting=1)
    assert limit.enter()  # somebody is at it
    found: list[Any] = []

    def ask() -> None:
        with database.reading() as connection:
            try:
                with limit.on(connection):
                    found.append(connection.execute(many).scalar())
            except TooManyQueries as error:
                found.append(error.code)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["input.too-many-queries"] * 3
    limit.leave()
    ask()
    ask()
    assert found[3:] == [900_000] * 2
    database.close()


@pytest.mark.parametrize("kind", ["identities", "networks"])
def test_one_who_asks_for_costly_queries_all_the_time_leaves_a_place_for_others(filled: RunningNode, kind: str) -> None:
    """Each identity, and for strangers each network, has one of the two places."""
    node = filled.node

    def enter(who: int) -> bool:
        if kind == "identities":
            asked = node.find_query_limit(IdentityId(bytes([who]) * 32))
        else:
            token = NETWORK.set(f"192.0.2.{who}")
            asked = node.find_query_limit(None)
            NETWORK.reset(token)
        has_place = asked.limit.enter(asked.who)
        if has_place:
            entered.append(asked)
        return has_place

    entered: list[LimitOf] = []
    assert enter(1)
    with ThreadPoolExecutor(4) as threads:  # they wait for a second in vain
        assert list(threads.map(enter, [1] * 4)) == [False] * 4
        assert enter(2)
    for asked in entered:
        asked.limit.leave(asked.who)


def test_network_of_a_request_is_known_where_its_query_is_limited(
    filled: RunningNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = type(filled.node).find_query_limit

    def spy(node: Node, identity: IdentityId | None) -> LimitOf:
        seen.append(NETWORK.get())
        return real(node, identity)

    monkeypatch.setattr(Node, "find_query_limit", spy)
    for address in ("/views/texts?limit=1", "/views/texts/outcomes", "/pages/views/texts"):
        filled.anybody.get(address)
    assert len(seen) >= 3
    assert set(seen) == {"127.0.0.1"}

"""Many who publish at once, in threads and processes, and processes that die: no gap, no fork, nothing lost."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from inkgrove.core import PublicKey, parse_hash
from inkgrove.messages import Update, decode_message
from inkgrove.node.runtime import Node
from inkgrove.store.logs import find_log, read_entries
from tests.node.publishers import NodeProcess
from tests.support.nodes import Person, RunningNode
from tests.support.publishing import Signer, as_json, create, mail, make_schema

pytestmark = pytest.mark.both_databases


def check_log(node: Node, author: PublicKey, log_id: int) -> list[Any]:
    """The log is whole and valid; its entries."""
    state = node.store.read(find_log, author, log_id)
    assert state is not None
    assert (state.invalid_from, state.is_whole) == (None, True)
    stored = node.store.read(read_entries, author, log_id)
    assert [item.entry.seq_num for item in stored] == list(range(1, state.height + 1))
    assert all(item.refusal is None and item.payload is not None for item in stored)
    return stored


def in_threads(url: str, person: Person, count: int, work: Callable[[httpx.Client, int], None]) -> None:
    """The same work in some threads, each with a client of its own."""

    def run(number: int) -> None:
        with httpx.Client(base_url=url, headers=dict(person.headers), timeout=120) as client:
            work(client, number)

    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(run, number) for number in range(count)]:
            done.result()


def test_threads_publish_by_both_ways_without_gap_or_fork(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    secret = shared.node.secret_key(jane.key)
    instances: list[str] = []

    def work(client: httpx.Client, number: int) -> None:
        signer = Signer(client, secret)
        for turn in range(8):
            if number % 2:
                instances.append(create(client, schema, fields={"stars": turn})["instance"])
                continue
            item = signer.sign(mail(schema, f"{number}/{turn}"), signer.place(schema=schema))
            while (answer := client.post("/entries", json=as_json(*item))).status_code != 201:
                assert answer.json()["code"] == "log.stale", answer.text
                item = signer.sign(mail(schema, f"{number}/{turn}"), answer.json()["next"])
            instances.append(answer.json()["hash"])

    in_threads(shared.url, jane, 8, work)
    stored = check_log(shared.node, jane.key, 2)
    assert {item.hash for item in stored} == {parse_hash(instance) for instance in instances}
    assert len(stored) == 64


def test_first_entries_at_the_same_moment_begin_one_log_per_schema(shared: RunningNode, jane: Person) -> None:
    schemas = [make_schema(jane, f"schema{n}") for n in range(3)]
    answers: list[tuple[str, int]] = []

    def work(client: httpx.Client, number: int) -> None:
        schema = schemas[number % 3]
        answers.append((schema, create(client, schema, fields={})["log_id"]))

    in_threads(shared.url, jane, 9, work)
    assert len(set(answers)) == 3
    assert sorted({log_id for _, log_id in answers}) == [4, 5, 6]


def test_patches_of_one_instance_are_applied_one_after_the_other(shared: RunningNode, jane: Person) -> None:
    schema = make_schema(jane)
    instance = create(jane, schema, fields={"stars": 0, "tags": []})["instance"]
    won: list[int] = []

    def work(client: httpx.Client, number: int) -> None:
        headers = {"Content-Type": "application/json-patch+json"}
        append = [{"op": "add", "path": "/fields/tags/-", "value": f"tag {number}"}]
        assert client.patch(f"/instances/{instance}", json=append, headers=headers).status_code == 200
        swap = [
            {"op": "test", "path": "/fields/stars", "value": 0},
            {"op": "replace", "path": "/fields/stars", "value": 1},
        ]
        if client.patch(f"/instances/{instance}", json=swap, headers=headers).status_code == 200:
            won.append(number)

    in_threads(shared.url, jane, 8, work)
    assert len(won) == 1
    messages = [decode_message(item.payload) for item in check_log(shared.node, jane.key, 2)]
    fields: list[Any] = [message.fields for message in messages if isinstance(message, Update)]
    tags = [found["tags"] for found in fields if "tags" in found]
    assert sorted(len(value) for value in tags) == list(range(1, 9))
    assert sorted(tags[-1]) == [f"tag {number}" for number in range(8)]


# Processes


@pytest.fixture
def processes(shared: RunningNode) -> Iterator[Callable[[], NodeProcess]]:
    """Starts further nodes on the same store."""
    started: list[NodeProcess] = []

    def start() -> NodeProcess:
        started.append(NodeProcess(shared.place, shared.home))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.kill()


def test_processes_on_one_store_write_one_log(
    shared: RunningNode, jane: Person, processes: Callable[[], NodeProcess]
) -> None:
    schema = make_schema(jane)
    urls = [shared.url, processes().url]
    logs: set[int] = set()

    def work(client: httpx.Client, number: int) -> None:
        client.base_url = httpx.URL(urls[number % 2])
        for turn in range(10):
            logs.add(create(client, schema, fields={"stars": turn})["log_id"])

    in_threads(shared.url, jane, 6, work)
    assert logs == {2}
    assert len(check_log(shared.node, jane.key, 2)) == 60


def test_key_given_to_two_processes_is_done_once(
    shared: RunningNode, jane: Person, processes: Callable[[], NodeProcess]
) -> None:
    schema = make_schema(jane)
    urls = [shared.url, processes().url]
    texts: list[str] = []

    def work(client: httpx.Client, number: int) -> None:
        client.base_url = httpx.URL(urls[number % 2])
        headers = {"Idempotency-Key": "once"}
        texts.append(client.post("/instances", json={"schema": schema, "fields": {}}, headers=headers).text)

    in_threads(shared.url, jane, 6, work)
    assert len(set(texts)) == 1
    assert len(check_log(shared.node, jane.key, 2)) == 1


def test_killed_node_has_lost_nothing_that_it_acknowledged(
    shared: RunningNode, jane: Person, processes: Callable[[], NodeProcess]
) -> None:
    schema = make_schema(jane)
    acknowledged: list[str] = []
    rng = random.Random(5)
    for _ in range(3):
        process = processes()
        alarm = threading.Timer(rng.uniform(0.3, 1.0), process.kill)

        def work(client: httpx.Client, number: int, url: str = process.url) -> None:
            client.base_url = httpx.URL(url)
            try:
                while True:
                    acknowledged.append(create(client, schema, fields={"stars": number})["entry"])
            except httpx.TransportError:
                return

        alarm.start()
        in_threads(process.url, jane, 6, work)
        alarm.join()
    assert acknowledged
    assert len(set(acknowledged)) == len(acknowledged)
    stored = {item.hash for item in check_log(shared.node, jane.key, 2)}
    assert {parse_hash(entry) for entry in acknowledged} <= stored
    after = create(jane, schema, fields={"subject": "and on we go"})
    assert (after["log_id"], after["seq_num"]) == (2, len(stored) + 1)


def test_stopped_node_finishes_what_it_has_begun(
    shared: RunningNode, jane: Person, processes: Callable[[], NodeProcess]
) -> None:
    schema = make_schema(jane)
    acknowledged: list[str] = []
    refused: list[str] = []
    process = processes()

    is_over = threading.Event()

    def stop_in_the_midst() -> None:
        while len(acknowledged) < 60 and not is_over.wait(0.01):
            pass
        process.stop()

    def work(client: httpx.Client, _number: int) -> None:
        try:
            while (answer := client.post("/instances", json={"schema": schema, "fields": {}})).status_code == 201:
                acknowledged.append(answer.json()["entry"])
            refused.append(answer.json()["code"])
        except httpx.TransportError:
            return

    stopping = threading.Thread(target=stop_in_the_midst)
    stopping.start()
    try:
        in_threads(process.url, jane, 6, work)
    finally:
        is_over.set()  # whoever was refused before the stop is told by the codes below
        stopping.join()
    assert set(refused) <= {"publish.closing"}
    assert len(acknowledged) >= 60
    # Whoever was told of an entry finds it after a restart, and nothing is there that nobody was told of.
    again = processes()
    stored = [item.hash for item in check_log(shared.node, jane.key, 2)]
    assert sorted(stored) == sorted(map(parse_hash, acknowledged))
    with httpx.Client(base_url=again.url, headers=dict(jane.headers), timeout=120) as client:
        assert create(client, schema, fields={})["seq_num"] == len(stored) + 1

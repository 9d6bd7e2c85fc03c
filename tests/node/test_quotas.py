"""Quotas of hosted identities, registrations per address, and the reserve of disk space."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection

from inkgrove.core import IdentityId, identity_of
from inkgrove.messages import IdentityDocument
from inkgrove.node.blobs import collect_blobs
from inkgrove.node.identity import IDENTITY_LOG_ALLOWANCE, change_limits, show_quota
from inkgrove.node.runtime import SMALL_DELIVERY, DiskReserve
from inkgrove.node.settings import NodeSettings
from inkgrove.store.node import StoredAmounts, add_usage, lock_keys
from tests.support.adopting import bring, signed
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key
from tests.support.nodes import RunningNode
from tests.support.publishing import create, make_schema
from tests.support.races import begin_before_commit

MIB = 1024 * 1024
QUOTAS = replace(
    NodeSettings(registration="open", domains=("haiku.ink",)),
    identity_entries=12,
    identity_payload_bytes=64 * 1024,
    identity_blob_bytes=1000,
    registrations_per_address=3,
)


@pytest.fixture
def quotas(place: Path | str, tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(place, tmp_path, QUOTAS) as node:
        yield node


def join(node: RunningNode, name: str) -> tuple[IdentityId, httpx.Client]:
    return IdentityId.fromhex(node.create(name)["id"]), node.sign_in(name)


def upload(client: httpx.Client, size: int, letter: bytes = b"a") -> httpx.Response:
    return client.post("/blobs", content=letter * size, headers={"Content-Type": "text/plain"})


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def used(client: httpx.Client) -> dict[str, int]:
    answer = client.get("/me/usage")
    assert answer.status_code == 200, answer.text
    return {name: item["used"] for name, item in answer.json().items()}


def test_identity_publishes_up_to_its_quota_and_can_still_delete(quotas: RunningNode) -> None:
    jane, client = join(quotas, "jane.haiku.ink")
    schema = make_schema(client)
    before = used(client)["entries"]
    body: dict[str, Any] = {"schema": schema, "fields": {"subject": "Hello"}}
    made = [create(client, schema, fields={"subject": "Hello"})["instance"] for _ in range(12 - before)]
    assert used(client)["entries"] == 12
    refused = client.post("/instances", json=body)
    assert refusal(refused) == (403, "quota.exceeded")
    assert (refused.json()["what"], refused.json()["limit"], refused.json()["used"]) == ("entries", 12, 12)
    merge = {"Content-Type": "application/merge-patch+json"}
    patch = client.patch(f"/instances/{made[0]}", json={"fields": {"subject": "x"}}, headers=merge)
    assert refusal(patch) == (403, "quota.exceeded")
    assert client.delete(f"/instances/{made[0]}").status_code == 200
    assert used(client)["entries"] == 13
    assert client.patch("/me", json={"name": "Jane"}).status_code == 200  # who one is can still be said
    _, john = join(quotas, "john.haiku.ink")
    create(john, schema, fields={"subject": "Hello"})  # nobody else is concerned
    change_limits(quotas.node, jane, {"entries": 100})
    create(client, schema, fields={"subject": "Hello"})
    change_limits(quotas.node, jane, {"entries": None, "payload_bytes": 1})
    assert refusal(client.post("/instances", json=body)) == (403, "quota.exceeded")


def test_bytes_of_messages_are_counted_as_they_are_stored(quotas: RunningNode) -> None:
    _, client = join(quotas, "jane.haiku.ink")
    schema = make_schema(client)
    body: dict[str, Any] = {"schema": schema, "fields": {"subject": "x" * 40_000}}
    before = used(client)["payload_bytes"]
    assert client.post("/instances", json=body).status_code == 201
    assert 40_000 < used(client)["payload_bytes"] - before < 41_000
    refused = client.post("/instances", json=body)
    assert (refused.status_code, refused.json()["what"]) == (403, "payload_bytes")
    create(client, schema, fields={"subject": "short"})


def test_blobs_are_counted_until_they_are_collected(quotas: RunningNode) -> None:
    jane, client = join(quotas, "jane.haiku.ink")
    assert upload(client, 600).status_code == 201
    assert upload(client, 600).status_code == 201  # the same again
    assert used(client)["blob_bytes"] == 600
    refused = upload(client, 401, b"b")
    assert refusal(refused) == (403, "quota.exceeded")
    assert refused.json()["what"] == "blob_bytes"
    assert not list(quotas.node.blobs.directory.rglob("draft-*"))
    assert upload(client, 400, b"b").status_code == 201
    assert used(client)["blob_bytes"] == 1000
    collect_blobs(quotas.node, 0)
    assert used(client)["blob_bytes"] == 0
    assert upload(client, 1000, b"c").status_code == 201
    assert show_quota(quotas.node, jane).used.blob_bytes == 1000


@pytest.mark.both_databases
@pytest.mark.parametrize("signs", ["node", "client"])
def test_what_another_process_is_about_to_store_counts(quotas: RunningNode, signs: str) -> None:
    """Two processes that publish for one identity at once do not go beyond its quota together."""
    log = LogBuilder(key(5), log_id=0)
    document = IdentityDocument("jane.haiku.ink", "https://jane.haiku.ink")
    if signs == "client":
        assert bring(quotas.anybody, log, "jane.haiku.ink", signed(log, document)).status_code == 201
        client, identity = quotas.sign_in("jane.haiku.ink"), identity_of(key(5).public)
    else:
        made, client = join(quotas, "jane.haiku.ink")
        identity = IdentityId(made)

    def fill(connection: Connection) -> None:
        lock_keys(connection, [identity])
        add_usage(connection, identity, StoredAmounts(entries=12 + IDENTITY_LOG_ALLOWANCE.entries))

    def publish() -> httpx.Response:
        if signs == "client":
            return client.patch("/me", json={"signed": signed(log, replace(document, name="Jane"))})
        return client.post("/schemas", json={"name": "texts"})

    assert refusal(begin_before_commit(quotas.node.database, fill, publish)) == (403, "quota.exceeded")


def test_person_sees_what_is_used_on_their_page(quotas: RunningNode) -> None:
    _, client = join(quotas, "jane.haiku.ink")
    assert upload(client, 600).status_code == 201
    cookie = client.headers["authorization"].removeprefix("Bearer ")
    page = quotas.anybody.get("/pages/me", headers={"cookie": f"__Host-inkgrove={cookie}", "accept": "text/html"})
    assert page.status_code == 200, page.text
    assert "600" in page.text
    assert "of 1,000" in page.text
    assert quotas.anybody.get("/me/usage").status_code == 401


def test_address_registers_only_so_many_identities_an_hour(quotas: RunningNode) -> None:
    def register(number: int) -> httpx.Response:
        body = {"fqdn": f"jane{number}.haiku.ink", "password": "correct horse battery"}
        return quotas.anybody.post("/identities", json=body)

    assert [register(number).status_code for number in range(4)] == [201, 201, 201, 429]
    refused = register(5)
    assert refusal(refused) == (429, "auth.too-many-attempts")
    assert int(refused.headers["retry-after"]) > 3000


class Disk:
    """A disk of which the tests say how much is left."""

    def __init__(self) -> None:
        self.left = 1000 * MIB

    def __call__(self, _path: Path) -> int:
        return self.left


@pytest.fixture
def disk(quotas: RunningNode) -> Disk:
    disk = Disk()
    quotas.node.disk = DiskReserve([quotas.home], 512 * MIB, free=disk, seconds=0)
    return disk


def test_below_the_reserve_people_sign_in_and_delete_but_store_nothing(quotas: RunningNode, disk: Disk) -> None:
    _, client = join(quotas, "jane.haiku.ink")
    schema = make_schema(client)
    made = create(client, schema, fields={"subject": "Hello"})["instance"]
    disk.left = 511 * MIB
    body = {"schema": schema, "fields": {"subject": "Hello"}}
    assert refusal(client.post("/instances", json=body)) == (507, "storage.low-disk")
    assert refusal(upload(client, 10)) == (507, "storage.low-disk")
    assert quotas.sign_in("jane.haiku.ink").get("/me").status_code == 200
    assert client.delete(f"/instances/{made}").status_code == 200
    disk.left = 512 * MIB
    assert client.post("/instances", json=body).status_code == 201
    assert upload(client, 10).status_code == 201


def test_small_deliveries_go_on_below_the_reserve_and_none_below_a_quarter_of_it() -> None:
    disk = Disk()
    reserve = DiskReserve([Path()], 400 * MIB, free=disk, seconds=0)
    reserve.require_for_delivery(10 * MIB)
    disk.left = 399 * MIB
    reserve.require_for_delivery(SMALL_DELIVERY)
    with raises("storage.low-disk"):
        reserve.require_for_delivery(SMALL_DELIVERY + 1)
    disk.left = 99 * MIB
    with raises("storage.low-disk"):
        reserve.require_for_delivery(1)
    DiskReserve([Path()], 0, free=disk).require()  # without a reserve nothing is asked

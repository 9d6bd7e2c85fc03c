"""Whom a request comes from: the connection says it, and only proxies that are trusted say otherwise."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from inkgrove.api.http.connections import TrustedProxies
from inkgrove.node.identity import network_of
from inkgrove.node.settings import NodeSettings
from tests.support.errors import raises
from tests.support.nodes import RunningNode


@pytest.fixture
def untrusting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    """A node as it is installed, whatever the environment says to uvicorn."""
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    with RunningNode(tmp_path, tmp_path, NodeSettings(sign_ins_per_address=2)) as node:
        yield node


@pytest.fixture
def trusting(tmp_path: Path) -> Iterator[RunningNode]:
    """A node behind a proxy on the same machine and one more in front of that."""
    settings = NodeSettings(sign_ins_per_address=2, trusted_proxies=("127.0.0.1", "10.0.0.0/8"), metrics="local")
    with RunningNode(tmp_path, tmp_path, settings) as node:
        yield node


def fail_to_sign_in(node: RunningNode, number: int, headers: Mapping[str, str]) -> int:
    facts = {"fqdn": f"x{number}.haiku.ink", "password": "wrong horse"}
    return node.anybody.post("/sessions", json=facts, headers=dict(headers)).status_code


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_headers_of_a_client_that_is_no_trusted_proxy_count_for_nothing(untrusting: RunningNode, header: str) -> None:
    form = "for={}" if header == "Forwarded" else "{}"
    tries = [
        fail_to_sign_in(untrusting, number, {header: form.format(f"198.51.100.{number}")}) for number in range(1, 4)
    ]
    assert tries == [401, 401, 429]


def test_trusted_proxy_says_whom_it_speaks_for(trusting: RunningNode) -> None:
    one, other = {"X-Forwarded-For": "198.51.100.1"}, {"X-Forwarded-For": "198.51.100.2, 10.1.2.3"}
    assert [fail_to_sign_in(trusting, number, one) for number in range(3)] == [401, 401, 429]
    assert fail_to_sign_in(trusting, 4, other) == 401
    # What stands further left is only claimed.
    claimed = {"X-Forwarded-For": "192.0.2.77, 198.51.100.1"}
    assert fail_to_sign_in(trusting, 5, claimed) == 429
    assert trusting.anybody.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403
    assert trusting.anybody.get("/metrics").status_code == 200


def test_only_a_trusted_proxy_says_that_a_request_came_over_https(
    trusting: RunningNode, untrusting: RunningNode
) -> None:
    for node, scheme in ((trusting, "https"), (untrusting, "http")):
        headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "elsewhere.example", "Host": "haiku.ink"}
        issuer = node.anybody.get("/.well-known/oauth-authorization-server", headers=headers).json()["issuer"]
        assert issuer == f"{scheme}://haiku.ink"


@pytest.mark.parametrize(
    ("given", "client"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("198.51.100.1:4711", "198.51.100.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        ("1.2.3.4,198.51.100.1 , 10.0.0.7", "198.51.100.1"),
        ("10.0.0.9, 10.0.0.7", "10.0.0.9"),
        ("1.2.3.4, unknown, 10.0.0.7", "10.0.0.7"),
        ("unknown", "127.0.0.1"),
        ("", "127.0.0.1"),
        (",,,", "127.0.0.1"),
        ("_hidden, 198.51.100.1", "198.51.100.1"),
    ],
)
def test_client_is_the_rightmost_address_that_is_no_trusted_proxy(given: str, client: str) -> None:
    proxies = TrustedProxies(("127.0.0.1", "10.0.0.0/8", "fd00::/8"))
    assert proxies.client_of("127.0.0.1", given) == client


@pytest.mark.parametrize("host", ["::ffff:127.0.0.1", "fd12::1", "10.255.0.1"])
def test_trusted_proxy_is_known_in_every_form_of_its_address(host: str) -> None:
    assert TrustedProxies(("127.0.0.1", "10.0.0.0/8", "fd00::/8")).trusts(host)


@pytest.mark.parametrize("item", ["*", "", "localhost", "10.0.0.1/8", "127.0.0.1:80"])
def test_what_is_no_address_or_network_is_no_trusted_proxy(item: str) -> None:
    with raises("settings.invalid", match=r"node\.trusted_proxies"):
        TrustedProxies((item,))


def test_addresses_of_ipv4_count_one_by_one_also_on_a_socket_of_ipv6() -> None:
    assert network_of("::ffff:198.51.100.1") == network_of("198.51.100.1") != network_of("::ffff:198.51.100.2")
    assert network_of("2001:db8::1") == network_of("2001:db8::2") != network_of("2001:db8:0:1::1")

"""Which addresses a node connects to, and what may stand for a name in development."""

from ipaddress import ip_address

import pytest

from inkgrove.federation.peers import Target, find_target, is_allowed, parse_resolve
from tests.support.errors import raises

NEAR = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "192.0.0.1",
    "192.0.2.1",
    "198.51.100.7",
    "203.0.113.9",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "169.254.169.254",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "::",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "3fff::1",
    "5f00::1",
    "fec0::1",
    "ff02::1",
    # Link-local, where clouds keep a machine's secrets: 169.254.169.254, 169.254.170.2, 169.254.42.42, fe80::a9fe:a9fe.
    "169.254.1.1",
    "169.254.170.2",
    "169.254.42.42",
    "64:ff9b::a9fe:aa02",
    "fe80::1",
    "fe80::1%eth0",
    "fe80::a9fe:a9fe",
    # The same in private ranges.
    "fd00:ec2::254",
    "fd00:ec2::254%eth0",
    "fd00:ec2::23",
    "fd20:ce::254",
    "fd20:ce::254%eth0",
    "fd00:c1::a9fe:a9fe",
    "fd00:42::42",
    "64:ff9b::a83f:8110",
    "64:ff9b::6464:64c8",
    # The rest of IANA's registries.
    "192.31.196.1",
    "192.52.193.1",
    "192.175.48.6",
    "100:0:0:1::1",
    "2001:1::1",
    "2001:4:112::1",
    "2001:20::1",
    "2001:30::1",
    "2620:4f:8000::6",
    "::ffff:0:10.0.0.1",
]
FAR = ["8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", [*NEAR, *NEVER])
def test_address_that_is_no_place_of_another_node_is_forbidden(address: str) -> None:
    assert not is_allowed(ip_address(address), allow_private=False)


@pytest.mark.parametrize("address", FAR)
def test_address_anywhere_on_the_internet_is_allowed(address: str) -> None:
    assert is_allowed(ip_address(address), allow_private=False)


@pytest.mark.parametrize("address", NEAR)
def test_setting_admits_the_own_network(address: str) -> None:
    assert is_allowed(ip_address(address), allow_private=True)


@pytest.mark.parametrize("address", NEVER)
def test_setting_admits_neither_metadata_nor_what_is_no_host(address: str) -> None:
    assert not is_allowed(ip_address(address), allow_private=True)


def test_closest_item_stands_for_a_name() -> None:
    targets = parse_resolve(
        ["*.haiku.ink=127.0.0.1:1", "*.john.haiku.ink=127.0.0.1:2", "jane.haiku.ink=127.0.0.1:3", "a.b.ink=[::1]:4"]
    )
    assert find_target(targets, "jane.haiku.ink") == Target(ip_address("127.0.0.1"), 3)
    assert find_target(targets, "john.haiku.ink") == Target(ip_address("127.0.0.1"), 1)
    assert find_target(targets, "x.y.john.haiku.ink") == Target(ip_address("127.0.0.1"), 2)
    assert find_target(targets, "a.b.ink") == Target(ip_address("::1"), 4)
    assert find_target(targets, "haiku.ink") is None
    assert find_target(targets, "jane.haiku.org") is None


@pytest.mark.parametrize(
    "item",
    [
        "",
        "jane.haiku.ink",
        "jane.haiku.ink=127.0.0.1",
        "jane.haiku.ink=localhost:80",
        "jane.haiku.ink=127.0.0.1:0",
        "jane.haiku.ink=127.0.0.1:65536",
        "jane.haiku.ink=10.0.0.1:80",
        "jane.haiku.ink=93.184.216.34:80",
        "*=127.0.0.1:80",
        "*.ink=127.0.0.1:80",
        "*.*.ink=127.0.0.1:80",
        "127.0.0.1=127.0.0.1:80",
    ],
)
def test_only_names_with_a_loopback_port_can_be_resolved_by_setting(item: str) -> None:
    with raises("federation.bad-resolve"):
        parse_resolve([item])

"""How much a node may send in a minute."""

import pytest

from inkgrove.federation.errors import QuotaUsedUp
from inkgrove.federation.peers import LookupQuota, Quotas
from tests.federation.conftest import Clock
from tests.support.logs import key

ONE, OTHER = key(1).public, key(2).public


def test_node_that_has_sent_enough_waits_for_the_next_minute(clock: Clock) -> None:
    clock.now = 600_000_000  # the beginning of a minute
    quotas = Quotas(10_000, clock)
    quotas.charge(ONE, 6_000)
    clock.go_on(20)
    with pytest.raises(QuotaUsedUp) as caught:
        quotas.charge(ONE, 6_000)
    assert caught.value.data["retry_after"] == 41
    quotas.charge(OTHER, 6_000)
    clock.go_on(40)
    quotas.charge(ONE, 6_000)


def test_small_requests_count_too(clock: Clock) -> None:
    quotas = Quotas(10_000, clock)
    quotas.charge(ONE, 1)
    quotas.charge(ONE, 1)
    with pytest.raises(QuotaUsedUp):
        quotas.charge(ONE, 2_000)


def test_first_request_may_be_larger_than_the_quota(clock: Clock) -> None:
    quotas = Quotas(10_000, clock)
    quotas.charge(ONE, 50_000)
    with pytest.raises(QuotaUsedUp):
        quotas.charge(ONE, 1)


def test_answers_count_when_they_are_made_and_are_not_sent_if_nothing_is_left(clock: Clock) -> None:
    quotas = Quotas(10_000, clock)
    for _ in range(2):  # two requests at once
        quotas.charge(ONE, 0)
    quotas.charge_answer(ONE, 50_000)
    with pytest.raises(QuotaUsedUp):
        quotas.charge_answer(ONE, 50_000)
    with pytest.raises(QuotaUsedUp):
        quotas.charge(ONE, 0)
    clock.go_on(60)
    quotas.charge(ONE, 0)
    quotas.charge_answer(ONE, 1)


def test_look_ups_count_by_what_they_bring_and_by_domain(clock: Clock) -> None:
    quota = LookupQuota(1_000_000, clock)
    quota.charge("one.evil.ink")
    quota.add("one.evil.ink", 70_000)
    with pytest.raises(QuotaUsedUp):
        quota.charge("two.evil.ink")
    quota.charge("john.haiku.ink")
    clock.go_on(60)
    quota.charge("two.evil.ink")


def test_look_ups_of_many_domains_have_a_limit_too(clock: Clock) -> None:
    quota = LookupQuota(1_000_000, clock)
    for number in range(244):
        quota.charge(f"a.evil{number}.ink")
    with pytest.raises(QuotaUsedUp):
        quota.charge("john.haiku.ink")


def test_answer_may_be_as_large_as_what_is_left_for_its_domain_and_for_all(clock: Clock) -> None:
    quota = LookupQuota(1_600_000, clock)
    quota.charge("one.evil.ink")
    assert quota.left("one.evil.ink") == 100_000
    quota.charge("two.evil.ink")
    assert quota.left("one.evil.ink") == 100_000 - 4096
    quota.add("one.evil.ink", 90_000)
    assert quota.left("two.evil.ink") == 10_000
    for number in range(16):
        quota.charge(f"a.evil{number}.ink")
        quota.add(f"a.evil{number}.ink", 90_000)
    assert 0 < quota.left("john.haiku.ink") < 100_000
    clock.go_on(60)
    assert quota.left("two.evil.ink") == 100_000 + 4096


def test_strangers_without_number_do_not_make_anybody_forgotten_who_has_sent_much(clock: Clock) -> None:
    quotas = Quotas(10_000, clock)
    quotas.charge("heavy", 9_000)
    for number in range(65_536):  # the networks of one IPv6 prefix of 48 bits
        quotas.charge(number, 1)
    with pytest.raises(QuotaUsedUp):
        quotas.charge("heavy", 9_000)
    quotas.charge("somebody else", 9_000)

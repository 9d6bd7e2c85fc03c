"""Who is sent an instance, and what a receiver makes of it: every mode x sender x standing."""

from dataclasses import replace
from itertools import product

import pytest

from inkgrove.core import identity_of
from inkgrove.messages import Access, AccessMode
from inkgrove.node.publishing import (
    ArrivingParcel,
    DeliveryDecision,
    SenderRelation,
    decide_acceptance,
    may_pass_on,
    may_receive,
)
from tests.support.logs import key

JOHN, BOB = identity_of(key(2).public), identity_of(key(3).public)
MODES: tuple[AccessMode, ...] = ("self", "closed", "listed", "relations", "public")


def access(mode: AccessMode | None) -> Access | None:
    return None if mode is None else Access(mode, (JOHN,) if mode == "closed" else ())


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("self", False), ("closed", False), ("listed", True), ("relations", True), ("public", True), (None, True)],
)
def test_what_may_be_passed_on(mode: AccessMode | None, expected: bool) -> None:
    assert may_pass_on(access(mode)) is expected


# mode: who of (sent to john, sent to bob, a follower, somebody else) gets what the owner says
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("self", (False, False, False, False)),
        ("closed", (True, False, False, False)),
        ("listed", (True, True, False, False)),
        (None, (True, True, False, False)),
        ("relations", (False, False, True, False)),
        ("public", (True, True, True, False)),
    ],
)
def test_who_gets_what_the_owner_says(mode: AccessMode | None, expected: tuple[bool, ...]) -> None:
    cases = [(JOHN, True, False), (BOB, True, False), (BOB, False, True), (BOB, False, False)]
    found = tuple(may_receive(access(mode), who, was_sent=sent, is_follower=follows) for who, sent, follows in cases)
    assert found == expected


def test_closed_instance_goes_to_nobody_it_names_but_was_not_sent_to() -> None:
    assert not may_receive(access("closed"), JOHN, was_sent=False, is_follower=True)


NOT_PASSED_ON, NOT_ADDRESSED = "federation.not-to-be-passed-on", "federation.not-addressed"


@pytest.mark.parametrize(("is_from_owner", "recipient"), list(product((True, False), (JOHN, BOB))))
@pytest.mark.parametrize("is_follower", [True, False])
@pytest.mark.parametrize("mode", [*MODES, None])
def test_what_a_receiver_makes_of_it(
    mode: AccessMode | None, is_follower: bool, is_from_owner: bool, recipient: object
) -> None:
    refusal = None
    if mode == "self" or (mode == "closed" and not is_from_owner):
        refusal = NOT_PASSED_ON
    elif mode == "closed" and recipient == BOB:
        refusal = NOT_ADDRESSED
    elif mode == "relations" and not is_follower:
        refusal = "federation.not-following"
    to = JOHN if recipient == JOHN else BOB
    for standing, fate in (
        (SenderRelation.KNOWN, DeliveryDecision.ACCEPTED),
        (SenderRelation.STRANGER, DeliveryDecision.HELD),
    ):
        arrival = ArrivingParcel(access(mode), is_from_owner, is_deletion=False)
        found, error = decide_acceptance(arrival, to, standing, is_follower=is_follower)
        assert (found, error.code if error else None) == (
            (DeliveryDecision.REFUSED, refusal) if refusal else (fate, None)
        )
        ended, error = decide_acceptance(replace(arrival, is_deletion=True), to, standing, is_follower=is_follower)
        assert (ended, error) == (fate, None)
    for is_deletion in (True, False):
        arrival = ArrivingParcel(access(mode), is_from_owner, is_deletion)
        found, error = decide_acceptance(arrival, to, SenderRelation.BLOCKED, is_follower=is_follower)
        assert (found, error.code if error else None) == (DeliveryDecision.REFUSED, "federation.blocked")

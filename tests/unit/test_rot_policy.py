"""Policies of rot: what is accepted, what is refused, and that a run remembers exactly what it began with."""

import pytest

from inkgrove.pipeline.rot.fungi import FUNGI
from inkgrove.pipeline.rot.policy import FUNGUS_NAMES, Limits, Policy, named_limits, parse_rules, restore_policy
from tests.support.errors import raises

SCHEMA = "88" * 32 + "/12"


def test_policies_know_every_fungus_by_name() -> None:
    assert tuple(FUNGI) == FUNGUS_NAMES


def test_policy_is_remembered_as_it_was() -> None:
    policy = Policy(
        fungus="egi",
        seed=4,
        node=Limits(bytes=10),
        per_schema=Limits(rows=3),
        identities={"ab" * 32: Limits(1, 2)},
        schemas={SCHEMA: Limits(rows=9)},
        fungi={SCHEMA: "fifo"},
        guards=("pinned",),
    )
    assert restore_policy(policy.render()) == policy


@pytest.mark.parametrize(
    "wrong",
    [
        {"fungus": "penicillin"},
        {"fungi": {SCHEMA: "mould"}},
        {"fungi": {"slothmail": "fifo"}},
        {"schemas": {"88/12": Limits()}},
        {"identities": {"jane": Limits()}},
        {"guards": ("own",)},
        {"node": Limits(bytes=-1)},
        {"absence_seconds": -1},
    ],
)
def test_policy_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with raises("rot.bad-policy"):
        Policy(**wrong)  # type: ignore[arg-type]


def test_rules_are_read_from_text() -> None:
    table = {SCHEMA: "fungus=fifo rows=500", "x": "bytes=7"}
    assert list(named_limits(table, ("bytes", "rows", "fungus"))) == [
        (SCHEMA, Limits(0, 500), "fifo"),
        ("x", Limits(7, 0), None),
    ]
    for text in ("rows", "rows=1 rows=2", "colour=red", "fungus=fifo"):
        with raises("rot.bad-policy"):
            parse_rules(text, ("bytes", "rows"))
    with raises("rot.bad-policy"):
        list(named_limits({"x": "rows=-1"}, ("rows",)))

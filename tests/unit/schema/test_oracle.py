"""The fold of `inkgrove.schema` against the oracle, over generated worlds with every fault we know of."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from inkgrove.core import SecretKey
from inkgrove.messages import OutcomeCode, SchemaId
from inkgrove.reference import fold_views
from tests.support.devices import ControlGenerator, DeviceGenerator
from tests.support.generated import Generator, World
from tests.support.logs import LogBuilder
from tests.support.tiers import amount
from tests.support.whole_fold import Comparable, comparable, fold_world

SEEDS = st.integers(0, 2**40)


def exact(views: Comparable) -> dict[str, list[str]]:
    """By text: equality alone does not tell 1 from 1.0 and True."""
    return {
        str(schema): [
            repr((view["version"], view["waits_for"], view["absent"])),
            repr(sorted((instance, repr(row)) for instance, row in view["rows"].items())),
            repr(sorted((entry, outcome.value, code) for entry, (outcome, code) in view["outcomes"].items())),
            repr(sorted(view["lines"].items())),
        ]
        for schema, view in views.items()
    }


def oracle(world: World) -> dict[str, list[str]]:
    return exact(comparable(fold_views(world.held, world.registered)))


@settings(max_examples=amount(100, 400), deadline=None)
@given(SEEDS)
def test_fold_equals_the_oracle(seed: int) -> None:
    world = Generator(seed).world()
    assert exact(fold_world(world.held, world.registered)) == oracle(world)


@settings(max_examples=amount(100, 400), deadline=None)
@given(SEEDS)
def test_fold_equals_the_oracle_where_keys_of_one_identity_end_what_others_wrote(seed: int) -> None:
    for generator in (DeviceGenerator, ControlGenerator):
        world = generator(seed).world()
        assert exact(fold_world(world.held, world.registered)) == oracle(world)


@settings(max_examples=amount(20, 60), deadline=None)
@given(SEEDS)
def test_order_and_repetition_of_entries_do_not_matter(seed: int) -> None:
    world = Generator(seed).world()
    expected = oracle(world)
    rng = random.Random(seed)
    world.held += rng.sample(world.held, len(world.held) // 2)
    rng.shuffle(world.held)
    assert oracle(world) == expected
    assert exact(fold_world(world.held, world.registered)) == expected


@settings(max_examples=amount(20, 60), deadline=None)
@given(SEEDS)
def test_unrelated_logs_change_nothing(seed: int) -> None:
    world = Generator(seed).world()
    expected = oracle(world)
    stranger = LogBuilder(SecretKey.from_seed(b"\xee" * 32), log_id=5)
    stranger.append(Generator.payload({"kind": "schema-meta", "name": "other", "spec": 1}))
    stranger.append(
        Generator.payload({"kind": "schema-migration", "fields": [{"a": {"action": "create", "type": "text"}}]})
    )
    writer = LogBuilder(SecretKey.from_seed(b"\xef" * 32), log_id=1)
    named = [bytes(stranger.secret.public), 5, 2]
    writer.append(Generator.payload({"kind": "create", "schema": named, "fields": [{"a": "x"}]}))
    writer.append(Generator.payload({"kind": "delete", "instance": 1}))
    world.held += stranger.held() + writer.held()
    assert oracle(world) == expected


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_fold_equals_the_oracle_where_texts_are_long_for_their_patterns(seed: int) -> None:
    rng = random.Random(seed)
    patterns = [None, "(?s).*", "(?s).*x{0,1}", r"(?s).*[\pL\pN]?", r"(?s).*[\pL\pN ]?", "(?s).*!"]
    schema = LogBuilder(SecretKey.from_seed(b"\xe1" * 32), log_id=5)
    schema.append(Generator.payload({"kind": "schema-meta", "name": "long", "spec": 1}))

    def migrate(action: str, **facts: str) -> None:
        changes: list[dict[str, dict[str, Any]]] = []
        for name in "abc":
            pattern = rng.choice(patterns)
            text = "x" * rng.choice([0, 10, 9_000]) + "!"
            change = {"action": action, **facts, "validation": pattern, "default": text}
            changes.append({name: {key: value for key, value in change.items() if value is not None}})
        schema.append(Generator.payload({"kind": "schema-migration", "fields": changes}))

    migrate("create", type="text")
    for _ in range(rng.randrange(5)):
        migrate("update")
    writer = LogBuilder(SecretKey.from_seed(b"\xe2" * 32), log_id=1)
    for _ in range(8):
        named = [bytes(schema.secret.public), 5, rng.randrange(2, len(schema.held()) + 1)]
        names = rng.sample("abc", rng.randrange(1, 4))
        fields = [{name: "x" * rng.choice([5, 3_000, 8_191, 16_383, 32_767, 131_071]) + "!"} for name in names]
        writer.append(Generator.payload({"kind": "create", "schema": named, "fields": fields}))
    world = World(schema.held() + writer.held(), registered=[SchemaId(schema.secret.public, 5)])
    assert exact(fold_world(world.held, world.registered)) == oracle(world)


def test_generated_worlds_reach_every_outcome() -> None:
    """The properties above are worth what their worlds contain."""
    seen = set()
    rows = 0
    for seed in range(400):
        world = Generator(seed).world()
        for view in fold_world(world.held, world.registered).values():
            rows += len(view["rows"])
            seen |= {code for _, code in view["outcomes"].values()}
    assert {code.code for code in OutcomeCode} <= seen
    assert {"log.forked", "log.invalid-since", "message.unknown-kind", "cbor.length-exceeds-input"} <= seen
    assert rows > 300

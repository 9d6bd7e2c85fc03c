"""Every hand-written world under tests/vectors/views: the oracle and the fold of `inkgrove.schema` get it right."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import HeldEntry, verify_signed
from inkgrove.core.errors import BadSignature
from inkgrove.messages import OutcomeCode
from inkgrove.reference import fold_views
from tests.support.whole_fold import comparable, fold_world
from tests.support.world import World, differences, load_expected, load_world

VIEWS = Path(__file__).resolve().parents[1] / "vectors" / "views"
WORLDS = sorted(path.parent for path in VIEWS.glob("*/world.yaml"))


@cache
def load(folder: Path) -> World:
    """The world of a folder; both folds are held to the same."""
    return load_world(folder / "world.yaml")


def held_entries(world: World) -> list[HeldEntry]:
    held = []
    for entry, payload in world.entries:
        try:
            held.append(HeldEntry(verify_signed(entry), payload))
        except BadSignature:
            continue
    return held


def neutral_views(views: dict[Any, dict[str, Any]], world: World) -> list[dict[str, Any]]:
    places = _hashes(world)
    result = []
    for schema, view in views.items():
        rows = [
            {
                "instance": instance,
                "author": row["place"][0],
                "log_id": row["place"][1],
                "seq_num": row["place"][2],
                "last_seq_num": row["last"][0],
                "fields": row["fields"],
                "access": None if row["rest"][0] is None else {"mode": row["rest"][0].mode, "to": row["rest"][0].to},
                "expires": row["rest"][1],
                "copied_from": row["rest"][2],
            }
            for instance, row in view["rows"].items()
        ]
        outcomes = [
            {**places[entry], "outcome": outcome.value, "code": code}
            for entry, (outcome, code) in view["outcomes"].items()
        ]
        schema_name = None if schema is None else list(schema)
        result.append(
            {"schema": schema_name, **view, "rows": rows, "outcomes": outcomes, "lines": list(view["lines"].items())}
        )
    return result


def _hashes(world: World) -> dict[bytes, dict[str, Any]]:
    return {
        item.signed.hash: {
            "author": item.signed.entry.author,
            "log_id": item.signed.entry.log_id,
            "seq_num": item.signed.entry.seq_num,
        }
        for item in held_entries(world)
    }


@pytest.mark.parametrize("folder", WORLDS, ids=lambda folder: folder.name)
def test_oracle_makes_of_the_world_what_is_expected(folder: Path) -> None:
    world = load(folder)
    views = comparable(fold_views(held_entries(world), world.registered))
    assert differences(world, neutral_views(views, world), load_expected(folder / "expected.yaml", world)) == []


@pytest.mark.parametrize("folder", WORLDS, ids=lambda folder: folder.name)
def test_fold_makes_of_the_world_what_is_expected(folder: Path) -> None:
    world = load(folder)
    views = fold_world(held_entries(world), world.registered)
    assert differences(world, neutral_views(views, world), load_expected(folder / "expected.yaml", world)) == []


def test_every_outcome_code_has_a_world() -> None:
    stated = "".join((folder / "expected.yaml").read_text() for folder in WORLDS)
    assert [code.code for code in OutcomeCode if f", {code.code}]" not in stated] == []

"""Write `entries.jsonl` beside every `tests/vectors/views/*/world.yaml`, or check that it is up to date.

    .venv/bin/python scripts/make_views.py [--check]

`--check` writes nothing; it exits with 1 and names the worlds whose file differs.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.support.world import World, load_expected, load_world

VIEWS = ROOT / "tests" / "vectors" / "views"


def render_entries(world: World) -> str:
    """The held entries as JSON lines."""
    lines = (
        json.dumps({"entry": entry.encoded.hex(), "payload": None if payload is None else payload.hex()})
        for entry, payload in world.entries
    )
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the entries of the worlds in tests/vectors/views.")
    parser.add_argument("--check", action="store_true", help="only compare, and exit with 1 on a difference")
    check_only = parser.parse_args().check
    stale = []
    for directory in sorted(path for path in VIEWS.iterdir() if path.is_dir()):
        try:
            world = load_world(directory / "world.yaml")
            load_expected(directory / "expected.yaml", world)
        except Exception as err:
            err.add_note(f"in {directory.relative_to(ROOT)}")
            raise
        target, text = directory / "entries.jsonl", render_entries(world)
        if target.exists() and target.read_text() == text:
            continue
        stale.append(directory.name)
        if not check_only:
            target.write_text(text)
    for name in stale:
        print(f"{'differs' if check_only else 'written'}: {name}")
    return 1 if check_only and stale else 0


if __name__ == "__main__":
    sys.exit(main())

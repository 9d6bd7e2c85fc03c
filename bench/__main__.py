"""Prints the table and writes bench/results/latest.json; `python -m bench pipeline node` measures these suites only.

`python -m bench costs` is another table: what every route costs a stranger (`bench/costs.md`).
"""

import json
import platform
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

SUITES = (
    "verification",
    "migration",
    "archive",
    "person_file",
    "pipeline",
    "node",
    "reading",
    "federation",
    "rot_pass",
    "demo",
)


def main() -> None:
    table = Table(title="Inkgrove bench: ratios to a baseline in the same run", title_justify="left")
    for name, justify in (("what", "left"), ("per second", "right"), ("baseline", "left"), ("per second", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("ratio", "target", "met"):
        table.add_column(name, justify="right")
    rows = []
    console = Console(width=150)
    for name in sys.argv[1:] or SUITES:
        with console.status(f"measuring {name} ..."):
            found = list(import_module(f"bench.{name}").rows())
        for row in found:
            met = "yes" if row.is_met else "no"
            table.add_row(
                row.name,
                _rate(row.rate),
                row.baseline,
                _rate(row.baseline_rate),
                f"{row.ratio:.2f}",
                row.target,
                met,
            )
        rows += found
    console.print(table)
    target = Path(__file__).parent / "results" / "latest.json"
    target.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    target.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    console.print(f"written to {target.relative_to(Path.cwd())}")


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["costs"]:
        import_module("bench.costs").main(sys.argv[2:])
    else:
        main()

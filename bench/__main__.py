"""Prints the table and writes bench/results/latest.json."""

import json
import platform
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import archive, migration, node, pipeline, reading, rot_pass, verification

SUITES = (verification, migration, archive, pipeline, node, reading, rot_pass)


def main() -> None:
    table = Table(title="Inkgrove bench: ratios to a baseline in the same run", title_justify="left")
    for name, justify in (("what", "left"), ("per second", "right"), ("baseline", "left"), ("per second", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name in ("ratio", "target", "met"):
        table.add_column(name, justify="right")
    rows = []
    console = Console(width=150)
    for suite in SUITES:
        with console.status(f"measuring {suite.__name__} ..."):
            found = list(suite.rows())
        for row in found:
            met = "yes" if row.is_met else "no"
            table.add_row(
                row.name,
                f"{row.rate:,.0f}",
                row.baseline,
                f"{row.baseline_rate:,.0f}",
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


if __name__ == "__main__":
    main()

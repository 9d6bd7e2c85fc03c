"""`python -m bench.rot`: simulates every fungus, prints what it leaves and which anchors fail."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from rich.console import Console
from rich.table import Table

from bench.rot.anchors import check_anchors
from bench.rot.simulation import simulate_all
from bench.rot.streams import STREAMS
from inkgrove.pipeline.runtime.session import start_session


def main() -> int:
    console = Console(width=120)
    start = perf_counter()
    with TemporaryDirectory() as logs:
        spark = start_session(Path(logs))
        with console.status("simulating ..."):
            outcomes = simulate_all(spark)
        spark.stop()
    table = Table(title="Share of reads that find their copy; error of the average", title_justify="left")
    for name in ("fungus", "churn", *STREAMS, "raw error", "cooked error"):
        table.add_column(name, justify="left" if name == "fungus" else "right")
    for item in outcomes:
        shares = [f"{item.precision[stream]:.3f}" for stream in STREAMS]
        table.add_row(item.fungus, f"{item.churn:.0%}", *shares, f"{item.raw_error:.2%}", f"{item.cooked_error:.4%}")
    console.print(table)
    failures = check_anchors(outcomes)
    for failure in failures:
        console.print(f"not as it must be: {failure}")
    if not failures:
        console.print(f"every anchor came out; {perf_counter() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

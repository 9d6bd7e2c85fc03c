"""Draws docs/images/fungi.svg: what each fungus leaves of a history of five times the budget."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.rot.simulation import Case, simulate
from inkgrove.pipeline.rot.fungi import FUNGI
from inkgrove.pipeline.rot.picture import draw_remains, render_svg
from inkgrove.pipeline.runtime.session import start_session

_BUDGET, _CHURN, _ROUNDS, _PARTS = 600, 0.8, 5, 120


def main() -> None:
    with TemporaryDirectory() as logs:
        spark = start_session(Path(logs))
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        outcomes = simulate(spark, [Case(name, _CHURN, _BUDGET, _ROUNDS) for name in FUNGI])
        spark.stop()
    rows = [(item.fungus, [float(part.mean()) for part in np.array_split(item.held, _PARTS)]) for item in outcomes]
    picture = draw_remains("what each fungus leaves of a history of five times the budget", rows)
    (ROOT / "docs" / "images" / "fungi.svg").write_text(render_svg(picture))


if __name__ == "__main__":
    main()

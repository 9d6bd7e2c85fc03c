"""No action of the pipeline brings rows to the driver: the calls that bring anything are few, each has its reason."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PIPELINE = Path(__file__).resolve().parents[2] / "src" / "inkgrove" / "pipeline"
BRINGS = {"collect", "toPandas", "toArrow", "take", "first", "head", "tail", "toLocalIterator", "foreach", "show"}

KNOWN = {
    ("views/materialiser.py", "_fold", "toArrow"): "one row for each task: counts, and the name of its stage",
    ("runtime/workers.py", "stage_rows", "toArrow"): "the names of four stages at most",
    ("archive/transfer.py", "_counts", "collect"): "lines grouped by status and code: a few rows",
    ("rot/run.py", "_count", "collect"): "copies grouped by step, guard, reason and bin: a few hundred rows",
}


def calls_in(path: Path) -> Iterator[tuple[str, str, str]]:
    """Every call that may bring rows: the file, the innermost function around it, and its name."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str, str]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BRINGS:
            yield str(path.relative_to(PIPELINE)), function, node.func.attr
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(ast.parse(path.read_text()), "")


def test_only_known_calls_bring_rows_to_the_driver() -> None:
    found = Counter(call for path in sorted(PIPELINE.rglob("*.py")) for call in calls_in(path))
    assert found == Counter(dict.fromkeys(KNOWN, 1))

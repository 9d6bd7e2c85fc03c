"""The order of the layers, as data: a folder imports only from those before it (ARCHITECTURE: layers)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "inkgrove"

CORE = {"core", "messages"}
# The whole order of the architecture, also where a folder does not exist yet.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "messages": {"core"},
    "schema": CORE,
    "reference": CORE,  # the oracle shares nothing with what it judges
    "store": CORE | {"schema"},
    "node": CORE | {"schema", "store"},
    "federation": CORE | {"schema", "store", "node"},
    "pipeline": CORE | {"schema", "store"},
    "client": CORE,
    "api": CORE | {"schema", "store", "node", "federation"},
    "pages": CORE | {"schema", "store", "node", "federation", "api"},
    "cli": CORE
    | {"schema", "reference", "store", "node", "federation", "pipeline", "client", "api", "pages"}
    | {"settings"},  # only what puts the parts together reads settings: the parts are handed values
}
MODULES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0] if path.parent != SOURCE else ""


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_to_earlier_layers(path: Path) -> None:
    layer = layer_of(path)
    if layer == "":
        return
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "inkgrove" and len(parts) > 1 and parts[1] != "__version__":
            assert parts[1] == layer or parts[1] in MAY_IMPORT[layer], f"{path.name} in {layer}/ imports {name}"
        assert parts[0] != "pyspark" or layer == "pipeline", f"{path.name} in {layer}/ imports Spark"


def test_every_folder_is_a_known_layer() -> None:
    assert {layer_of(path) for path in MODULES} - {""} <= set(MAY_IMPORT)


def test_only_verification_makes_verified_entries() -> None:
    makers = {path.name for path in MODULES if "VerifiedEntry(" in path.read_text()}
    assert makers == {"verify.py"}


def test_init_files_only_describe_and_re_export() -> None:
    for path in SOURCE.rglob("__init__.py"):
        for node in ast.parse(path.read_text()).body:
            assert isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign), f"{path}: {ast.dump(node)[:80]}"

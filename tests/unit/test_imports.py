"""The contracts on imports in pyproject.toml hold, and each of them notices what it forbids."""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "inkgrove"
MODULES = sorted(SOURCE.rglob("*.py"))

# One import for each contract that it must refuse: the package that gets it, and what it imports.
WRONG_IMPORTS = {
    "A package imports only packages below it": ("messages", "inkgrove.settings"),
    "A node works without the pipeline": ("node/runtime", "inkgrove.pipeline.views"),
    "The client and the oracle of the tests have nothing but core and messages": ("client", "inkgrove.schema"),
    "Core has no I/O, no clock and no chance": ("core", "time"),
    "Messages and schemas have no I/O": ("schema", "pathlib"),
    "SQL only in the store": ("node/identity", "sqlalchemy"),
    "Spark only in the pipeline": ("cli", "pyspark.sql"),
    "A room of the store imports only rooms below it": ("store/db", "inkgrove.store.rot"),
    "A room of the node imports only rooms below it": ("node/reading", "inkgrove.node.publishing"),
    "A room of the federation imports only rooms below it": ("federation/peers", "inkgrove.federation.sharing"),
    "A room of the pipeline imports only rooms below it": ("pipeline/views", "inkgrove.pipeline.rot"),
    "A room of the API imports only rooms below it": ("api/http", "inkgrove.api.routes"),
}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run what `make lint` runs on the package in a folder."""
    command = [
        str(Path(sys.executable).parent / "lint-imports"),
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_contracts_on_imports_hold() -> None:
    done = lint_imports(SOURCE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_contract_on_imports_fails_when_it_is_broken(tmp_path: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == WRONG_IMPORTS.keys()
    shutil.copytree(SOURCE, tmp_path / "inkgrove", ignore=shutil.ignore_patterns("__pycache__"))
    for package, name in WRONG_IMPORTS.values():
        with (tmp_path / "inkgrove" / package / "__init__.py").open("a") as file:
            file.write(f"\nimport {name}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stderr
    for contract in WRONG_IMPORTS:
        assert f"{contract} BROKEN" in done.stdout, contract


def test_imports_are_absolute() -> None:
    for path in MODULES:
        for item in ast.walk(ast.parse(path.read_text())):
            assert not isinstance(item, ast.ImportFrom) or item.level == 0, f"{path}: relative import"


def test_only_verification_makes_signed_and_verified_entries() -> None:
    assert makers_of("SignedEntry") == makers_of("VerifiedEntry") == {"core/verify.py"}


def test_signatures_are_trusted_only_where_they_are_known_to_hold() -> None:
    assert makers_of("trust_signed") == {
        "core/next_entry.py",  # has just signed it
        "messages/delivery.py",  # an entry with these bytes is held
        "node/person_file/load.py",  # the first reading of the file has checked it
        "pipeline/archive/load.py",  # a task before has checked it
    }


def makers_of(name: str) -> set[str]:
    """The modules that call a class or function."""
    return {
        str(path.relative_to(SOURCE))
        for path in MODULES
        for item in ast.walk(ast.parse(path.read_text()))
        if isinstance(item, ast.Call) and ast.unparse(item.func).rpartition(".")[2] == name
    }


def test_init_files_only_describe_and_re_export() -> None:
    for path in SOURCE.rglob("__init__.py"):
        for item in ast.parse(path.read_text()).body:
            assert isinstance(item, ast.Expr | ast.ImportFrom | ast.Assign), f"{path}: {ast.dump(item)[:80]}"

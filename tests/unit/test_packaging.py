"""`pip install inkgrove` is the client alone: few packages, and the client needs nothing of the extras."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import inkgrove

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "inkgrove"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def needed(name: str, found: set[str]) -> set[str]:
    """Add `name` and all that it needs without extras on this Python to `found`."""
    name = canonicalize_name(name)
    if name not in found:
        found.add(name)
        for line in requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name, found)
    return found


def installed(*extras: str) -> set[str]:
    """The packages that an installation with these extras brings."""
    found: set[str] = set()
    for line in chain(PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)):
        needed(Requirement(line).name, found)
    return found


def test_installation_without_extras_brings_at_most_twelve_packages() -> None:
    assert len(installed()) <= 12, sorted(installed())


def test_client_works_where_only_an_installation_without_extras_is() -> None:
    here = installed() | {"inkgrove"}
    owners = packages_distributions()
    absent = [name for name, owned in owners.items() if here.isdisjoint(map(canonicalize_name, owned))]
    assert {"pyspark", "sqlalchemy", "fastapi", "typer", "yaml"} <= set(absent)
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); from inkgrove.client import AsyncClient, Client"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_but_the_pipeline_loads_only_what_the_extra_node_brings() -> None:
    brought, owners = installed("node") | {"inkgrove"}, packages_distributions()
    for file in SOURCE.rglob("*.py"):
        if file.is_relative_to(SOURCE / "pipeline"):
            continue
        for item in ast.parse(file.read_text()).body:  # what is imported in functions is for those who call them
            names = [alias.name for alias in item.names] if isinstance(item, ast.Import) else []
            names += [item.module or ""] if isinstance(item, ast.ImportFrom) else []
            for name in names:
                owned = {canonicalize_name(owner) for owner in owners.get(name.partition(".")[0], [])}
                assert not owned or owned & brought, f"{file.relative_to(SOURCE)} imports {name}"


def test_all_brings_every_extra_that_a_node_can_use() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras.keys() == {"node", "pipeline", "postgres", "all", "dev"}
    named: set[str] = set()
    waiting = ["all"]
    while waiting:
        name = waiting.pop()
        named.add(name)
        for line in extras[name]:
            requirement = Requirement(line)
            waiting += requirement.extras - named if requirement.name == "inkgrove" else []
    assert named == extras.keys() - {"dev"}


def test_version_is_the_same_in_package_changelog_and_citation() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    released = re.search(r"^## (\d+\.\d+\.\d+) \((\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    assert released is not None
    citation = (ROOT / "CITATION.cff").read_text()
    assert released[1] == inkgrove.__version__
    assert f"\nversion: {released[1]}\ndate-released: {released[2]}\n" in citation

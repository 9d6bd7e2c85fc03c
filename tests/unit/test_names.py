"""One name means one thing: class names are unique and stand in the glossary, docstrings say what they are about."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "inkgrove"

# Classes of the client that are named for what a node answers, as the class in the other module is.
MAY_BE_DEFINED_TWICE = {
    "PublishReceipt": {"client/models.py", "node/publishing/entries.py"},  # what is answered for one signed entry
    "Schema": {"client/models.py", "schema/schema.py"},  # what GET /schemas answers, and a schema with all versions
    "View": {"client/client.py", "store/views/catalog.py"},  # a view to be queried over HTTP, and one in the store
    "ViewQuery": {"client/reading.py", "node/reading/query.py"},  # the parameters of a view, before and after HTTP
}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public_classes() -> Iterator[tuple[str, str, ast.ClassDef]]:
    """Name, module and definition of each public class at the top of a module."""
    for path in sorted(SOURCE.rglob("*.py")):
        for item in ast.parse(path.read_text()).body:
            if isinstance(item, ast.ClassDef) and not item.name.startswith("_"):
                yield item.name, path.relative_to(SOURCE).as_posix(), item


def test_public_class_names_are_unique() -> None:
    modules: dict[str, set[str]] = defaultdict(set)
    for name, module, _ in public_classes():
        assert module not in modules[name], f"{name} twice in {module}"
        modules[name].add(module)
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert twice == MAY_BE_DEFINED_TWICE


def test_every_public_class_is_in_the_glossary() -> None:
    words = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "glossary.md").read_text()))
    assert {name for name, _, _ in public_classes()} - words == set(), "run make docs"


def test_every_public_class_has_a_sentence() -> None:
    """The error tables have the sentences on errors."""
    without = [(module, name) for name, module, item in public_classes() if not ast.get_docstring(item)]
    assert [(module, name) for module, name in without if Path(module).name != "errors.py"] == []


def test_every_package_and_module_says_what_it_is_for() -> None:
    bare = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if len(ast.get_docstring(ast.parse(path.read_text())) or "") < 20
    ]
    assert bare == []


def test_no_docstring_begins_with_the_same() -> None:
    """Such a sentence has to be looked up elsewhere."""
    found = [
        f"{path.relative_to(SOURCE)}: {getattr(item, 'name', 'module')}"
        for path in SOURCE.rglob("*.py")
        for item in ast.walk(ast.parse(path.read_text()))
        if isinstance(item, Documented) and (ast.get_docstring(item) or "").startswith("The same")
    ]
    assert found == []

"""Nothing is undocumented: every command, setting, route and error code has its words, and every page can be found."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from inkgrove.api.app import make_app
from inkgrove.cli.main import app
from inkgrove.client import errors as client_errors
from inkgrove.core.errors import CODES
from inkgrove.federation import errors as federation_errors
from inkgrove.node import errors as node_errors
from inkgrove.node.runtime import Node
from inkgrove.node.settings import NodeSettings
from inkgrove.settings import all_settings

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOURCE = DOCS.parent / "src" / "inkgrove"
FAMILIES = (client_errors, federation_errors, node_errors)  # their codes are in the table once they are imported


def page(name: str) -> str:
    return (DOCS / name).read_text()


def leaves(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
    for name, item in (inner or {}).items():
        yield from leaves(item, f"{path} {name}")


def test_every_command_is_documented() -> None:
    text = page("commands.md")
    for path, command in leaves(typer.main.get_command(app), "inkgrove"):
        assert f"\n## {path}\n" in text, path
        assert command.help, path


def test_every_setting_is_documented() -> None:
    text = page("settings.md")
    for item in all_settings().values():
        assert f"| `{item.name}`<br>`{item.variable}` |" in text, item.name
        assert re.fullmatch(r"[A-Z].*\.", item.about), item.name


def test_every_route_is_documented(tmp_path: Path) -> None:
    node = Node(tmp_path, NodeSettings(), home=tmp_path)
    application = make_app(node)
    text, paths = page("http.md"), application.openapi()["paths"]
    node.close()
    for path, item in paths.items():
        for method, operation in item.items():
            assert f"\n### {method.upper()} {path}\n" in text, (method, path)
            assert operation["description"].endswith("."), (method, path)


def test_every_error_code_is_documented() -> None:
    text = page("errors.md")
    assert len(CODES) > 150
    for item in CODES.values():
        assert f"| `{item.name}` | {item.status} | {item.sentence} |" in text, item
        assert f"## {item.name.partition('.')[0]}.\\*" in text, item


def test_no_code_is_written_where_the_error_page_does_not_see_it() -> None:
    """Only codes of the table; what is put together from a status has words of its own."""
    written = []
    for file in sorted(SOURCE.rglob("*.py")):
        for item in ast.walk(ast.parse(file.read_text())):
            if isinstance(item, ast.keyword) and item.arg == "code" and isinstance(item.value, ast.Constant):
                is_code = not isinstance(item.value.value, str) or item.value.value in CODES
                written += [] if is_code else [f"{file.name}: {item.value.value!r}"]
    assert written == []
    assert "`http.STATUS`" in page("errors.md")
    assert "`http.STATUS`" in page("federation.md")


@pytest.mark.parametrize("file", sorted(DOCS.glob("*.md")), ids=lambda file: file.name)
def test_every_page_can_be_found_from_the_index(file: Path) -> None:
    assert file.name == "index.md" or f"]({file.name})" in page("index.md"), file.name

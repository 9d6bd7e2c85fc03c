"""Writes the tables of rooms and classes in docs/glossary.md from docstrings; the words above them are written by hand.

`--check` only compares. Nothing is imported: the source is read as text.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "inkgrove"
PAGE = ROOT / "docs" / "glossary.md"
MARK = "<!-- From here on the page is made from docstrings by scripts/make_glossary.py (make docs). -->\n"
PROJECT = ROOT / "pyproject.toml"


class Described(NamedTuple):
    """A public class with the first sentence of its docstring."""

    name: str
    sentence: str
    bases: tuple[str, ...]


def first_sentence(text: str | None) -> str:
    """The first sentence of a docstring on one line."""
    line = " ".join((text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[^.\s])\. ", line, maxsplit=1)[0].rstrip(".").replace("|", "\\|")


def read_classes(path: Path) -> Iterator[Described]:
    """The public classes of a module, in its order."""
    for item in ast.parse(path.read_text()).body:
        if isinstance(item, ast.ClassDef) and not item.name.startswith("_"):
            bases = tuple(ast.unparse(base).rpartition(".")[2] for base in item.bases)
            yield Described(item.name, first_sentence(ast.get_docstring(item)), bases)


def read_order() -> dict[str, int]:
    """The rank of each package and room: those that others import come first, by the layers in pyproject.toml."""
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    found: list[str] = []
    for contract in contracts:
        for container in contract.get("containers", []):
            folder = container.replace(".", "/").removeprefix("inkgrove").strip("/")
            names = [name.strip(" ()") for layer in reversed(contract["layers"]) for name in layer.split("|")]
            found += [f"{folder}/{name}".strip("/") for name in names]
    return {name: rank for rank, name in enumerate(found)}


def find_rooms() -> dict[str, list[Path]]:
    """The modules of each package or room; those beside all packages belong to none, named by an empty string."""
    rooms: dict[str, list[Path]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.parent.relative_to(SOURCE).as_posix()
        if path.name not in {"__init__.py", "__main__.py"} and "migrations" not in room:
            rooms.setdefault("" if room == "." else room, []).append(path)
    order = read_order()
    last = len(order)
    return dict(
        sorted(rooms.items(), key=lambda item: (order.get(item[0].partition("/")[0], last), order.get(item[0], -1)))
    )


def find_errors(classes: dict[str, Described]) -> set[str]:
    """The names of `InkgroveError` and all classes below it."""
    found = {"InkgroveError"}
    while more := {item.name for item in classes.values() if found & set(item.bases)} - found:
        found |= more
    return found


def make_tables() -> str:
    """Everything below the mark."""
    rooms = find_rooms()
    by_room = {room: [item for path in paths for item in read_classes(path)] for room, paths in rooms.items()}
    errors = find_errors({item.name: item for items in by_room.values() for item in items})
    lines = ["", "## Rooms", "", "| package or room | what it is for | modules |", "|---|---|---|"]
    for room, paths in rooms.items():
        if room:
            about = first_sentence(ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())))
            lines.append(f"| `{room}` | {about} | {', '.join(f'`{path.stem}`' for path in paths)} |")
    lines += ["", "## Classes, room by room", ""]
    lines += ["Every public class, with the first sentence of its docstring. A test holds the names to the source."]
    for room, items in by_room.items():
        if known := [item for item in items if item.name not in errors]:
            lines += ["", f"### {room or 'beside the packages'}", "", "| class | what it is |", "|---|---|"]
            lines += [f"| `{item.name}` | {item.sentence} |" for item in sorted(known)]
    lines += ["", "### Errors", ""]
    lines += [
        "Every error is an `InkgroveError` with a stable [code](errors.md), and belongs to a family. A code has a class of its"
    ]
    lines += ["own (a `SingleCode`) only where some module catches it.", "", "| family | classes |", "|---|---|"]
    families: dict[str, list[str]] = {}
    for item in sorted(item for items in by_room.values() for item in items if item.name in errors):
        family = next((base for base in item.bases if base in errors and base != "SingleCode"), "")
        families.setdefault(item.name if family == "InkgroveError" else family, []).append(item.name)
    for family in sorted(families.keys() - {"", "SingleCode"}):
        names = [f"`{name}`" for name in families[family] if name != family]
        lines.append(f"| `{family}` | {', '.join(names)} |")
    return "\n".join(lines) + "\n"


def make_page() -> str:
    """The whole page: what is written by hand as it is, the tables anew."""
    words, mark, _ = PAGE.read_text().partition(MARK)
    assert mark, f"{PAGE.name} has no line {MARK!r}"
    return words + mark + make_tables()


def main() -> int:
    page = make_page()
    if "--check" in sys.argv:
        is_stale = page != PAGE.read_text()
        print("docs/glossary.md is not what the code says; run make docs\n" * is_stale, end="")
        return int(is_stale)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The documentation says what the code does: reference pages are generated, links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "inkgrove"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name) if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        if anchor:
            content = linked.read_text()
            headings = {
                re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
                for heading in re.findall(r"^#+ (.*)$", content, flags=re.MULTILINE)
            }
            assert f'id="{anchor}"' in content or anchor in headings, f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """By path from the top or from the package, or by dotted name. What was released is told as it was then."""
    text = page.read_text().partition("\n## 0.")[0] if page.name == "CHANGELOG.md" else page.read_text()
    for name in re.findall(r"`([\w/.-]+/[\w.-]+\.py)`", text):
        assert any((folder / name).exists() for folder in (ROOT, SOURCE)), f"{page.name} names {name}"
    for name in re.findall(r"\b(?:from|import) (inkgrove(?:\.\w+)+)|`(inkgrove(?!\.toml)(?:\.\w+)+)`", text):
        module = ROOT / "src" / (name[0] or name[1]).replace(".", "/")
        assert module.is_dir() or module.with_suffix(".py").exists(), f"{page.name} names {name}"


def test_every_error_and_limit_has_a_sentence() -> None:
    from inkgrove.core.errors import InkgroveError

    for family in InkgroveError.__subclasses__():
        assert family.__doc__, family
        assert "\n" not in family.__doc__, family
        for item in family.codes:
            assert item.sentence.endswith("."), item
            assert "\n" not in item.sentence + item.advice, item

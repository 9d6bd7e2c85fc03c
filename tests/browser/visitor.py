"""Somebody in front of a browser: every complaint of the browser is kept, and is a failure in the end."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page

from tests.support.nodes import PASSWORD

PHONE, DESK = 390, 1280
SCREENSHOTS = Path(__file__).resolve().parents[2] / "docs" / "screenshots"


class Visitor:
    """A browser context with one page."""

    def __init__(self, chromium: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.context: BrowserContext = chromium.new_context(base_url=url, **options)
        self.context.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.page: Page = self.context.new_page()
        self.watch(self.page)

    def watch(self, page: Page) -> None:
        """Note what the console and the scripts of a page complain about."""
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def close(self) -> None:
        """Leave; nothing may have gone wrong."""
        self.context.close()
        assert self.complaints == []

    def go(self, address: str, status: int = 200) -> Page:
        """Open an address."""
        answer = self.page.goto(address)
        assert answer is not None
        assert answer.status == status, (address, answer.status)
        if status >= 400:  # the browser complains about the answer itself
            self.complaints = [text for text in self.complaints if "Failed to load resource" not in text]
        return self.page

    def sign_in(self, fqdn: str, back: str = "/") -> Page:
        """Sign in with name and password on the page for it."""
        self.go(f"/pages/sign-in?next={back}")
        self.page.get_by_label("Your name").fill(fqdn)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(lambda address: urlsplit(address).path == urlsplit(back).path)
        return self.page


def check_axe(page: Page, axe: str) -> None:
    """No serious violation of what axe-core knows about accessible pages."""
    # Scripts of the page's own policy only: the tool comes in by the debugger's door.
    page.evaluate(axe)
    found: dict[str, Any] = page.evaluate("axe.run()")
    serious = [
        (item["id"], item["help"], [node["html"][:200] for node in item["nodes"][:3]])
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
    ]
    assert serious == []


def check_width(page: Page) -> None:
    """Nobody has to scroll a page sideways."""
    wide, there = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= there, f"{page.url} is {wide} wide, and {there} are there"


def take_picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Make a picture for the docs anew, if that is asked for: of the screen, or of the whole page."""
    if os.environ.get("INKGROVE_SCREENSHOTS") == "1":
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)

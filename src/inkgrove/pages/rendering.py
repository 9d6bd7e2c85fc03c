"""Rendering of pages: templates, the filters that they can use, and the headers that every page is sent with.

Templates escape whatever they are given. A page loads only files of this node and runs no script but those; nothing
can frame it.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from inkgrove import __version__
from inkgrove.pages import wording

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer browsers would hide the origin of our own forms too
    "Cache-Control": "no-store",
    "Vary": "Cookie",
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("inkgrove.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["part"] = lambda text: quote(str(text), safe="")
    environment.globals["software"] = f"Inkgrove {__version__}"
    for name in wording.FOR_TEMPLATES:
        environment.filters[name] = getattr(wording, name)
    return environment


def render(template: str, facts: Mapping[str, Any], *, status: int = 200) -> HTMLResponse:
    """Render a template with facts as an HTTP response."""
    html = _environment().get_template(template).render(facts)
    return HTMLResponse(html, status, HEADERS)

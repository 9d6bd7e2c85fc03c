"""The pages on which an identity signs in and says what a service may do: plain HTML, no scripts.

Whatever comes from outside is escaped; the page loads the style sheet that all pages share, and nothing else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Final
from urllib.parse import urlsplit

from fastapi.responses import HTMLResponse

from inkgrove.node.identity import Action
from inkgrove.node.services import ScopeRequest

STYLE: Final = "/pages/static/style.css"
"""The style sheet of all pages of the node (`inkgrove.pages`)."""

_WORDS: Final[dict[Action, str]] = {
    "read": "see all of it that you can see",
    "create": "add to it in your name, and pass on what it can see",
    "update": "change what is yours, and share it",
    "delete": "delete what is yours",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The service that asks, and how its page is sent back."""

    service: str
    redirect_uri: str
    address: str
    """Where the form goes: this page again, with the same query."""
    form_token: str

    @property
    def site(self) -> str:
        """The origin that the browser goes to afterwards."""
        parts = urlsplit(self.redirect_uri)
        return f"{parts.scheme}://{parts.netloc}"


def sign_in_page(asking: Asking, *, name: str, alarm: str | None = None) -> str:
    """Who are you?"""
    field = " autofocus" if not name else ""
    password = " autofocus" if name else ""
    return _page(
        "Sign in",
        f"""<h1>Sign in to continue to {escape(asking.service)}</h1>
<p class="soft">Your password goes to this node only, never to the service.</p>
{_alarm(alarm)}<form method="post" action="{escape(asking.address)}">
{_hidden(asking)}<label for="name">Your name</label>
<input id="name" name="name" value="{escape(name)}" placeholder="jane.haiku.ink" autocomplete="username"
 autocapitalize="none" spellcheck="false" maxlength="253" required{field}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" maxlength="1024"
 required{password}>
<div class="row"><button class="main" name="action" value="sign-in">Sign in</button>
<button name="action" value="deny" formnovalidate>Cancel</button></div>
</form>""",
    )


def consent_page(
    asking: Asking,
    *,
    identity: str,
    requests: Iterable[ScopeRequest],
    with_relations: bool,
    scopes: str,
    alarm: str | None,
) -> str:
    """May it?"""
    asked = "".join(map(_asked, requests))
    if with_relations:
        asked += "<li><h2>Relations</h2><ul><li>see whom you follow and who follows you</li></ul></li>"
    return _page(
        f"{asking.service} asks for access",
        f"""<h1>{escape(asking.service)} asks for access</h1>
<form method="post" action="{escape(asking.address)}">
{_hidden(asking)}<p>You are signed in as <strong>{escape(identity)}</strong>.
<button class="link" name="action" value="sign-out">Not you?</button></p>
{_alarm(alarm)}<p>If you allow it, the service can:</p>
<ul class="asked">{asked}</ul>
<input type="hidden" name="scopes" value="{escape(scopes)}">
<p class="soft">Then you go back to <strong>{escape(asking.site)}</strong>. Anybody can give a service any name: allow
this only if you have just come from there. You can take it back at any time.</p>
<div class="row"><button class="main" name="action" value="allow">Allow</button>
<button name="action" value="deny">Deny</button></div>
</form>""",
    )


def error_page(title: str, detail: str) -> str:
    """Nothing can be done, and nobody is sent anywhere."""
    return _page(title, f"<h1>{escape(title)}</h1>\n<p>{escape(detail)}</p>")


def _asked(request: ScopeRequest) -> str:
    meta = request.meta
    name = meta.name if meta is not None else "A schema that this node does not know"
    about = f'<p class="soft">{escape(meta.description[:300])}</p>' if meta is not None and meta.description else ""
    actions = "".join(f"<li>{_WORDS[action]}</li>" for action in request.actions)
    exactly = "<details>" if meta is not None else "<details open>"
    return (
        f"<li><h2>{escape(name)}</h2>{about}<ul>{actions}</ul>"
        f"{exactly}<summary>Which schema exactly?</summary><code>{escape(str(request.schema))}</code></details></li>"
    )


def _hidden(asking: Asking) -> str:
    return f'<input type="hidden" name="form_token" value="{escape(asking.form_token)}">'


def _alarm(text: str | None) -> str:
    return f'<p class="alarm" role="alert">{escape(text)}</p>\n' if text is not None else ""


def _page(title: str, content: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<meta name="color-scheme" content="light dark">
<link rel="stylesheet" href="{STYLE}">
</head>
<body class="alone">
<main id="content">
{content}
</main>
</body>
</html>
"""


def answer(html: str, *, status: int = 200, site: str | None = None) -> HTMLResponse:
    """A page that can load, run and frame nothing, and whose form goes here and then to `site` only."""
    # Browsers apply form-action to where a form's answer redirects to as well.
    targets = "'self'" if site is None else f"'self' {site}"
    policy = f"default-src 'none'; style-src 'self'; form-action {targets}; frame-ancestors 'none'; base-uri 'none'"
    headers = {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",  # with no-referrer browsers would hide the origin of our own form too
        "Cache-Control": "no-store",
    }
    return HTMLResponse(html, status, headers)

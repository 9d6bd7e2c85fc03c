"""The pages on which an identity signs in and says what a service may do: plain HTML, no scripts.

Whatever comes from outside is escaped by `_html`; the style is inside the page and allowed by its hash, all else is
forbidden.
"""

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from typing import Final
from urllib.parse import urlsplit

from fastapi.responses import HTMLResponse

from inkgrove.node.caller import Action
from inkgrove.node.scopes import Request

STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2320; --soft: #56605b; --paper: #fbfaf7; --card: #ffffff; --line: #d9ddd8;
  --leaf: #1f6b4a; --leaf-ink: #ffffff; --alarm: #a3261c; --focus: #2f7fd1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebe8; --soft: #a5aea9; --paper: #141816; --card: #1c211e;
  --line: #353c38; --leaf: #6fcb9f; --leaf-ink: #0d1a14; --alarm: #ff9b8f; --focus: #7ab8ff; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
main { width: 100%; max-width: 30rem; background: var(--card); border: 1px solid var(--line); border-radius: .75rem;
  padding: 1.75rem; }
h1 { font-size: 1.375rem; line-height: 1.3; margin: 0 0 .75rem; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
p { margin: 0 0 1rem; overflow-wrap: anywhere; }
.soft, small { color: var(--soft); font-size: .875rem; }
.asked { list-style: none; margin: 0 0 1.25rem; padding: 0; border-top: 1px solid var(--line); }
.asked p { margin: 0; }
.asked > li { padding: .75rem 0; border-bottom: 1px solid var(--line); }
.asked ul { margin: .25rem 0; padding-left: 1.25rem; }
code { font: .75rem/1.4 ui-monospace, monospace; color: var(--soft); overflow-wrap: anywhere; }
details summary { cursor: pointer; color: var(--soft); font-size: .875rem; }
label { display: block; font-weight: 600; margin-bottom: .25rem; }
input { width: 100%; font: inherit; padding: .625rem .75rem; margin-bottom: 1rem; color: inherit;
  background: var(--paper); border: 1px solid var(--soft); border-radius: .5rem; }
.row { display: flex; gap: .75rem; flex-wrap: wrap; }
button { font: inherit; font-weight: 600; min-height: 2.75rem; padding: .5rem 1.25rem; border-radius: .5rem;
  cursor: pointer; border: 1px solid var(--soft); background: transparent; color: var(--ink); flex: 1 1 8rem; }
button.yes { background: var(--leaf); border-color: var(--leaf); color: var(--leaf-ink); }
button.link { flex: none; min-height: 0; padding: 0; border: 0; font-weight: 400; font-size: .875rem; color: inherit;
  text-decoration: underline; }
.alarm { color: var(--alarm); font-weight: 600; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
"""
_STYLE_HASH: Final = b64encode(sha256(STYLE.encode()).digest()).decode()

_WORDS: Final[dict[Action, str]] = {
    "read": "see all of it that you can see",
    "create": "add to it in your name",
    "update": "change what is yours",
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
<div class="row"><button class="yes" name="action" value="sign-in">Sign in</button>
<button name="action" value="deny" formnovalidate>Cancel</button></div>
</form>""",
    )


def consent_page(
    asking: Asking, *, identity: str, requests: Iterable[Request], with_relations: bool, scopes: str, alarm: str | None
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
<div class="row"><button class="yes" name="action" value="allow">Allow</button>
<button name="action" value="deny">Deny</button></div>
</form>""",
    )


def error_page(title: str, detail: str) -> str:
    """Nothing can be done, and nobody is sent anywhere."""
    return _page(title, f"<h1>{escape(title)}</h1>\n<p>{escape(detail)}</p>")


def _asked(request: Request) -> str:
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
<style>{STYLE}</style>
</head>
<body>
<main>
{content}
</main>
</body>
</html>
"""


def answer(html: str, *, status: int = 200, site: str | None = None) -> HTMLResponse:
    """A page that can load, run and frame nothing, and whose form goes here and then to `site` only."""
    # Browsers apply form-action to where a form's answer redirects to as well.
    targets = "'self'" if site is None else f"'self' {site}"
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {targets};"
        " frame-ancestors 'none'; base-uri 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Frame-Options": "DENY",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",  # with no-referrer browsers would hide the origin of our own form too
        "Cache-Control": "no-store",
    }
    return HTMLResponse(html, status, headers)

"""Where the browser comes back to: one page on a free port of this machine, served once."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from inkgrove.client.errors import NotAuthorised

Returned = dict[str, str]
"""The query that the browser brought back."""
_PATH = "/back"
_PAGE = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Done</title>
<body style="font: 1.1rem system-ui; margin: 4rem auto; max-width: 30rem">
<p>Done. You can close this page and go back.</p>
"""


class Loopback:
    """Listens from `with` to its end; `redirect_uri` is what the service registers."""

    def __init__(self) -> None:
        self._returned: Returned | None = None
        self._is_back = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                if parts.path != _PATH:  # a browser may ask for an icon too
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(_PAGE)))
                self.end_headers()
                self.wfile.write(_PAGE)
                outer.take(dict(parse_qsl(parts.query)))

            def log_message(self, *_: object) -> None:
                """Say nothing: the address holds the code."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def redirect_uri(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self._server.server_port}{_PATH}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, query: Returned) -> None:
        """What came back first counts."""
        if self._returned is None:
            self._returned = query
            self._is_back.set()

    def wait(self, seconds: float) -> Returned:
        """What the browser brought back."""
        if not self._is_back.wait(seconds) or self._returned is None:
            raise NotAuthorised(f"the browser did not come back within {seconds:.0f} seconds; try again")
        return self._returned

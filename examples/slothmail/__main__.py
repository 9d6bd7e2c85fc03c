"""`python -m examples.slothmail serve|publish`: serve the files of the client, or put its schema on a node."""

import argparse
import getpass
import json
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

FOLDER = Path(__file__).parent
# Scripts and styles of our own, requests to whatever node somebody has, pictures from what was downloaded.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src http: https:; img-src 'self' blob:;"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class Files(SimpleHTTPRequestHandler):
    """The folder `web`, with a policy on what its pages may load."""

    def end_headers(self) -> None:
        """Send the policy with everything."""
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing: an address can hold a code."""


def make_server(port: int) -> ThreadingHTTPServer:
    """Serves the client on this machine."""
    return ThreadingHTTPServer(("127.0.0.1", port), partial(Files, directory=str(FOLDER / "web")))


def publish(node: httpx.Client) -> str:
    """Publish the schema and let the node make a view of it; who is signed in administers the node."""

    def send(method: str, path: str, body: object = None) -> Any:
        answer = node.request(method, path, json=body)
        if answer.is_error:
            sys.exit(f"the node refused {method} {path}: {answer.text}")
        return answer.json()

    made = send("POST", "/schemas", {"name": "slothmail", "description": "Mail for the patient"})
    fields = json.loads((FOLDER / "schema.json").read_text())
    send("POST", f"/schemas/{made['schema']}/versions", {"fields": fields})
    send("PUT", f"/views/{made['schema']}")
    schema: str = made["schema"]
    return schema


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.slothmail", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="serve the client on this machine")
    serving.add_argument("--port", type=int, default=8760)
    publishing = commands.add_parser("publish", help="put the schema on a node and materialise it")
    publishing.add_argument("--node", default="http://127.0.0.1:8750")
    publishing.add_argument("--name", required=True, help="an administrator of the node")
    chosen = parser.parse_args()
    if chosen.command == "serve":
        print(f"Slothmail is at http://127.0.0.1:{chosen.port}; Ctrl-C ends it")
        with make_server(chosen.port) as server:
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print()
        return
    password = getpass.getpass(f"Password of {chosen.name}: ")
    with httpx.Client(base_url=chosen.node) as node:
        answer = node.post("/sessions", json={"fqdn": chosen.name, "password": password})
        if answer.is_error:
            sys.exit(f"not signed in: {answer.text}")
        node.headers["Authorization"] = f"Bearer {answer.json()['token']}"
        print(f"slothmail is the schema {publish(node)}")


if __name__ == "__main__":
    main()

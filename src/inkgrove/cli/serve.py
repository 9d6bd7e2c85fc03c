"""`inkgrove serve|up`: the node alone, or the node and the pipeline together; `inkgrove blobs gc`."""

import json
import sys
from contextlib import suppress
from functools import partial
from typing import Annotated

import typer

from inkgrove.cli.options import CommandGroup, CommandOptions, current, leading_arguments, set_flag
from inkgrove.cli.output import note, print_json
from inkgrove.cli.rot import policy_in_effect
from inkgrove.cli.supervisor import Child, stop_on_signals, supervise, tell_ready
from inkgrove.core.errors import NoStore, StoreUnavailable
from inkgrove.node.settings import NodeSettings

HostOption = Annotated[str | None, typer.Option("--host", help="Address to listen on.", metavar="ADDRESS")]
PortOption = Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Port to listen on.", metavar="PORT")]
WorkersOption = Annotated[int | None, typer.Option("--workers", min=1, help="How many processes serve.", metavar="N")]

blobs_app = CommandGroup("The blobs of a node.", "blobs gc")


def add_to(app: CommandGroup) -> None:
    """Put these commands beside the groups."""
    app.command(epilog="Example: inkgrove serve --port 8750")(serve)
    app.command(epilog="Example: inkgrove up")(up)
    blobs_app.command(epilog="Example: inkgrove blobs gc --grace 0")(gc)
    app.add_typer(blobs_app, name="blobs")


def _settings(host: str | None, port: int | None, workers: int | None) -> NodeSettings:
    for name, value in (("host", host), ("port", port), ("workers", workers)):
        set_flag(f"node.{name}", value)
    return current().node


def serve(
    options: CommandOptions, host: HostOption = None, port: PortOption = None, workers: WorkersOption = None
) -> None:
    """Serve the node over HTTP until stopped; requests under way are answered first."""
    # Imported here: every other command starts faster without.
    from inkgrove.api.http.serving import serve as serve_node
    from inkgrove.cli.import_process import find_importer
    from inkgrove.pages.site import make_site

    if options.as_json:
        set_flag("node.log_format", "json")
    settings = _settings(host, port, workers)
    rot_policy = json.loads(policy_in_effect().render())
    site = partial(make_site, importer=find_importer(current().spark), rot_policy=rot_policy)
    serve_node(options.store_location, settings, options.home.resolve(), site, tell_ready)


def up(
    options: CommandOptions, host: HostOption = None, port: PortOption = None, workers: WorkersOption = None
) -> None:
    """Run the node, the pipeline and, if it is set, rot together until stopped, and start again what dies."""
    settings = _settings(host, port, workers)
    where = ["--host", settings.host, "--port", str(settings.port), "--workers", str(settings.workers)]
    inkgrove = [sys.executable, "-m", "inkgrove", *leading_arguments()]
    url = f"http://{settings.host}:{settings.port}"
    node = [*inkgrove, "serve", *where, *options.arguments, *(["--json"] if options.as_json else [])]
    children = [
        Child("node", node, lambda child: child.says_ready() and _answers(url)),
        Child("pipeline", [*inkgrove, "materialise", "--follow", *options.arguments], Child.says_ready),
    ]
    policy_in_effect()  # what is wrong with it is told here, once
    every = current().rot.every_seconds
    if every:
        rot = [*inkgrove, "rot", "run", "--every", str(every), *options.arguments]
        children.append(Child("rot", rot, Child.says_ready))
    stop = stop_on_signals()

    def tell(text: str) -> None:
        options.answer({"says": text}, lambda: note(text))

    _make_store(options.store_location)
    tell(f"node at {url}, data in {options.home.resolve()}; Ctrl-C ends both")
    code = supervise(children, stop, tell, settings.shutdown_seconds + 10)
    if code:
        raise typer.Exit(code)


def _make_store(location: str) -> None:
    """Make the store if there is none: the pipeline, which starts beside the node, makes none."""
    from inkgrove.store.logs import open_store, require_store

    # What else is wrong with a store the node says when it starts, and it is started again until that is mended.
    with suppress(StoreUnavailable):
        try:
            require_store(location)
        except NoStore:
            open_store(location).close()


def _answers(url: str) -> bool:
    import httpx

    try:
        return httpx.get(f"{url}/healthz", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def gc(
    options: CommandOptions,
    grace: Annotated[
        int | None, typer.Option("--grace", min=0, help="Seconds that unused blobs are kept.", metavar="SECONDS")
    ] = None,
) -> None:
    """Remove blobs that no instance has referred to for the grace period; safe while the node runs."""
    from inkgrove.node.blobs import collect_blobs

    with options.open_node() as node:
        collected = collect_blobs(node, grace)
    if options.as_json:
        print_json({"blobs": collected.blobs, "orphans": collected.orphans, "bytes": collected.bytes})
    else:
        removed = f"{collected.blobs} blobs and {collected.orphans} left-over files"
        typer.echo(f"{removed} removed, {collected.bytes:,} bytes")

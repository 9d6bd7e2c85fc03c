"""`inkgrove peer`: the nodes that this one replicates from."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from inkgrove.cli.configuration import current
from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import NOT_VALID, JsonOption, console, note, print_json, printable
from inkgrove.cli.place import StoreOption, existing_store, store_place
from inkgrove.cli.progress import progress
from inkgrove.core.errors import InkgroveError
from inkgrove.messages.timestamp import Timestamp

if TYPE_CHECKING:
    from inkgrove.federation.replicator import Synced
    from inkgrove.node.node import Node
    from inkgrove.store.peer_list import Peer

app = typer.Typer(
    no_args_is_help=True,
    help="Nodes that this one replicates from.",
    epilog="Example: inkgrove peer add john.haiku.ink",
)

NameArgument = Annotated[str, typer.Argument(help="The name of an identity there, such as john.b.ink.", metavar="FQDN")]


@contextmanager
def open_node(home: Path, store: str | None, *, create: bool = False) -> Iterator["Node"]:
    """The node of a home, as long as a command works on it; one that is not there is made only by `create`."""
    # Imported here and below: every other command starts faster without.
    from inkgrove.node.node import Node  # noqa: PLC0415

    place = store_place(home, store) if create else existing_store(home, store)
    node = Node(place, current().node, home=home.resolve())
    try:
        yield node
    finally:
        node.close()


@app.command(epilog="Example: inkgrove peer add john.haiku.ink")
def add(
    fqdn: NameArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Replicate from the node of an identity, from the next round of a running node on."""
    from inkgrove.node.identities import parse_fqdn  # noqa: PLC0415
    from inkgrove.store.peer_list import add_peer  # noqa: PLC0415

    name = parse_fqdn(fqdn)
    with open_node(home, store) as node:
        is_new = node.database.write(lambda connection: add_peer(connection, name, node.clock()))
    if as_json:
        print_json({"peer": name, "added": is_new})
    else:
        note(f"{name} is a peer now; sync with: inkgrove peer sync {name}" if is_new else f"{name} was a peer already.")


@app.command(epilog="Example: inkgrove peer remove john.haiku.ink")
def remove(
    fqdn: NameArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Replicate from there no more; what has come stays."""
    from inkgrove.federation.errors import UnknownPeer  # noqa: PLC0415
    from inkgrove.node.identities import parse_fqdn  # noqa: PLC0415
    from inkgrove.store.peer_list import remove_peer  # noqa: PLC0415

    name = parse_fqdn(fqdn)
    with open_node(home, store) as node:
        was_there = node.database.write(lambda connection: remove_peer(connection, name))
    if not was_there:
        raise UnknownPeer(f"{name} is no peer", fqdn=name)
    if as_json:
        print_json({"peer": name, "removed": True})
    else:
        note(f"{name} is no peer any more; what came from there stays.")


@app.command("list", epilog="Example: inkgrove peer list")
def list_all(home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the peers, when each was last synced with, and what went wrong since."""
    from inkgrove.store.peer_list import list_peers  # noqa: PLC0415

    with open_node(home, store) as node:
        peers = node.database.read(list_peers)
    if as_json:
        print_json([_facts(peer) for peer in peers])
        return
    table = Table("peer", "synced", "error")
    for peer in peers:
        synced = str(Timestamp(peer.synced)) if peer.synced is not None else "never"
        table.add_row(peer.fqdn, synced, printable(peer.error or "-"))
    console().print(table)


def _facts(peer: "Peer") -> dict[str, object]:
    synced = Timestamp(peer.synced) if peer.synced is not None else None
    return {"peer": peer.fqdn, "added": Timestamp(peer.added), "synced": synced, "error": peer.error}


@app.command(epilog="Example: inkgrove peer sync john.haiku.ink")
def sync(
    fqdns: Annotated[
        list[str] | None, typer.Argument(help="Names of peers; all of them if none is given.", metavar="FQDN...")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch what peers offer and this node lacks: schemas, identities, public instances.

    The node itself must be running, for peers look it up before they answer.
    """
    from inkgrove.api.http import tune_garbage_collection  # noqa: PLC0415
    from inkgrove.federation.replicator import sync_with  # noqa: PLC0415
    from inkgrove.node.identities import parse_fqdn  # noqa: PLC0415
    from inkgrove.store.peer_list import list_peers  # noqa: PLC0415

    tune_garbage_collection()
    failed = False
    with open_node(home, store) as node:
        names = [parse_fqdn(name) for name in fqdns or []]
        for name in names or [peer.fqdn for peer in node.database.read(list_peers)]:
            try:
                with progress(name, quiet=as_json, unit="entries") as bar:
                    synced = sync_with(node, name, bar.update)
            except InkgroveError as error:
                failed = True
                _tell_failure(name, error, as_json=as_json)
            else:
                _tell(synced, as_json=as_json)
    if failed:
        raise typer.Exit(NOT_VALID)


def _tell_failure(name: str, error: InkgroveError, *, as_json: bool) -> None:
    if as_json:
        print_json({"peer": name, "ok": False, "code": error.code, "message": error.message})
    else:
        note(f"error: {name}: {error.message} [{error.code}]")


def _tell(synced: "Synced", *, as_json: bool) -> None:
    if as_json:
        facts = {"logs": synced.logs, "received": synced.received, "stored": synced.stored, "refused": synced.refused}
        print_json({"peer": synced.peer, "ok": True, **facts, "in_bulk": synced.in_bulk})
        return
    typer.echo(f"{synced.peer}: {synced.received:,} entries of {synced.logs:,} logs, {synced.stored:,} new")
    for code, count in sorted(synced.refused.items()):
        note(f"{synced.peer}: {count:,} refused [{code}]")

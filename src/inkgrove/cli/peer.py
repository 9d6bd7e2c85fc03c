"""`inkgrove peer`: the nodes that this one replicates from."""

from typing import TYPE_CHECKING, Annotated

import typer

from inkgrove.cli.options import CommandGroup, CommandOptions, current
from inkgrove.cli.output import NOT_VALID, facts_of, note, print_json, print_table
from inkgrove.cli.progress import progress
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import Timestamp

if TYPE_CHECKING:
    from inkgrove.federation.replication import SyncResult
    from inkgrove.store.federation import Peer

app = CommandGroup("Nodes that this one replicates from.", "peer add john.haiku.ink")

NameArgument = Annotated[str, typer.Argument(help="The name of an identity there, such as john.b.ink.", metavar="FQDN")]


@app.command(epilog="Example: inkgrove peer add john.haiku.ink")
def add(options: CommandOptions, fqdn: NameArgument) -> None:
    """Replicate from the node of an identity, from the next round of a running node on."""
    from inkgrove.node.identity import parse_fqdn
    from inkgrove.store.federation import add_peer

    name = parse_fqdn(fqdn)
    with options.open_node() as node:
        is_new = node.database.write(lambda connection: add_peer(connection, name, node.clock()))
    new, known = f"{name} is a peer now; sync with: inkgrove peer sync {name}", f"{name} was a peer already."
    options.answer({"peer": name, "added": is_new}, lambda: note(new if is_new else known))


@app.command(epilog="Example: inkgrove peer remove john.haiku.ink")
def remove(options: CommandOptions, fqdn: NameArgument) -> None:
    """Replicate from there no more; what has come stays."""
    from inkgrove.federation.errors import FederationError
    from inkgrove.node.identity import parse_fqdn
    from inkgrove.store.federation import remove_peer

    name = parse_fqdn(fqdn)
    with options.open_node() as node:
        was_there = node.database.write(lambda connection: remove_peer(connection, name))
    if not was_there:
        raise FederationError("federation.unknown-peer", f"{name} is no peer", fqdn=name)
    text = f"{name} is no peer any more; what came from there stays."
    options.answer({"peer": name, "removed": True}, lambda: note(text))


@app.command("list", epilog="Example: inkgrove peer list")
def list_all(options: CommandOptions) -> None:
    """List the peers, when each was last synced with, and what went wrong since."""
    from inkgrove.store.federation import list_peers

    with options.open_node() as node:
        peers = node.database.read(list_peers)
    cells = [(peer.fqdn, "never" if peer.synced is None else Timestamp(peer.synced), peer.error) for peer in peers]
    options.answer([_facts(peer) for peer in peers], lambda: print_table(("peer", "synced", "error"), cells))


def _facts(peer: "Peer") -> dict[str, object]:
    synced = Timestamp(peer.synced) if peer.synced is not None else None
    return {"peer": peer.fqdn, "added": Timestamp(peer.added), "synced": synced, "error": peer.error}


@app.command(epilog="Example: inkgrove peer sync john.haiku.ink")
def sync(
    options: CommandOptions,
    fqdns: Annotated[
        list[str] | None, typer.Argument(help="Names of peers; all of them if none is given.", metavar="FQDN...")
    ] = None,
) -> None:
    """Fetch what peers offer and this node lacks: schemas, identities, public instances.

    The node itself must be running, for peers look it up before they answer.
    """
    from inkgrove.api.http.serving import tune_garbage_collection
    from inkgrove.cli.import_process import find_importer
    from inkgrove.federation.replication import sync_with
    from inkgrove.node.identity import parse_fqdn
    from inkgrove.store.federation import list_peers

    tune_garbage_collection()
    importer = find_importer(current().spark)
    failed = False
    with options.open_node() as node:
        names = [parse_fqdn(name) for name in fqdns or []]
        for name in names or [peer.fqdn for peer in node.database.read(list_peers)]:
            try:
                with progress(name, quiet=options.as_json, unit="entries") as bar:
                    synced = sync_with(node, name, bar.update, importer)
            except InkgroveError as error:
                failed = True
                _tell_failure(name, error, as_json=options.as_json)
            else:
                _tell(synced, as_json=options.as_json)
    if failed:
        raise typer.Exit(NOT_VALID)


def _tell_failure(name: str, error: InkgroveError, *, as_json: bool) -> None:
    if as_json:
        print_json({"peer": name, "ok": False, "code": error.code, "message": error.message})
    else:
        note(f"error: {name}: {error.message} [{error.code}]")


def _tell(synced: "SyncResult", *, as_json: bool) -> None:
    if as_json:
        print_json({"peer": synced.peer, "ok": True, **facts_of(synced, "logs received stored refused in_bulk")})
        return
    typer.echo(f"{synced.peer}: {synced.received:,} entries of {synced.logs:,} logs, {synced.stored:,} new")
    for code, count in sorted(synced.refused.items()):
        note(f"{synced.peer}: {count:,} refused [{code}]")

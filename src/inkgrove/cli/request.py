"""`inkgrove request`: what strangers sent to identities of this node, and whose deliveries they take in."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import JsonOption, console, note, print_json, printable
from inkgrove.cli.peer import open_node
from inkgrove.cli.place import StoreOption
from inkgrove.cli.relation import MeArgument
from inkgrove.core.hashing import Hash, parse_hash
from inkgrove.core.keys import IdentityId
from inkgrove.messages.timestamp import Timestamp

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from inkgrove.node.node import Node
    from inkgrove.store.accepted_senders import AcceptedSender

app = typer.Typer(
    no_args_is_help=True,
    help="What strangers sent, and whose deliveries are taken in.",
    epilog="Example: inkgrove request list john.haiku.ink",
)

SenderArgument = Annotated[str, typer.Argument(metavar="SENDER", help="Who sent it, by name or id.")]
InstanceArgument = Annotated[str, typer.Argument(metavar="INSTANCE", help="What they sent, by its id.")]
OneArgument = Annotated[str | None, typer.Argument(metavar="[INSTANCE]", help="One thing; all that waits without.")]
FromNowOnOption = Annotated[
    bool,
    typer.Option("--from-now-on", help="Take in what they send from now on, too; they do not follow ME by it."),
]
_PAGE = 1_000


def _me(node: "Node", name: str) -> IdentityId:
    from inkgrove.node.identities import parse_identity_name, show_identity  # noqa: PLC0415

    return show_identity(node, parse_identity_name(name)).id


def _sender(node: "Node", name: str) -> IdentityId:
    from inkgrove.node.errors import UnknownIdentity  # noqa: PLC0415
    from inkgrove.node.identities import parse_identity_name  # noqa: PLC0415
    from inkgrove.node.name_rules import find_own  # noqa: PLC0415
    from inkgrove.store.peers import find_known  # noqa: PLC0415

    wanted = parse_identity_name(name)
    if isinstance(wanted, IdentityId):
        return wanted
    fqdn = wanted.lower().rstrip(".")
    found = node.database.read(lambda c: find_own(c, node, fqdn) or find_known(c, fqdn))
    if found is None:
        raise UnknownIdentity(f"{name[:253]} is not known here: who has sent nothing is not accepted", identity=name)
    return found.id


@app.command("list", epilog="Example: inkgrove request list john.haiku.ink")
def list_all(
    me: MeArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """List what waits for an identity: from whom, of which schema, since when and how large."""
    from inkgrove.node.requests import list_waiting  # noqa: PLC0415

    with open_node(home, store) as node:
        found = list_waiting(node, _me(node, me))
    rows = [
        {
            "via": item.via,
            "fqdn": item.fqdn,
            "asks_to_follow": item.asks_to_follow,
            "instance": item.instance,
            "schema": str(item.schema) if item.schema is not None else None,
            "schema_name": item.schema_name,
            "arrived": Timestamp(item.arrived),
            "size": item.size,
        }
        for item in found
    ]
    if as_json:
        print_json(rows)
        return
    table = Table("from", "schema", "arrived", "bytes", "instance")
    for row in rows:
        cells = (row["fqdn"] or row["via"], row["schema_name"] or row["schema"], row["arrived"], row["size"])
        table.add_row(*(printable(str(cell or "-")) for cell in cells), str(row["instance"]))
    console().print(table)


@app.command(epilog="Example: inkgrove request show john.haiku.ink jane.haiku.ink 0040…")
def show(
    me: MeArgument,
    sender: SenderArgument,
    instance: InstanceArgument,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the content of something that waits; this accepts nothing."""
    from inkgrove.messages.message import message_to_value  # noqa: PLC0415
    from inkgrove.messages.yaml_form import render_messages  # noqa: PLC0415
    from inkgrove.node.requests import read_waiting  # noqa: PLC0415

    with open_node(home, store) as node:
        _, messages = read_waiting(node, _me(node, me), _sender(node, sender), parse_hash(instance))
    if as_json:
        print_json([message_to_value(message) for message in messages])
    else:
        typer.echo(render_messages(messages), nl=False)


@app.command(epilog="Example: inkgrove request accept john.haiku.ink jane.haiku.ink --from-now-on")
def accept(
    me: MeArgument,
    sender: SenderArgument,
    instance: OneArgument = None,
    from_now_on: FromNowOnOption = False,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in what waits of a sender; nobody follows anybody by it, and the sender is not told."""
    from inkgrove.federation.requests import accept_sender, take_waiting  # noqa: PLC0415

    with open_node(home, store) as node:
        mine, theirs = _me(node, me), _sender(node, sender)
        receipts = take_waiting(node, mine, theirs, _named(instance)) if instance or not from_now_on else []
        if from_now_on:
            receipts += accept_sender(node, mine, theirs)
    taken = list(dict.fromkeys(receipt.instance for receipt in receipts if receipt.fate == "accepted"))
    if as_json:
        print_json({"me": me, "sender": sender, "instances": taken, "from_now_on": from_now_on})
        return
    note(f"{len(taken)} taken in." + (" What they send from now on is taken in too." if from_now_on else ""))


def _named(instance: str | None) -> Hash | None:
    return None if instance is None else parse_hash(instance)


@app.command(epilog="Example: inkgrove request refuse john.haiku.ink jane.haiku.ink")
def refuse(
    me: MeArgument,
    sender: SenderArgument,
    instance: OneArgument = None,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget what waits of a sender, who is not told."""
    from inkgrove.federation.requests import forget_waiting  # noqa: PLC0415

    with open_node(home, store) as node:
        forget_waiting(node, _me(node, me), _sender(node, sender), _named(instance))
    if as_json:
        print_json({"me": me, "sender": sender, "instance": instance, "forgotten": True})
        return
    note("Forgotten.")


@app.command(epilog="Example: inkgrove request senders john.haiku.ink")
def senders(
    me: MeArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """List those whose deliveries an identity takes in from now on."""
    from inkgrove.node.names import name_of_identity  # noqa: PLC0415

    with open_node(home, store) as node:
        mine = _me(node, me)
        found = node.database.read(lambda connection: _all_senders(connection, mine))
        rows = [
            {"identity": item.sender, "fqdn": name_of_identity(node, item.sender), "since": Timestamp(item.since)}
            for item in found
        ]
    if as_json:
        print_json(rows)
        return
    table = Table("sender", "since")
    for row in rows:
        table.add_row(printable(str(row["fqdn"] or row["identity"])), str(row["since"]))
    console().print(table)


def _all_senders(connection: "Connection", me: IdentityId) -> "list[AcceptedSender]":
    from inkgrove.store.accepted_senders import list_senders  # noqa: PLC0415

    found = page = list_senders(connection, me, limit=_PAGE)
    while len(page) == _PAGE:
        page = list_senders(connection, me, after=page[-1].sender, limit=_PAGE)
        found = [*found, *page]
    return found


@app.command(epilog="Example: inkgrove request drop john.haiku.ink jane.haiku.ink")
def drop(
    me: MeArgument,
    sender: SenderArgument,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let what somebody sends wait for ME's word again."""
    from inkgrove.federation.requests import drop_sender  # noqa: PLC0415

    with open_node(home, store) as node:
        drop_sender(node, _me(node, me), _sender(node, sender))
    if as_json:
        print_json({"me": me, "sender": sender, "from_now_on": False})
        return
    note("What they send waits again.")

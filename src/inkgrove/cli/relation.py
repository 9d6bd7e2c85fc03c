"""`inkgrove relation`: who follows whom; `inkgrove request`: what strangers sent, and whose deliveries are taken in."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inkgrove.cli.options import CommandGroup, CommandOptions
from inkgrove.cli.output import facts_of, note, print_json, print_table
from inkgrove.core import Hash, IdentityId, parse_hash
from inkgrove.messages import UNSET, Timestamp

if TYPE_CHECKING:
    from inkgrove.node.identity import RelationMove
    from inkgrove.node.runtime import Node
    from inkgrove.store.db import Connection
    from inkgrove.store.federation import AcceptedSender

app = CommandGroup("Who follows whom.", "relation request jane.haiku.ink john.haiku.ink")
request_app = CommandGroup("What strangers sent, and whose deliveries are taken in.", "request list john.haiku.ink")

MeArgument = Annotated[str, typer.Argument(metavar="ME", help="An identity of this node, by name or id.")]
OtherArgument = Annotated[str, typer.Argument(metavar="OTHER", help="The other one, wherever they are.")]
GroupOption = Annotated[str | None, typer.Option(metavar="NAME", help="A group of ME's own to put it into.")]
SenderArgument = Annotated[str, typer.Argument(metavar="SENDER", help="Who sent it, by name or id.")]
InstanceArgument = Annotated[str, typer.Argument(metavar="INSTANCE", help="What they sent, by its id.")]
OneArgument = Annotated[str | None, typer.Argument(metavar="[INSTANCE]", help="One thing; all that waits without.")]
FromNowOnOption = Annotated[
    bool, typer.Option("--from-now-on", help="Take in what they send from now on, too; they do not follow ME by it.")
]
_PAGE: Final = 1_000

# Relations


def _move_in_group(move: "RelationMove") -> Callable[..., None]:
    def command(options: CommandOptions, me: MeArgument, other: OtherArgument, group: GroupOption = None) -> None:
        _move(options, me, other, move, group)

    return command


def _move_without_group(move: "RelationMove") -> Callable[..., None]:
    def command(options: CommandOptions, me: MeArgument, other: OtherArgument) -> None:
        _move(options, me, other, move, None)

    return command


def _move(options: CommandOptions, me: str, other: str, move: "RelationMove", group: str | None) -> None:
    """Change the relation of two identities, tell the other node, and print the new state."""
    # Imported here and below: every other command starts faster without.
    from inkgrove.federation.sharing import move_and_tell
    from inkgrove.node.identity import parse_identity_name

    with options.open_node() as node:
        mine = _me(node, me)
        made = move_and_tell(node, mine, parse_identity_name(other), move, UNSET if group is None else group)
    if options.as_json:
        print_json({"me": me, "other": other, "state": made.state, "told": made.is_delivered})
        return
    note(f"{me} and {other}: {made.state or 'no relation'}")
    if not made.is_delivered:
        note("Their node was not reached; this node tells it when both are running.")


_JANE_AND_JOHN, _JOHN_AND_JANE = "jane.haiku.ink john.haiku.ink", "john.haiku.ink jane.haiku.ink"
_MOVES: "Final[dict[RelationMove, tuple[str, str]]]" = {
    "request": (_JANE_AND_JOHN, "Ask to follow somebody; asking again brings both nodes in line."),
    "end": (_JANE_AND_JOHN, "Follow somebody no longer."),
    "accept": (
        f"{_JOHN_AND_JANE} --group friends",
        "Let somebody follow who asked; what they sent and what waits is taken in.",
    ),
    "refuse": (_JOHN_AND_JANE, "Do not let somebody follow; they can ask again."),
    "block": (_JOHN_AND_JANE, "Take nothing from somebody any more; to them it looks like a refusal."),
    "remove": (_JOHN_AND_JANE, "Let somebody follow no longer, or lift a block: they can ask again."),
}
for _name, (_example, _about) in _MOVES.items():
    _command = _move_in_group(_name) if _name in ("request", "accept") else _move_without_group(_name)
    app.command(_name, help=_about, epilog=f"Example: inkgrove relation {_name} {_example}")(_command)


def _me(node: "Node", name: str) -> IdentityId:
    from inkgrove.node.identity import parse_identity_name, show_identity

    return show_identity(node, parse_identity_name(name)).id


@app.command("list", epilog="Example: inkgrove relation list jane.haiku.ink")
def list_relations_of(options: CommandOptions, me: MeArgument) -> None:
    """List whom an identity follows and who follows it, with groups."""
    from inkgrove.node.identity import list_relations

    with options.open_node() as node:
        mine = _me(node, me)
        found = page = list_relations(node, mine, limit=_PAGE)
        while len(page) == _PAGE:
            page = list_relations(node, mine, after=(page[-1].side, page[-1].identity), limit=_PAGE)
            found = [*found, *page]
    rows = [{**facts_of(item, "side identity fqdn state group"), "changed": Timestamp(item.changed)} for item in found]
    cells = [(row["side"], row["fqdn"] or row["identity"], row["state"], row["group"]) for row in rows]
    options.answer(rows, lambda: print_table(("side", "name", "state", "group"), cells))


# Requests


def _sender(node: "Node", name: str) -> IdentityId:
    from inkgrove.node.errors import UnknownIdentity
    from inkgrove.node.identity import find_own_name_holder, parse_identity_name
    from inkgrove.store.federation import find_remote_identity

    wanted = parse_identity_name(name)
    if isinstance(wanted, IdentityId):
        return wanted
    fqdn = wanted.lower().rstrip(".")
    found = node.database.read(lambda c: find_own_name_holder(c, node, fqdn) or find_remote_identity(c, fqdn))
    if found is None:
        raise UnknownIdentity(f"{name[:253]} is not known here: who has sent nothing is not accepted", identity=name)
    return found.id


@request_app.command("list", epilog="Example: inkgrove request list john.haiku.ink")
def list_requests(options: CommandOptions, me: MeArgument) -> None:
    """List what waits for an identity: from whom, of which schema, since when and how large."""
    from inkgrove.node.publishing import list_waiting_requests

    with options.open_node() as node:
        found = list_waiting_requests(node, _me(node, me))
    rows = [
        {
            **facts_of(item, "via fqdn asks_to_follow instance"),
            "schema": str(item.schema) if item.schema is not None else None,
            "schema_name": item.schema_name,
            "arrived": Timestamp(item.arrived),
            "size": item.size,
        }
        for item in found
    ]
    cells = [
        (row["fqdn"] or row["via"], row["schema_name"] or row["schema"], row["arrived"], row["size"], row["instance"])
        for row in rows
    ]
    options.answer(rows, lambda: print_table(("from", "schema", "arrived", "bytes", "instance"), cells))


@request_app.command(epilog="Example: inkgrove request show john.haiku.ink jane.haiku.ink 0040…")
def show(options: CommandOptions, me: MeArgument, sender: SenderArgument, instance: InstanceArgument) -> None:
    """Show the content of something that waits; this accepts nothing."""
    from inkgrove.messages import message_to_value
    from inkgrove.messages.yaml_form import render_messages
    from inkgrove.node.publishing import read_waiting_request

    with options.open_node() as node:
        _, messages = read_waiting_request(node, _me(node, me), _sender(node, sender), parse_hash(instance))
    values = [message_to_value(message) for message in messages]
    options.answer(values, lambda: typer.echo(render_messages(messages), nl=False))


@request_app.command(epilog="Example: inkgrove request accept john.haiku.ink jane.haiku.ink --from-now-on")
def accept(
    options: CommandOptions,
    me: MeArgument,
    sender: SenderArgument,
    instance: OneArgument = None,
    from_now_on: FromNowOnOption = False,
) -> None:
    """Take in what waits of a sender; nobody follows anybody by it, and the sender is not told."""
    from inkgrove.federation.sharing import accept_sender, accept_waiting

    with options.open_node() as node:
        mine, theirs = _me(node, me), _sender(node, sender)
        receipts = accept_waiting(node, mine, theirs, _named(instance)) if instance or not from_now_on else []
        if from_now_on:
            receipts += accept_sender(node, mine, theirs)
    taken = list(dict.fromkeys(receipt.instance for receipt in receipts if receipt.decision == "accepted"))
    text = f"{len(taken)} taken in." + (" What they send from now on is taken in too." if from_now_on else "")
    facts = {"me": me, "sender": sender, "instances": taken, "from_now_on": from_now_on}
    options.answer(facts, lambda: note(text))


def _named(instance: str | None) -> Hash | None:
    return None if instance is None else parse_hash(instance)


@request_app.command(epilog="Example: inkgrove request refuse john.haiku.ink jane.haiku.ink")
def refuse(options: CommandOptions, me: MeArgument, sender: SenderArgument, instance: OneArgument = None) -> None:
    """Forget what waits of a sender, who is not told."""
    from inkgrove.federation.sharing import discard_waiting

    with options.open_node() as node:
        discard_waiting(node, _me(node, me), _sender(node, sender), _named(instance))
    facts = {"me": me, "sender": sender, "instance": instance, "forgotten": True}
    options.answer(facts, lambda: note("Forgotten."))


@request_app.command(epilog="Example: inkgrove request senders john.haiku.ink")
def senders(options: CommandOptions, me: MeArgument) -> None:
    """List those whose deliveries an identity takes in from now on."""
    from inkgrove.node.identity import name_of_identity

    with options.open_node() as node:
        mine = _me(node, me)
        found = node.database.read(lambda connection: _all_senders(connection, mine))
        rows = [
            {"identity": item.sender, "fqdn": name_of_identity(node, item.sender), "since": Timestamp(item.since)}
            for item in found
        ]
    cells = [(row["fqdn"] or row["identity"], row["since"]) for row in rows]
    options.answer(rows, lambda: print_table(("sender", "since"), cells))


def _all_senders(connection: "Connection", me: IdentityId) -> "list[AcceptedSender]":
    from inkgrove.store.federation import list_senders

    found = page = list_senders(connection, me, limit=_PAGE)
    while len(page) == _PAGE:
        page = list_senders(connection, me, after=page[-1].sender, limit=_PAGE)
        found = [*found, *page]
    return found


@request_app.command(epilog="Example: inkgrove request drop john.haiku.ink jane.haiku.ink")
def drop(options: CommandOptions, me: MeArgument, sender: SenderArgument) -> None:
    """Let what somebody sends wait for ME's word again."""
    from inkgrove.federation.sharing import drop_sender

    with options.open_node() as node:
        drop_sender(node, _me(node, me), _sender(node, sender))
    facts = {"me": me, "sender": sender, "from_now_on": False}
    options.answer(facts, lambda: note("What they send waits again."))

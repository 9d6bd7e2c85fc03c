"""`inkgrove relation`: whom identities of this node follow, and who follows them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import JsonOption, console, note, print_json, printable
from inkgrove.cli.peer import open_node
from inkgrove.cli.place import StoreOption
from inkgrove.messages.reading import UNSET
from inkgrove.messages.timestamp import Timestamp

if TYPE_CHECKING:
    from inkgrove.node.relations import Move

app = typer.Typer(
    no_args_is_help=True,
    help="Who follows whom.",
    epilog="Example: inkgrove relation request jane.haiku.ink john.haiku.ink",
)

MeArgument = Annotated[str, typer.Argument(metavar="ME", help="An identity of this node, by name or id.")]
OtherArgument = Annotated[str, typer.Argument(metavar="OTHER", help="The other one, wherever they are.")]
GroupOption = Annotated[str | None, typer.Option(metavar="NAME", help="A group of ME's own to put it into.")]
_PAGE = 1_000


def _move(
    home: Path, store: str | None, me: str, other: str, move: "Move", group: str | None, *, as_json: bool
) -> None:
    # Imported here: every other command starts faster without.
    from inkgrove.federation.relating import move_and_tell  # noqa: PLC0415
    from inkgrove.node.identities import parse_identity_name, show_identity  # noqa: PLC0415

    with open_node(home, store) as node:
        mine = show_identity(node, parse_identity_name(me))
        made = move_and_tell(node, mine.id, parse_identity_name(other), move, UNSET if group is None else group)
    if as_json:
        print_json({"me": me, "other": other, "state": made.state, "told": made.is_told})
        return
    note(f"{me} and {other}: {made.state or 'no relation'}")
    if not made.is_told:
        note("Their node was not reached; this node tells it when both are running.")


@app.command(epilog="Example: inkgrove relation request jane.haiku.ink john.haiku.ink")
def request(
    me: MeArgument,
    other: OtherArgument,
    group: GroupOption = None,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask to follow somebody; asking again brings both nodes in line."""
    _move(home, store, me, other, "request", group, as_json=as_json)


@app.command(epilog="Example: inkgrove relation end jane.haiku.ink john.haiku.ink")
def end(
    me: MeArgument,
    other: OtherArgument,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow somebody no longer."""
    _move(home, store, me, other, "end", None, as_json=as_json)


@app.command(epilog="Example: inkgrove relation accept john.haiku.ink jane.haiku.ink --group friends")
def accept(
    me: MeArgument,
    other: OtherArgument,
    group: GroupOption = None,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let somebody follow who asked; what they sent and what waits is taken in."""
    _move(home, store, me, other, "accept", group, as_json=as_json)


@app.command(epilog="Example: inkgrove relation refuse john.haiku.ink jane.haiku.ink")
def refuse(
    me: MeArgument,
    other: OtherArgument,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Do not let somebody follow; they can ask again."""
    _move(home, store, me, other, "refuse", None, as_json=as_json)


@app.command(epilog="Example: inkgrove relation block john.haiku.ink jane.haiku.ink")
def block(
    me: MeArgument,
    other: OtherArgument,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take nothing from somebody any more; to them it looks like a refusal."""
    _move(home, store, me, other, "block", None, as_json=as_json)


@app.command(epilog="Example: inkgrove relation remove john.haiku.ink jane.haiku.ink")
def remove(
    me: MeArgument,
    other: OtherArgument,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let somebody follow no longer, or lift a block: they can ask again."""
    _move(home, store, me, other, "remove", None, as_json=as_json)


@app.command("list", epilog="Example: inkgrove relation list jane.haiku.ink")
def list_all(
    me: MeArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """List whom an identity follows and who follows it, with groups."""
    from inkgrove.node.identities import parse_identity_name, show_identity  # noqa: PLC0415
    from inkgrove.node.relations import list_relations  # noqa: PLC0415

    with open_node(home, store) as node:
        mine = show_identity(node, parse_identity_name(me)).id
        found = list_relations(node, mine, limit=_PAGE)
        while len(found) % _PAGE == 0 and found:
            more = list_relations(node, mine, after=(found[-1].side, found[-1].identity), limit=_PAGE)
            if not more:
                break
            found += more
    rows = [
        {
            "side": item.side,
            "identity": item.identity,
            "fqdn": item.fqdn,
            "state": item.state,
            "group": item.group,
            "changed": Timestamp(item.changed),
        }
        for item in found
    ]
    if as_json:
        print_json(rows)
        return
    table = Table("side", "name", "state", "group")
    for row in rows:
        name = row["fqdn"] or row["identity"]
        table.add_row(*(printable(str(cell or "-")) for cell in (row["side"], name, row["state"], row["group"])))
    console().print(table)

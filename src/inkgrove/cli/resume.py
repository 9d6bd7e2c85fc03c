"""`inkgrove resume`: a node that was put back from a copy, and what it waits for before it signs again."""

from typing import Annotated

import typer

from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import JsonOption, note, print_json, printable
from inkgrove.cli.peer import open_node
from inkgrove.cli.place import StoreOption
from inkgrove.messages.timestamp import Timestamp


def add_to(app: typer.Typer) -> None:
    """Put the command beside the groups."""
    app.command(epilog="Example: inkgrove resume --accept-loss")(resume)


def resume(
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Sign again without having asked: a log of which others hold more is forked, and ends for good.",
        ),
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a node that was put back from a copy waits for before it signs again, or let it sign at once."""
    from inkgrove.node.errors import Restored  # noqa: PLC0415

    with open_node(home, store) as node:
        behind = node.signing.behind()
        if behind is not None and accept_loss:
            node.signing.resume()
    if as_json and (behind is None or accept_loss):
        print_json({"signs": True, "resumed": behind is not None})
    elif behind is None:
        note("This node signs; there is nothing to resume.")
    elif accept_loss:
        note("This node signs again. Whoever holds entries that it lacks refuses what it signs in those logs.")
    else:
        since = Timestamp(behind.behind_since or 0)
        waits = "; ".join(f"{name} ({why or 'not asked yet'})" for name, why in sorted(behind.waits_for.items()))
        who = (
            f"It waits for {printable(waits)}." if waits else "Nobody is known whom it could ask; is the node running?"
        )
        raise Restored(
            f"nothing is signed since {since}: {behind.reason}. {who} A running node goes on by itself when all have"
            " answered. `inkgrove resume --accept-loss` goes on at once: every log of which somebody holds more than"
            " this node is then forked and ends for good, log 0 and with it the identity included",
            waits_for=dict(behind.waits_for),
        )

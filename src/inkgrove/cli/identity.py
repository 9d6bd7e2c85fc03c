"""`inkgrove identity`: the identities that a node hosts, worked on in its store directly."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inkgrove.cli.configuration import current, set_flag
from inkgrove.cli.home import DEFAULT_HOME, HomeOption
from inkgrove.cli.output import JsonOption, console, note, print_facts, print_json
from inkgrove.cli.place import StoreOption, store_place
from inkgrove.core.errors import Usage

if TYPE_CHECKING:
    from inkgrove.node.identities import Identity
    from inkgrove.node.node import Node

app = typer.Typer(
    no_args_is_help=True,
    help="Identities that the node hosts.",
    epilog="Example: inkgrove identity create jane.haiku.ink",
)

NameArgument = Annotated[str, typer.Argument(help="The name, such as jane.haiku.ink.", metavar="FQDN")]


def _open(home: Path, store: str | None, endpoint: str | None = None) -> "Node":
    from inkgrove.node.node import Node  # noqa: PLC0415

    set_flag("node.endpoint", endpoint)
    return Node(store_place(home, store), current().node, home=home)


def _read_password() -> str:
    """From a prompt, twice; from standard input if that is no terminal. Never from an argument, which others see."""
    if sys.stdin is None:
        raise Usage("standard input is closed: the password is read from there")
    if sys.stdin.isatty():
        password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return password
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise Usage("write the password to standard input, in one line")
    return line


def _facts(identity: "Identity") -> dict[str, object]:
    document = identity.document
    return {
        "fqdn": document.fqdn,
        "id": identity.id,
        "key": identity.key,
        "endpoint": document.endpoint,
        "name": document.name,
        "revision": identity.revision,
    }


@app.command(epilog="Example: inkgrove identity create jane.haiku.ink --name Jane")
def create(
    fqdn: NameArgument,
    name: Annotated[str | None, typer.Option(help="The name that people read.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Where the node is reached; `{fqdn}` stands for the name.", metavar="URL")
    ] = None,
    has_password: Annotated[
        bool, typer.Option("--password/--no-password", help="Whether to ask for a password to sign in with.")
    ] = True,
    home: HomeOption = DEFAULT_HOME,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Host a new identity whose key the node keeps; the password comes from a prompt or standard input."""
    from inkgrove.node.identities import create_identity  # noqa: PLC0415

    password = _read_password() if has_password else None
    node = _open(home, store, endpoint)
    try:
        identity = create_identity(node, fqdn, password, name=name)
    finally:
        node.close()
    print_json(_facts(identity)) if as_json else print_facts("New identity", _facts(identity))


@app.command(epilog="Example: inkgrove identity show jane.haiku.ink")
def show(
    fqdn: NameArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Show an identity by name or id."""
    from inkgrove.node.identities import parse_identity_name, show_identity  # noqa: PLC0415

    node = _open(home, store)
    try:
        identity = show_identity(node, parse_identity_name(fqdn))
    finally:
        node.close()
    facts = {**_facts(identity), "profile": identity.document.profile}
    print_json(facts) if as_json else print_facts(identity.document.fqdn, facts)


@app.command("list", epilog="Example: inkgrove identity list")
def list_all(home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the identities that this node hosts, by name."""
    from inkgrove.node.identities import show_all  # noqa: PLC0415

    node = _open(home, store)
    try:
        hosted = show_all(node)
    finally:
        node.close()
    if as_json:
        print_json([{"fqdn": identity.fqdn, "id": identity.id} for identity in hosted])
        return
    for identity in hosted:
        console().print(f"{identity.fqdn}  {identity.id}")


@app.command(epilog="Example: inkgrove identity password jane.haiku.ink")
def password(
    fqdn: NameArgument, home: HomeOption = DEFAULT_HOME, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Set a new password, from a prompt or standard input; every sign-in ends."""
    from inkgrove.node.identities import parse_identity_name, show_identity  # noqa: PLC0415
    from inkgrove.node.sessions import change_password  # noqa: PLC0415

    new = _read_password()
    node = _open(home, store)
    try:
        identity = show_identity(node, parse_identity_name(fqdn))
        change_password(node, identity.id, new)
    finally:
        node.close()
    if as_json:
        print_json({"fqdn": identity.document.fqdn, "id": identity.id, "changed": True})
        return
    note(f"The password of {fqdn} is new, and every sign-in has ended.")

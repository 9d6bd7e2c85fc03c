"""`inkgrove identity`: the identities that a node hosts, changed directly in its store."""

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from inkgrove.cli.options import CommandGroup, CommandOptions, set_flag
from inkgrove.cli.output import console, note, print_facts, print_json
from inkgrove.cli.progress import progress
from inkgrove.core.errors import InputError

if TYPE_CHECKING:
    from inkgrove.node.identity import IdentityRecord

app = CommandGroup("Identities that the node hosts.", "identity create jane.haiku.ink")

NameArgument = Annotated[str, typer.Argument(help="The name, such as jane.haiku.ink.", metavar="FQDN")]


def _read_password(prompt: str = "Password", *, is_new: bool = True) -> str:
    """Ask for a password, a new one twice, or read a line if standard input is no terminal; raises `input.usage`.

    It never comes from an argument, which others can see.
    """
    if sys.stdin is None:
        raise InputError("input.usage", "standard input is closed: the password is read from there")
    if sys.stdin.isatty():
        password: str = typer.prompt(prompt, hide_input=True, confirmation_prompt=is_new, err=True)
        return password
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise InputError("input.usage", "write the password to standard input, in one line")
    return line


def _facts(identity: "IdentityRecord") -> dict[str, object]:
    document = identity.document
    return {
        "fqdn": document.fqdn,
        "id": identity.id,
        "key": identity.key,
        "endpoint": document.endpoint,
        "name": document.name,
        "revision": identity.revision,
        "recovery": identity.recovery.value,
        "controller": document.controller,
        "state": identity.state,
    }


_WITHOUT = "without recovery: inkgrove identity words FQDN"
"""The mark of an identity whose first key is on the node alone, with the way to mend it."""


def _show_words(words: str) -> None:
    """Print words with their numbers, six in a line."""
    numbered = [f"{number:2}. {word:<9}" for number, word in enumerate(words.split(), 1)]
    for start in range(0, len(numbered), 6):
        console().print("".join(numbered[start : start + 6]).rstrip())


def _read_words() -> str:
    """Ask for the words, or read all of standard input if it is no terminal; they never come from an argument."""
    if sys.stdin is None:
        raise InputError("input.usage", "standard input is closed: the words are read from there")
    if sys.stdin.isatty():
        words: str = typer.prompt("The 24 words", err=True)
        return words
    return sys.stdin.read()


@app.command(epilog="Example: inkgrove identity create jane.haiku.ink --name Jane")
def create(
    options: CommandOptions,
    fqdn: NameArgument,
    name: Annotated[str | None, typer.Option(help="The name that people read.")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Where the node is reached; `{fqdn}` stands for the name.", metavar="URL")
    ] = None,
    has_password: Annotated[
        bool, typer.Option("--password/--no-password", help="Whether to ask for a password to sign in with.")
    ] = True,
    with_words: Annotated[
        bool, typer.Option("--words", help="Make the first key as 24 words, shown once; the node keeps a controller.")
    ] = False,
) -> None:
    """Host a new identity; the password comes from a prompt or standard input.

    The node keeps its first key, which nobody can get back if the node is lost, or with --words a controller only.
    """
    from inkgrove.node.identity import create_identity, create_with_words

    password = _read_password() if has_password else None
    set_flag("node.endpoint", endpoint)
    with options.open_node(create=True) as node:
        if with_words:
            made = create_with_words(node, fqdn, password, name=name)
            facts = _facts(made.identity)
            options.answer({**facts, "words": made.words}, lambda: _tell_words("New identity", facts, made.words))
            return
        identity = create_identity(node, fqdn, password, name=name)
    options.answer(_facts(identity), lambda: print_facts("New identity", _facts(identity)))


def _tell_words(title: str, facts: dict[str, object], words: str) -> None:
    print_facts(title, facts)
    _show_words(words)
    note("Write these words down now: they are shown once, and whoever has them is the identity.")


@app.command(epilog="Example: inkgrove identity words jane.haiku.ink")
def words(
    options: CommandOptions,
    fqdn: NameArgument,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Read the words from standard input, and forget the first key.")
    ] = False,
) -> None:
    """Show the first key of an identity as 24 words; with --confirm the node forgets it and keeps a controller.

    Nothing changes before the words that were written down are given back.
    """
    from inkgrove.node.identity import confirm_words, parse_identity_name, show_identity, show_words

    options.existing_store()
    given = _read_words() if confirm else None
    with options.open_node() as node:
        identity = show_identity(node, parse_identity_name(fqdn))
        if given is None:
            shown = show_words(node, identity.id)
            options.answer({"fqdn": identity.document.fqdn, "words": shown}, lambda: _tell_first_step(fqdn, shown))
            return
        identity = confirm_words(node, identity.id, given)
    options.answer(_facts(identity), lambda: print_facts("The words are the first key now", _facts(identity)))


def _tell_first_step(fqdn: str, shown: str) -> None:
    _show_words(shown)
    note(f"Write these words down, then give them back: inkgrove identity words {fqdn} --confirm")


@app.command(epilog="Example: inkgrove identity recover jane.haiku.ink --to https://poem.ink --as jane.poem.ink")
def recover(
    options: CommandOptions,
    fqdn: NameArgument,
    node: Annotated[
        str | None, typer.Option(help="Where the node is reached, if not at the name.", metavar="URL")
    ] = None,
    new_controller: Annotated[
        bool, typer.Option("--new-controller", help="Take the controller away, and let the node make a new one.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(help="Take the identity to this node: its own one is dead or hostile.", metavar="URL"),
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--as", help="With --to: the name that it takes there, if not the same.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="With --to: the file of the person.", metavar="FILE", dir_okay=False)
    ] = None,
    friend: Annotated[
        list[str] | None,
        typer.Option(help="With --to, without a file: somebody whose node is asked for what it holds; repeat it."),
    ] = None,
    hostile: Annotated[
        bool, typer.Option("--hostile", help="With --to: nothing more of what the old node signs counts.")
    ] = False,
    older: Annotated[
        bool, typer.Option("--older", help="With --to: the node may hold newer entries than the file.")
    ] = False,
) -> None:
    """Get back into an identity with the words, over HTTP: set a new password on its node, or take it to another one.

    Standard input has the new password in its first line and the words behind it, which do not leave this machine.
    """
    from inkgrove.client import Client

    if to is None and (new_name is not None or file is not None or friend or hostile or older):
        raise InputError("input.usage", "--as, --file, --friend, --hostile and --older go with --to")
    if to is not None and (node is not None or new_controller):
        raise InputError("input.usage", "--node and --new-controller are for a node that lives: leave --to out")
    if to is not None and (file is None) == (not friend):
        raise InputError("input.usage", "give the file (--file), or friends whose nodes hold something (--friend)")
    password = _read_password()
    given = _read_words()
    if to is not None:
        _bring(options, to, new_name or fqdn, password, given, fqdn, file, friend or [], hostile=hostile, older=older)
        return
    url = node or f"https://{fqdn}"
    with Client(url) as client:
        identity = client.recover(fqdn, password, given)
    if new_controller:
        with Client.sign_in(url, fqdn, password) as signed_in:
            identity = signed_in.replace_controller(fqdn, password, given)
    facts = {"fqdn": identity.fqdn, "id": identity.id, "controller": identity.controller, "recovery": identity.recovery}
    options.answer(facts, lambda: print_facts("The password is new, and every sign-in has ended", facts))


def _bring(
    options: CommandOptions,
    url: str,
    fqdn: str,
    password: str,
    given: str,
    old_name: str,
    file: Path | None,
    friends: list[str],
    *,
    hostile: bool,
    older: bool,
) -> None:
    """Take an identity to another node and say what has become of it."""
    from inkgrove.client import Arrival, Client

    asked: list[Arrival] = []
    with Client(url) as client, progress("taking it there", quiet=options.as_json, unit="bytes") as bar:

        def show(arrival: Arrival) -> None:
            asked[:] = [arrival]
            bar.show(_STEPS[arrival.state], arrival.received, arrival.size, "bytes")

        identity = client.bring_identity(
            fqdn,
            password,
            given,
            file=file,
            friends=friends,
            hostile=hostile,
            older=older,
            old_name=old_name,
            on_progress=show,
        )
    facts: dict[str, object] = {"fqdn": identity.fqdn, "id": identity.id, "endpoint": identity.endpoint}
    facts |= {"controller": identity.controller, "recovery": identity.recovery}
    told = {str(item["fqdn"]): item["reason"] or f"{item['entries']:,} entries" for item in asked[-1].friends}
    shown = {**facts, **told}
    options.answer({**facts, "friends": told}, lambda: print_facts("The identity lives there now", shown))
    if not hostile:
        note("What the old node has signed still counts; once it is certain that nothing more is lacking, end its key.")


_STEPS: Final = {
    "asked": "sending the file",
    "fetching": "fetching",
    "arriving": "the node checks it",
    "committing": "signing the document",
    "here": "finding people",
}


@app.command(epilog="Example: inkgrove identity move jane.haiku.ink --to https://poem.ink --as jane.poem.ink")
def move(
    options: CommandOptions,
    fqdn: NameArgument,
    to: Annotated[str, typer.Option(help="Where the new node is reached.", metavar="URL")],
    new_name: Annotated[str, typer.Option("--as", help="The name that the identity takes there.")],
    node: Annotated[
        str | None, typer.Option(help="Where the old node is reached, if not at the name.", metavar="URL")
    ] = None,
    without_words: Annotated[
        bool, typer.Option("--without-words", help="Move although nobody has the words of the first key.")
    ] = False,
) -> None:
    """Move to another node with everything, over HTTP; the old node helps. If that one is gone, use `recover --to`.

    Standard input has the password on the old node in its first line, and a new one for the new node in its second.
    The nodes go on if this command is interrupted. If the new node refuses, the move is taken back.
    """
    from inkgrove.client import Client, ClientError, Refused
    from inkgrove.client.arrivals import LOOK_SECONDS, is_over

    password = _read_password(f"Password of {fqdn}", is_new=False)
    new_password = _read_password(f"New password for {new_name}")
    with (
        Client.sign_in(node or f"https://{fqdn}", fqdn, password) as old,
        Client(to) as new,
        progress("moving", quiet=options.as_json, unit="bytes") as bar,
    ):
        grant = old.begin_move(new.endpoint_for(new_name), password, fqdn=new_name, without_words=without_words)
        try:
            arrival = new.take_over(grant, new_password)
            while not (is_over(arrival) and arrival.is_finished):
                bar.show(_MOVE_STEPS[arrival.state], arrival.received, arrival.size, "bytes")
                time.sleep(LOOK_SECONDS)
                arrival = new.arrival_state(arrival)
        except Refused:
            with suppress(ClientError):  # it has left already: then there is nothing to take back
                old.cancel_move(password)
            raise
        identity = new.identity(new_name)
    facts = {"fqdn": identity.fqdn, "id": identity.id, "endpoint": identity.endpoint, "recovery": identity.recovery}
    options.answer(facts, lambda: print_facts("The identity lives there now", facts))


_MOVE_STEPS: Final = _STEPS | {"asked": "the old node writes the file", "fetching": "the new node fetches the file"}


@app.command(epilog="Example: inkgrove identity controller jane.haiku.ink")
def controller(options: CommandOptions, fqdn: NameArgument) -> None:
    """Show who speaks for an identity: the documents that lead to the one in effect, and the state of every key."""
    from inkgrove.node.identity import parse_identity_name, read_control, show_identity

    with options.open_node() as node:
        identity = show_identity(node, parse_identity_name(fqdn))
        control = node.database.read(lambda connection: read_control(connection, identity.key))
    steps = [
        {"author": step.author, "seq_num": step.seq_num, "hash": step.hash, "controller": step.document.controller}
        for step in control.path
    ]
    keys = {str(key): state.value for key, state in control.keys.items()}
    facts = {
        **_facts(identity),
        **{
            f"document {number}": f"entry {step['seq_num']} of {step['author']}" for number, step in enumerate(steps, 1)
        },
        **keys,
    }
    options.answer(
        {**_facts(identity), "path": steps, "keys": keys}, lambda: print_facts(identity.document.fqdn, facts)
    )


@app.command(epilog="Example: inkgrove identity show jane.haiku.ink")
def show(options: CommandOptions, fqdn: NameArgument) -> None:
    """Show an identity by name or id."""
    from inkgrove.node.identity import parse_identity_name, show_identity, show_quota

    with options.open_node() as node:
        identity = show_identity(node, parse_identity_name(fqdn))
        quota = show_quota(node, identity.id).render()
    facts = {**_facts(identity), "profile": identity.document.profile}
    shown = {**facts, **_usage_facts(quota)}
    options.answer({**facts, "usage": quota}, lambda: print_facts(identity.document.fqdn, shown))


def _usage_facts(quota: dict[str, dict[str, int]]) -> dict[str, object]:
    return {name.replace("_", " "): f"{item['used']:,} of {item['limit']:,}" for name, item in quota.items()}


@app.command(epilog="Example: inkgrove identity quota jane.haiku.ink --blob-bytes 20000000000")
def quota(
    options: CommandOptions,
    fqdn: NameArgument,
    entries: Annotated[int | None, typer.Option(help="How many entries it may publish.", min=0)] = None,
    payload_bytes: Annotated[int | None, typer.Option(help="How many bytes of messages.", min=0)] = None,
    blob_bytes: Annotated[int | None, typer.Option(help="How many bytes of blobs it may keep.", min=0)] = None,
    default: Annotated[bool, typer.Option("--default", help="Go back to what the settings say for the rest.")] = False,
) -> None:
    """Show what an identity has stored and may store; with options, give it a quota of its own, at once."""
    from inkgrove.node.identity import change_limits, parse_identity_name, show_identity

    given = {"entries": entries, "payload_bytes": payload_bytes, "blob_bytes": blob_bytes}
    limits = {name: limit for name, limit in given.items() if default or limit is not None}
    with options.open_node() as node:
        identity = show_identity(node, parse_identity_name(fqdn))
        found = change_limits(node, identity.id, limits).render()
    name = identity.document.fqdn
    options.answer({"fqdn": name, "id": identity.id, "usage": found}, lambda: print_facts(name, _usage_facts(found)))


@app.command("list", epilog="Example: inkgrove identity list")
def list_all(options: CommandOptions) -> None:
    """List the identities that this node hosts, by name.

    Administrators are marked, names outside of node.domains, who has moved to another node, and who has no words: if
    the node is lost, so are they.
    """
    from inkgrove.node.identity import (
        list_administrators,
        list_hosted_identities,
        list_without_recovery,
        rules_of,
        show_quotas,
    )

    with options.open_node() as node:
        hosted = list_hosted_identities(node)
        quotas = show_quotas(node, [identity.id for identity in hosted])
        administrators, rules = list_administrators(node), rules_of(node.settings)
        unsafe = list_without_recovery(node)
    if options.as_json:
        print_json(
            [
                {
                    "fqdn": identity.fqdn,
                    "id": identity.id,
                    "is_administrator": identity.id in administrators,
                    "is_outside": not rules.is_under_own_domain(identity.fqdn),
                    "lives_here": identity.lives_here,
                    "has_recovery": identity.id not in unsafe,
                    "usage": quotas[identity.id].render(),
                }
                for identity in hosted
            ]
        )
        return
    for identity in hosted:
        used = quotas[identity.id].used
        amounts = f"{used.entries:,} entries, {used.payload_bytes:,} B of messages, {used.blob_bytes:,} B of blobs"
        marks = {
            "administrator": identity.id in administrators,
            "outside of node.domains": bool(rules.domains) and not rules.is_under_own_domain(identity.fqdn),
            "moved to another node": not identity.lives_here,
            _WITHOUT.replace("FQDN", identity.fqdn): identity.id in unsafe,
        }
        said = "".join(f"  ({mark})" for mark, is_so in marks.items() if is_so)
        console().print(f"{identity.fqdn}  {identity.id}  {amounts}{said}")


@app.command(epilog="Example: inkgrove identity password jane.haiku.ink")
def password(options: CommandOptions, fqdn: NameArgument) -> None:
    """Set a new password, from a prompt or standard input; every sign-in ends."""
    from inkgrove.node.identity import change_password, parse_identity_name, show_identity

    options.existing_store()  # nobody types a password for a store that is not there
    new = _read_password()
    with options.open_node() as node:
        identity = show_identity(node, parse_identity_name(fqdn))
        change_password(node, identity.id, new)
    facts = {"fqdn": identity.document.fqdn, "id": identity.id, "changed": True}
    options.answer(facts, lambda: note(f"The password of {fqdn} is new, and every sign-in has ended."))


FileArgument = Annotated[Path, typer.Argument(help="The file of a person.", metavar="FILE")]


def _read_passphrase(*, is_new: bool) -> str:
    """Ask for the passphrase of a file, or read a line from standard input; twice if it is a new one."""
    if sys.stdin is not None and sys.stdin.isatty():
        asked: str = typer.prompt("Passphrase of the file", hide_input=True, confirmation_prompt=is_new, err=True)
        return asked
    line = "" if sys.stdin is None else sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise InputError("input.usage", "write the passphrase to standard input, in one line")
    return line


@app.command(epilog="Example: inkgrove identity export jane.haiku.ink jane.person")
def export(
    options: CommandOptions,
    fqdn: NameArgument,
    file: FileArgument,
    with_secret: Annotated[
        bool,
        typer.Option(
            "--with-secret",
            help="Put the first key into it, sealed with a passphrase from a prompt or standard input; only if the "
            "node keeps it.",
        ),
    ] = False,
) -> None:
    """Write everything that the node has of an identity into one file, also while the node runs."""
    from inkgrove.node.identity import parse_identity_name, show_identity
    from inkgrove.node.person_file import seal_secret, write_person_file
    from inkgrove.store.files import rename_durably

    if file.exists():
        raise InputError("input.unreadable-file", f"{file} exists already; choose another name")
    options.existing_store()  # nobody types a passphrase for a store that is not there
    passphrase = _read_passphrase(is_new=True) if with_secret else None
    target = file.resolve()
    part = target.with_name(f".{target.name}.part")
    with options.open_node() as node, progress("exporting", quiet=options.as_json) as bar:
        identity = show_identity(node, parse_identity_name(fqdn))
        secret = None
        if passphrase is not None:
            secret = seal_secret(node, node.secret_key(identity.key), passphrase)
        try:
            part.touch(0o600)
            with part.open("wb") as opened:
                written = write_person_file(node, identity.id, opened, secret=secret, on_progress=bar.show)
            rename_durably(part, target)
        finally:
            part.unlink(missing_ok=True)
    facts = {"fqdn": identity.document.fqdn, "id": identity.id, "file": str(file), "size": written.size}
    facts |= {"digest": written.digest.hex(), "counts": written.counts}
    counted = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(written.counts.items()))
    options.answer(facts, lambda: typer.echo(f"{file}: {written.size:,} bytes; {counted}"))
    if secret is None:
        note("No secret is in it: who finds the file can read all of it, but sign nothing.")


@app.command("import", epilog="Example: inkgrove identity import jane.person")
def import_(
    options: CommandOptions,
    file: FileArgument,
    identity: Annotated[
        str | None, typer.Option("--identity", help="Whose file it has to be, by id.", metavar="ID")
    ] = None,
    with_secret: Annotated[
        bool,
        typer.Option(
            "--with-secret",
            help="Open the first key in it with a passphrase, from a prompt or standard input, and let the identity "
            "live here with it.",
        ),
    ] = False,
    older: Annotated[
        bool, typer.Option("--older", help="Take in what is lacking although the node holds newer entries.")
    ] = False,
) -> None:
    """Check the file of a person, all of it, then take in what the node lacks; twice changes nothing."""
    from inkgrove.node.identity import parse_identity_name
    from inkgrove.node.person_file import FileReader, import_person

    with FileReader(file.resolve()):
        pass  # nobody types a passphrase for, and no store is made of, something that is no such file
    expected = None if identity is None else parse_identity_name(identity)
    if isinstance(expected, str):
        raise InputError("input.usage", "--identity takes an id, 64 digits in hex")
    passphrase = _read_passphrase(is_new=False) if with_secret else None
    with options.open_node(create=True) as node, progress("checking", quiet=options.as_json, unit="bytes") as bar:
        report = import_person(
            node,
            file.resolve(),
            expected=expected,
            passphrase=passphrase,
            allow_older=older,
            on_progress=lambda what, done, total: bar.show(what, done, total, "bytes"),
        )
        behind = node.signing.read_behind_state()
    counts = {"new": report.new, "known": report.known, "refused": report.refused, "waiting": report.waiting}
    facts: dict[str, object] = {"fqdn": report.fqdn, "id": report.identity, "lives_here": report.lives_here}
    facts |= {name: {key: count for key, count in sorted(items.items()) if count} for name, items in counts.items()}
    if options.as_json:
        print_json(facts)
        return
    for name, items in counts.items():
        told = ", ".join(f"{count:,} {key.replace('_', ' ')}" for key, count in sorted(items.items()) if count)
        if told:
            typer.echo(f"{name}: {told}")
    if report.is_hosted_now:
        note(f"{report.fqdn} lives here now, without a password: inkgrove identity password {report.fqdn}")
        if behind is not None:
            note("Nothing is signed until others were asked (inkgrove resume says whom). Then import the file again.")
    elif report.waiting:
        note("What waits is taken in once the identity lives here: import the file again then.")

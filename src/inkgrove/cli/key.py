"""`inkgrove key`: make key pairs."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import write_new
from inkgrove.cli.output import JsonOption, print_facts, print_json
from inkgrove.core.keys import KEY_BYTES, SecretKey, identity_of

app = typer.Typer(no_args_is_help=True, help="Make keys.", epilog="Example: inkgrove key new --out me.key")


@app.command(epilog="Example: inkgrove key new --out me.key")
def new(
    out: Annotated[Path | None, typer.Option(help="Write the secret key here, readable by you alone.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an Ed25519 key pair; without --out the secret key is printed."""
    key = SecretKey.from_seed(secrets.token_bytes(KEY_BYTES))
    facts: dict[str, object] = {"public_key": key.public, "identity": identity_of(key.public)}
    if out is None:
        facts["secret_key"] = key.seed
    else:
        write_new(out, key.seed.hex().encode() + b"\n", mode=0o600)
        facts["secret_key_file"] = str(out)
    if as_json:
        print_json(facts)
    else:
        print_facts("New key", facts)

"""`inkgrove entry`: look into an entry, sign one."""

from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import parse_hex, read_bytes, read_secret_key, read_valid_log, render_entry_line
from inkgrove.cli.output import JsonOption, note, print_facts, print_json
from inkgrove.core.entry import Entry, decode_entry, hash_entry
from inkgrove.core.errors import BadSignature, KeyMismatch
from inkgrove.core.hashing import Flavour, parse_hash
from inkgrove.core.next_entry import NextEntry, next_entry, sign_next
from inkgrove.core.verify import verify_signed

app = typer.Typer(
    no_args_is_help=True,
    help="Look into entries and sign them.",
    epilog="Example: inkgrove entry decode 0001350fd127...",
)


@app.command(epilog="Example: inkgrove entry decode 0001350fd127...")
def decode(
    entry_hex: Annotated[str, typer.Argument(metavar="HEX", help="The entry in hex; - reads it from stdin.")],
    as_json: JsonOption = False,
) -> None:
    """Decode one entry strictly and say whether its signature holds."""
    entry = decode_entry(parse_hex(entry_hex))
    facts = _facts(entry)
    if as_json:
        print_json(facts)
    else:
        print_facts("Entry", facts)


def _facts(entry: Entry) -> dict[str, object]:
    try:
        verify_signed(entry)
        holds = True
    except BadSignature:
        holds = False
    return {
        "hash": hash_entry(entry),
        "is_end_of_log": entry.is_end_of_log,
        "author": entry.author,
        "log_id": entry.log_id,
        "seq_num": entry.seq_num,
        "lipmaa_link": entry.lipmaa_link,
        "backlink": entry.backlink,
        "payload_size": entry.payload_size,
        "payload_hash": entry.payload_hash,
        "signature": entry.signature,
        "signature_holds": holds,
    }


@app.command(epilog="Example: inkgrove entry sign --key me.key --payload a164... --after feed.jsonl >> feed.jsonl")
def sign(
    key: Annotated[Path, typer.Option(help="Key file, as `inkgrove key new --out` writes it.")],
    payload: Annotated[str | None, typer.Option(metavar="HEX", help="The payload in hex.")] = None,
    payload_file: Annotated[Path | None, typer.Option(help="The payload as a file of bytes.")] = None,
    after: Annotated[Path | None, typer.Option(help="Log file to continue: gives log id, seq num and links.")] = None,
    log_id: Annotated[int | None, typer.Option(min=0, max=2**64 - 1, help="Log id of a new log (default 1).")] = None,
    seq_num: Annotated[int | None, typer.Option(min=1, max=2**64 - 1, help="Given by hand instead of --after.")] = None,
    backlink: Annotated[str | None, typer.Option(metavar="HEX", help="Hash of the entry before.")] = None,
    lipmaa_link: Annotated[str | None, typer.Option(metavar="HEX", help="Hash of the lipmaa entry.")] = None,
    end_of_log: Annotated[bool, typer.Option("--end-of-log", help="Let this be the last entry.")] = False,
    yasmf: Annotated[bool, typer.Option("--yasmf", help="Write BLAKE3 hashes (a new log only).")] = False,
    as_json: JsonOption = False,
) -> None:
    """Sign an entry for a payload and print it as a line of a log file."""
    if (payload is None) == (payload_file is None):
        raise typer.BadParameter("give the payload with --payload or with --payload-file")
    content = parse_hex(payload) if payload is not None else read_bytes(payload_file or Path("-"))
    secret = read_secret_key(key)
    flavour = Flavour.YASMF if yasmf else Flavour.YAMF
    if after is not None:
        if any(given is not None for given in (seq_num, backlink, lipmaa_link, log_id)) or yasmf:
            raise typer.BadParameter("--after gives log id, seq num, links and hash format; leave those out")
        place = next_entry(read_valid_log(after).verified)
        if place.author != secret.public:
            raise KeyMismatch(f"{after} is a log of {place.author}, the key is that of {secret.public}")
    else:
        place = NextEntry(
            secret.public,
            1 if log_id is None else log_id,
            seq_num or 1,
            parse_hash(lipmaa_link) if lipmaa_link else None,
            parse_hash(backlink) if backlink else None,
            flavour,
        )
    entry = sign_next(secret, content, place, is_end_of_log=end_of_log)
    if as_json:
        print_json({"entry": entry.encoded, "payload": content, "hash": hash_entry(entry), "seq_num": entry.seq_num})
    else:
        typer.echo(render_entry_line(entry, content))
        note(f"entry {entry.seq_num} of log {entry.log_id}, hash {hash_entry(entry)}")

"""`inkgrove log|entry|key`: verify log files and take them in, look into entries and sign them, make keys."""

import secrets
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import typer

from inkgrove.cli.files import (
    parse_hex,
    read_bytes,
    read_entry_lines,
    read_secret_key,
    read_valid_log,
    render_entry_line,
    write_new,
)
from inkgrove.cli.options import CommandGroup, CommandOptions
from inkgrove.cli.output import NOT_VALID, JsonOption, facts_of, note, print_facts, print_json
from inkgrove.cli.progress import progress
from inkgrove.core import (
    KEY_BYTES,
    Entry,
    Flavour,
    HeldEntry,
    NextEntry,
    SecretKey,
    Verdict,
    VerifiedEntry,
    certificate_pool,
    decode_entry,
    find_next_entry,
    hash_entry,
    identity_of,
    parse_hash,
    shortest_path,
    sign_next,
    verify_log,
    verify_signed,
)
from inkgrove.core.errors import BadSignature, InkgroveError, KeysError

app = CommandGroup("Verify logs and show what proves an entry.", "log verify feed.jsonl")


@app.command(epilog="Example: inkgrove log verify feed.jsonl")
def verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help='JSON lines {"entry": hex, "payload": hex or null}; - is stdin.')
    ],
    partial: Annotated[bool, typer.Option("--partial", help="Allow gaps that links lead across.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify entries of any number of logs, in any order; one JSON line per line of FILE."""
    verdicts: dict[int, Verdict] = {}
    logs: dict[tuple[bytes, int], dict[int, HeldEntry]] = defaultdict(dict)
    with progress("verifying signatures ...", quiet=as_json, unit="lines") as bar:
        for line in bar.over(list(read_entry_lines(file))):
            if isinstance(line, tuple):
                verdicts[line[0]] = line[1]
                continue
            try:
                signed = verify_signed(decode_entry(line.entry))
                logs[signed.entry.author, signed.entry.log_id][line.number] = HeldEntry(signed, line.payload)
            except InkgroveError as error:
                verdicts[line.number] = error
        bar.begin("verifying links ...", unit="logs")
        for log in bar.over(list(logs.values())):
            verdicts.update(zip(log, verify_log(log.values(), partial=partial).verdicts, strict=True))
    bad = 0
    for number, verdict in sorted(verdicts.items()):
        bad += not isinstance(verdict, VerifiedEntry)
        print_json({"line": number, **_describe(verdict)})
    verdict_on_all = f"{bad} not valid" if bad else "all valid" if verdicts else "nothing to verify"
    note(f"{len(verdicts)} lines, {len(logs)} logs: {verdict_on_all}")
    if bad:
        raise typer.Exit(NOT_VALID)


def _describe(verdict: Verdict) -> dict[str, object]:
    if isinstance(verdict, VerifiedEntry):
        entry = verdict.entry
        facts = {"author": entry.author, "log_id": entry.log_id, "seq_num": entry.seq_num, "hash": verdict.hash}
        return {"ok": True, **facts}
    return {"ok": False, "code": verdict.code, "message": verdict.message}


@app.command(epilog="Example: inkgrove log ingest slothmail.jsonl feed.jsonl")
def ingest(
    options: CommandOptions,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Log files as for verify; - is stdin.")],
) -> None:
    """Take entries into the store, verified; those it has already change nothing."""
    from inkgrove.node.identity import apply_identity_logs_since
    from inkgrove.store.logs import newest_offset

    logs = options.open_logs(create=True)
    before = logs.read(newest_offset)
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    with progress("reading ...", quiet=options.as_json, unit="entries") as bar:
        for file in files:
            lines = []
            for line in read_entry_lines(file):
                if isinstance(line, tuple):
                    refused[line[1].code] += 1
                else:
                    lines.append((line.entry, line.payload))
            bar.begin(f"taking in {file.name} ...", unit="entries")
            # They are counted as their signatures are verified; what the store then writes, it writes at once.
            for receipt in logs.ingest(bar.over(lines)):
                if receipt.error is not None:
                    refused[receipt.error.code] += 1
                else:
                    counts[receipt.status.value] += 1
    logs.database.write(lambda connection: apply_identity_logs_since(connection, before))
    logs.close()
    if options.as_json:
        print_json({**counts, "refused": dict(refused)})
    else:
        told = [f"{count:,} {name}" for name, count in counts.items()]
        told += [f"{count:,} refused [{code}]" for code, count in refused.items()]
        typer.echo(", ".join(told) or "nothing to take in")
    if refused:
        raise typer.Exit(NOT_VALID)


@app.command(epilog="Example: inkgrove log pool 23 --height 30")
def pool(
    seq_num: Annotated[int, typer.Argument(metavar="N", min=1, max=2**64 - 1, help="Sequence number of the entry.")],
    height: Annotated[int | None, typer.Option(min=1, help="Length of the log: the pool ends there.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the certificate pool of entry N and its shortest path to entry 1."""
    if height is not None and height < seq_num:
        raise typer.BadParameter(f"a log of height {height} has no entry {seq_num}")
    facts = {"seq_num": seq_num, "path": shortest_path(seq_num, 1), "pool": certificate_pool(seq_num, height)}
    if as_json:
        print_json(facts)
    else:
        print_facts(
            f"Entry {seq_num}",
            {
                "path to 1": " ".join(map(str, shortest_path(seq_num, 1))),
                "pool": " ".join(map(str, certificate_pool(seq_num, height))),
            },
        )


# Entries

entry_app = CommandGroup("Look into entries and sign them.", "entry decode 0001350fd127...")


@entry_app.command(epilog="Example: inkgrove entry decode 0001350fd127...")
def decode(
    entry_hex: Annotated[str, typer.Argument(metavar="HEX", help="The entry in hex; - reads it from stdin.")],
    as_json: JsonOption = False,
) -> None:
    """Decode one entry strictly and say whether its signature holds."""
    entry = decode_entry(parse_hex(entry_hex))
    facts = _entry_facts(entry)
    if as_json:
        print_json(facts)
    else:
        print_facts("Entry", facts)


def _entry_facts(entry: Entry) -> dict[str, object]:
    try:
        verify_signed(entry)
        holds = True
    except BadSignature:
        holds = False
    names = "is_end_of_log author log_id seq_num lipmaa_link backlink payload_size payload_hash signature"
    return {"hash": hash_entry(entry), **facts_of(entry, names), "signature_holds": holds}


@entry_app.command(
    epilog="Example: inkgrove entry sign --key me.key --payload a164... --after feed.jsonl >> feed.jsonl"
)
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
        following = find_next_entry(read_valid_log(after).verified)
        if following.author != secret.public:
            raise KeysError(
                "key.mismatch", f"{after} is a log of {following.author}, the key is that of {secret.public}"
            )
    else:
        following = NextEntry(
            secret.public,
            1 if log_id is None else log_id,
            seq_num or 1,
            parse_hash(lipmaa_link) if lipmaa_link else None,
            parse_hash(backlink) if backlink else None,
            flavour,
        )
    entry = sign_next(secret, content, following, is_end_of_log=end_of_log)
    if as_json:
        print_json({"entry": entry.encoded, "payload": content, "hash": hash_entry(entry), "seq_num": entry.seq_num})
    else:
        typer.echo(render_entry_line(entry, content))
        note(f"entry {entry.seq_num} of log {entry.log_id}, hash {hash_entry(entry)}")


# Keys

key_app = CommandGroup("Make keys.", "key new --out me.key")


@key_app.command(epilog="Example: inkgrove key new --out me.key")
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

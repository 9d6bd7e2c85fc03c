"""The command line: verdicts, exit codes, one clear line for every error, help with an example."""

import json
import random
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from inkgrove.cli.files import render_entry_line
from inkgrove.cli.main import app
from tests.support.command import inkgrove
from tests.support.logs import LogBuilder
from tests.unit.messages.test_messages import SEEDS

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def write_log(path: Path, log: LogBuilder) -> Path:
    lines = [render_entry_line(entry, payload) for entry, payload in zip(log.entries, log.payloads, strict=True)]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_log_verify_prints_a_line_for_each_line_in_any_order(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", LogBuilder().grow(9))
    lines = path.read_text().splitlines(keepends=True)
    random.Random(1).shuffle(lines)
    path.write_text("".join(lines))
    done = inkgrove("log", "verify", str(path))
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [verdict["line"] for verdict in verdicts] == list(range(1, 10))
    assert {verdict["seq_num"] for verdict in verdicts} == set(range(1, 10))
    assert set(verdicts[0]) == {"line", "ok", "author", "log_id", "seq_num", "hash"}
    assert done.stderr == "9 lines, 1 logs: all valid\n"


def test_log_verify_reads_standard_input_and_reports_bad_lines() -> None:
    log = LogBuilder().grow(1)
    good = render_entry_line(log.entry(1), None)
    text = "\n".join(
        [good, "{", "[]", '{"entry": 1}', '{"entry": "0g"}', '{"entry": "00", "payload": 7}', "", "[" * 99999]
    )
    done = inkgrove("log", "verify", "-", stdin=text + "\n")
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [verdict["ok"] for verdict in verdicts] == [True] + [False] * 6  # the blank line is passed over
    assert {verdict["code"] for verdict in verdicts[1:]} == {"input.bad-line"}
    assert all(set(verdict) == {"line", "ok", "code", "message"} for verdict in verdicts[1:])


@pytest.mark.parametrize("name", ["forked", "lipmaa-mismatch", "no-path-to-first", "payload-size-mismatch"])
def test_log_verify_agrees_with_the_vectors(name: str) -> None:
    case = json.loads((VECTORS / "invalid" / f"{name}.json").read_text())
    text = "".join(json.dumps(line) + "\n" for line in case["lines"])
    done = inkgrove("log", "verify", "-", *(["--partial"] if case["partial"] else []), stdin=text)
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict.get("code", "ok") for verdict in verdicts] == case["verdicts"]
    assert done.returncode == 1


def test_empty_log_file_is_valid() -> None:
    done = inkgrove("log", "verify", "-", stdin="")
    assert (done.returncode, done.stdout) == (0, "")


def test_log_pool_shows_pool_and_path() -> None:
    done = inkgrove("log", "pool", "23", "--height", "25", "--json")
    assert json.loads(done.stdout) == {
        "seq_num": 23,
        "path": [23, 22, 21, 17, 13, 4, 1],
        "pool": [1, 4, 13, 17, 21, 22, 23, 24, 25],
    }
    assert "23 22 21 17 13 4 1" in inkgrove("log", "pool", "23").stdout


def test_a_log_is_signed_entry_by_entry_and_verifies(tmp_path: Path) -> None:
    key_file, log_file = tmp_path / "me.key", tmp_path / "log.jsonl"
    made = json.loads(inkgrove("key", "new", "--out", str(key_file), "--json").stdout)
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert "secret_key" not in made
    for number in range(5):
        after = ["--after", str(log_file)] if number else ["--log-id", "7"]
        done = inkgrove("entry", "sign", "--key", str(key_file), "--payload", f"0{number}", *after)
        assert done.returncode == 0, done.stderr
        log_file.write_text((log_file.read_text() if number else "") + done.stdout)
    done = inkgrove("log", "verify", str(log_file))
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(v["ok"], v["author"], v["log_id"]) for v in verdicts] == [(True, made["public_key"], 7)] * 5
    line = json.loads(log_file.read_text().splitlines()[3])
    decoded = json.loads(inkgrove("entry", "decode", line["entry"], "--json").stdout)
    assert decoded["lipmaa_link"] == verdicts[0]["hash"]
    assert decoded["signature_holds"] is True
    # Another key cannot continue it, and a forged line is not continued.
    other = tmp_path / "other.key"
    inkgrove("key", "new", "--out", str(other))
    done = inkgrove("entry", "sign", "--key", str(other), "--payload", "00", "--after", str(log_file))
    assert (done.returncode, "key.mismatch" in done.stderr) == (2, True)


def test_entry_decode_says_that_a_signature_does_not_hold() -> None:
    encoded = bytearray(LogBuilder().grow(1).entry(1).encoded)
    encoded[-1] ^= 128
    done = inkgrove("entry", "decode", "-", "--json", stdin=encoded.hex())
    assert json.loads(done.stdout)["signature_holds"] is False


def test_messages_go_from_yaml_to_cbor_and_back(tmp_path: Path) -> None:
    file = tmp_path / "mail.yaml"
    file.write_text(SEEDS)
    payloads = inkgrove("message", "encode", str(file)).stdout.split()
    assert len(payloads) == 3
    decoded = inkgrove("message", "decode", payloads[0]).stdout
    assert 'subject: "Hello!\\n...friend"' in decoded
    assert inkgrove("message", "encode", "-", stdin=decoded).stdout.split() == payloads[:1]
    as_json = json.loads(inkgrove("message", "decode", payloads[2], "--json").stdout)
    assert as_json == {"kind": "delete", "instance": "98e1cb88a66f02f8db635ce26441cc5dac1b08420ceaac230839b755845a9ffb"}
    salted = [
        json.loads(line) for line in inkgrove("message", "encode", str(file), "--salt", "--json").stdout.splitlines()
    ]
    assert [item["size"] % 128 for item in salted] == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["log", "verify", "/no/such/file"], "input.unreadable-file", 2),
        (["log", "pool", "0"], "input.usage", 2),
        (["log", "frobnicate"], "input.usage", 2),
        (["entry", "decode", "xyz"], "input.bad-hex", 2),
        (["entry", "decode", "00"], "entry.truncated", 1),
        (["entry", "sign", "--key", "/no/such/key", "--payload", "00"], "input.unreadable-file", 2),
        (["entry", "sign", "--key", "x"], "input.usage", 2),
        (["message", "decode", "a0"], "message.unknown-kind", 1),
        (["message", "encode", "/dev/null/x"], "input.unreadable-file", 2),
        (["key", "new", "--out", "/dev/null"], "input.unreadable-file", 2),
    ],
)
def test_bad_input_gets_one_line_and_the_right_exit_code(arguments: list[str], code: str, exit_code: int) -> None:
    done = inkgrove(*arguments)
    assert (done.returncode, done.stdout) == (exit_code, "")
    assert re.fullmatch(rf"error: .* \[{re.escape(code)}\]\n", done.stderr), done.stderr
    as_json = inkgrove(*arguments, "--json")
    assert json.loads(as_json.stderr)["code"] == code
    assert as_json.returncode == exit_code


def commands() -> list[tuple[list[str], typer.core.TyperCommand]]:
    found: list[tuple[list[str], Any]] = []

    def walk(command: object, path: list[str]) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(inner, [*path, name])
        else:
            found.append((path, command))

    walk(typer.main.get_command(app), [])
    return found


@pytest.mark.parametrize(
    ("path", "command"), commands(), ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_every_command_has_json_and_help_with_an_example(path: list[str], command: typer.core.TyperCommand) -> None:
    help_text = inkgrove(*path, "--help").stdout
    assert f"Example: inkgrove {' '.join(path)}" in help_text
    assert "--json" in help_text
    assert len(help_text.splitlines()) <= 40


def test_version_and_bare_call() -> None:
    assert re.fullmatch(r"inkgrove \d+\.\d+\.\d+\n", inkgrove("--version").stdout)
    bare = inkgrove()
    assert bare.returncode == 2
    assert "Usage:" in bare.stderr


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -c 'from inkgrove.cli.main import main; main()'"
    return subprocess.run(
        ["bash", "-c", command.replace("INKGROVE", program)], capture_output=True, text=True, check=False, timeout=60
    )


def test_closed_or_full_output_and_closed_input_are_no_tracebacks(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", LogBuilder().grow(3))
    for command in (
        f"INKGROVE log verify {log} >&-",
        f"INKGROVE log verify {log} > /dev/full",
        "INKGROVE log verify - <&-",
    ):
        done = run_in_shell(command)
        assert "Traceback" not in done.stderr, command
    assert run_in_shell("INKGROVE log verify - <&-").returncode == 2


def test_reader_that_goes_away_is_not_called_an_invalid_log(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", LogBuilder().grow(1))
    log.write_text(log.read_text() * 3000)
    done = run_in_shell(f"set -o pipefail; INKGROVE log verify {log} | head -n 1")
    assert done.returncode in (0, 141)
    assert "Traceback" not in done.stderr


def test_empty_yaml_is_no_message() -> None:
    done = inkgrove("message", "encode", "-", stdin="# nothing\n")
    assert (done.returncode, "[yaml.syntax]" in done.stderr) == (1, True)

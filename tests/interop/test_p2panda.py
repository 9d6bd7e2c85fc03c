"""The real p2panda-js from npm: entries it signs verify here, entries signed here decode there.

Version 0.2.1 writes YAMF (BLAKE2b) logs, 0.8.1 YASMF (BLAKE3) ones. 0.2.1 checks no signature when it decodes, so
for it the stronger test is that both sides sign the very same bytes.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inkgrove.core import Entry, Flavour, HeldEntry, VerifiedEntry, decode_entry, hash_entry, verify_log, verify_signed
from tests.support.certificates import environment_for_downloads
from tests.support.components import require_component
from tests.support.logs import LogBuilder, key

PEER = Path(__file__).parent / "p2panda"
FLAVOURS = {"yamf": Flavour.YAMF, "yasmf": Flavour.YASMF}
HEIGHT = 41

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Sends one command to the peer and returns its answer."""
    node, npm = shutil.which("node"), shutil.which("npm")
    require_component("Node.js with npm", node and npm, "install the distribution's packages nodejs and npm")
    if not all((PEER / "node_modules" / name).is_dir() for name in ("p2panda-js-yamf", "p2panda-js-yasmf")):
        install = [npm or "", "install", "--prefix", str(PEER), "--no-audit", "--no-fund", "--loglevel=error"]
        environment = environment_for_downloads()
        done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False, timeout=300)
        require_component("p2panda-js", done.returncode == 0, f"npm install failed: {done.stderr[-300:]}")
    peer = subprocess.Popen(
        [node or "", str(PEER / "peer.cjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert peer.stdin is not None
    assert peer.stdout is not None
    stdin, stdout = peer.stdin, peer.stdout

    def exchange(**command: object) -> dict[str, Any]:
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        assert "error" not in answer, answer
        return answer

    yield exchange
    stdin.close()
    assert peer.wait(timeout=20) == 0
    stdout.close()


def peer_log(ask: Ask, flavour: str) -> list[dict[str, str]]:
    answer = ask(flavour=flavour, do="log", secret=key(9).seed.hex(), log_id=3, count=HEIGHT)
    entries: list[dict[str, str]] = answer["entries"]
    return entries


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_entries_signed_by_p2panda_verify_here(ask: Ask, flavour: str) -> None:
    lines = peer_log(ask, flavour)
    held = [
        HeldEntry(verify_signed(decode_entry(bytes.fromhex(line["entry"]))), bytes.fromhex(line["payload"]))
        for line in lines
    ]
    report = verify_log(held)
    assert len(report.verdicts) == HEIGHT
    assert all(isinstance(verdict, VerifiedEntry) for verdict in report.verdicts)
    assert [str(item.signed.hash) for item in held] == [line["hash"] for line in lines]
    assert held[0].signed.entry.author == key(9).public


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_both_sides_sign_the_same_bytes(ask: Ask, flavour: str) -> None:
    lines = peer_log(ask, flavour)
    ours = LogBuilder(key(9), log_id=3, flavour=FLAVOURS[flavour])
    for line in lines:
        assert ours.append(bytes.fromhex(line["payload"])).encoded.hex() == line["entry"]


def exposed_facts(entry: Entry) -> dict[str, object]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    return {
        "author": text(entry.author),
        "log_id": entry.log_id,
        "seq_num": entry.seq_num,
        "backlink": text(entry.backlink),
        "lipmaa_link": text(entry.lipmaa_link),
        "payload_hash": text(entry.payload_hash),
        "payload_size": entry.payload_size,
        "hash": text(hash_entry(entry)),
    }


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_entries_signed_here_decode_there(ask: Ask, flavour: str) -> None:
    log = LogBuilder(key(4), log_id=12, flavour=FLAVOURS[flavour]).grow(HEIGHT)
    log.append(is_end_of_log=True)
    for entry in log.entries:
        answer = ask(flavour=flavour, do="decode", entry=entry.encoded.hex(), payload=None)
        answer.pop("signature", None)
        wanted = exposed_facts(entry)
        assert {"log_id", "seq_num", "backlink", "lipmaa_link"} <= answer.keys()
        assert answer == {name: wanted[name] for name in answer}

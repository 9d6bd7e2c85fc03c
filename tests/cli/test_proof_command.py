"""`inkgrove proof verify` on files."""

from pathlib import Path

from inkgrove.messages import encode_proof
from tests.support.command import inkgrove
from tests.unit.messages.test_proof import make_proof


def test_command_prints_what_is_proved(tmp_path: Path) -> None:
    file = tmp_path / "instance.proof"
    file.write_bytes(encode_proof(make_proof()))
    done = inkgrove("proof", "verify", str(file), "--json")
    assert done.returncode == 0
    assert '"subject": "Good night"' in done.stdout


def test_command_exits_with_1_and_a_code_if_a_bit_is_wrong(tmp_path: Path) -> None:
    proof, file = make_proof(), tmp_path / "instance.proof"
    last = proof.entries[-1][0]
    file.write_bytes(encode_proof(proof).replace(last[-1:] + b"\x68instance", bytes([last[-1] ^ 1]) + b"\x68instance"))
    done = inkgrove("proof", "verify", str(file))
    assert (done.returncode, done.stdout) == (1, "")
    assert "[entry.bad-signature]" in done.stderr

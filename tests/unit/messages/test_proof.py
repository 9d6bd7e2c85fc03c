"""Proofs of instances: what they show, and that no bit of them can be changed."""

import random

import pytest

from inkgrove.core import Flavour, Hash, union_of_pools
from inkgrove.core.errors import InkgroveError
from inkgrove.messages import (
    Access,
    Create,
    Delete,
    Proof,
    ProvedMessage,
    SchemaVersion,
    Update,
    encode_message,
    encode_proof,
    read_proof,
    render_proof,
    verify_proof,
)
from tests.support.errors import raises
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(9).public, 12, 2)
CREATE = Create(SCHEMA, {"subject": "Hello"}, access=Access("public"))


def make_log(flavour: Flavour = Flavour.YAMF) -> tuple[LogBuilder, dict[int, bytes]]:
    """Thirty entries, of which 5, 17 and 23 are of one instance."""
    log = LogBuilder(key(3), log_id=4, flavour=flavour)
    own = {}
    for seq_num in range(1, 31):
        payload = None
        if seq_num == 5:
            payload = encode_message(CREATE)
        elif seq_num == 17:
            payload = encode_message(Update(SCHEMA, log.hash(5), {"subject": "Hello again"}))
        elif seq_num == 23:
            payload = encode_message(Update(SCHEMA, 5, {"subject": "Good night"}))
        log.append(payload)
        if payload is not None:
            own[seq_num] = payload
    return log, own


def make_proof(flavour: Flavour = Flavour.YAMF) -> Proof:
    log, own = make_log(flavour)
    pool = union_of_pools(own, 30)
    return Proof(log.hash(5), [(log.entry(n).encoded, own.get(n)) for n in pool])


@pytest.mark.parametrize("flavour", list(Flavour))
@pytest.mark.parametrize("write", [encode_proof, render_proof])
def test_proof_shows_the_messages_of_the_instance(flavour: Flavour, write: type) -> None:
    log, _ = make_log(flavour)
    proved = verify_proof(read_proof(write(make_proof(flavour))))
    assert (proved.instance, proved.author, proved.log_id) == (log.hash(5), key(3).public, 4)
    assert proved.messages == [
        ProvedMessage(5, log.hash(5), CREATE),
        ProvedMessage(17, log.hash(17), Update(SCHEMA, log.hash(5), {"subject": "Hello again"})),
        ProvedMessage(23, log.hash(23), Update(SCHEMA, 5, {"subject": "Good night"})),
    ]


@pytest.mark.parametrize("write", [encode_proof, render_proof])
def test_any_flipped_bit_is_refused(write: type) -> None:
    data = write(make_proof())
    rng = random.Random(7)
    places = rng.sample(range(len(data) * 8), 2_000)
    # The head and the tail hold what is not signed: look at every bit of them.
    for place in {*places, *range(2_000), *range(len(data) * 8 - 64, len(data) * 8)}:
        wrong = bytearray(data)
        wrong[place // 8] ^= 1 << place % 8
        with pytest.raises(InkgroveError) as refused:
            verify_proof(read_proof(bytes(wrong)))
        assert "." in refused.value.code


@pytest.mark.parametrize("write", [encode_proof, render_proof])
def test_cut_off_or_lengthened_proof_is_refused(write: type) -> None:
    data = write(make_proof())
    for wrong in (data[:-1], data[: len(data) // 2], b"", data + b"\n", data + b"\0", b" " + data):
        with pytest.raises(InkgroveError):
            verify_proof(read_proof(wrong))


def test_proof_without_a_path_to_the_first_entry_is_refused() -> None:
    proof = make_proof()
    with raises("entry.no-path-to-first"):
        verify_proof(Proof(proof.instance, proof.entries[1:]))


def test_proof_with_an_entry_of_another_log_is_refused() -> None:
    proof, other = make_proof(), LogBuilder(key(4), log_id=4).grow(1)
    with raises("proof.incomplete"):
        verify_proof(Proof(proof.instance, [*proof.entries, (other.entry(1).encoded, None)]))


def test_proof_that_names_another_instance_is_refused() -> None:
    proof, (log, _) = make_proof(), make_log()
    with raises("proof.of-other"):
        verify_proof(Proof(log.hash(17), proof.entries))


def test_proof_with_a_message_of_another_instance_is_refused() -> None:
    log, own = make_log()
    log.append(encode_message(Delete(Hash(log.hash(6)))))
    entries = [
        (log.entry(n).encoded, log.payloads[30] if n == 31 else own.get(n)) for n in union_of_pools([*own, 31], 31)
    ]
    with raises("proof.of-other"):
        verify_proof(Proof(log.hash(5), entries))


def test_proof_with_entries_that_prove_nothing_is_refused() -> None:
    log, own = make_log()
    entries = [(log.entry(n).encoded, own.get(n)) for n in range(1, 31)]
    with raises("proof.of-other"):
        verify_proof(Proof(log.hash(5), entries))


def test_json_in_another_form_is_refused() -> None:
    data = render_proof(make_proof())
    with raises("proof.bad-form"):
        read_proof(data.replace(b"\n", b""))
    with raises("proof.bad-form"):
        read_proof(data.upper().replace(b'"FORM"', b'"form"'))

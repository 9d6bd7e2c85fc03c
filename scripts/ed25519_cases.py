"""The signatures of tests/vectors/ed25519.json, each made to tell the strict rule from one neighbour of it.

docs/protocol.md section 2.8. B is the base point, a and r are numbers, A = aB, R = rB, k is the hash of R, A and the
message, T a point of order 8. Where k must have a certain remainder by 8, messages are tried until it has.
"""

from hashlib import sha512
from itertools import count

from tests.support.ed25519_by_hand import (
    BASE,
    IDENTITY,
    L,
    P,
    add,
    challenge,
    encode,
    holds_strictly,
    holds_with_the_cofactor,
    negative,
    times,
    torsion_point,
)

a = int.from_bytes(sha512(b"inkgrove: the secret of these cases").digest(), "little") % L
r = int.from_bytes(sha512(b"inkgrove: the nonce of these cases").digest(), "little") % L
T = torsion_point()
NONCANONICAL_IDENTITY = (P + 1).to_bytes(32, "little")


def find_message(r_bytes: bytes, key: bytes, remainder: int | None) -> bytes:
    """A message for which k has that remainder by 8; with None, one for which it is not 0."""
    for number in count(1):
        message = f"case {number}".encode()
        by_eight = challenge(r_bytes, key, message) % 8
        if by_eight == remainder or (remainder is None and by_eight != 0):
            return message
    raise AssertionError


def ed25519_cases() -> list[dict[str, object]]:
    """All cases, with what the strict rule says of each."""
    plain_a, plain_r = encode(times(a, BASE)), encode(times(r, BASE))
    mixed_a, mixed_r = encode(add(times(a, BASE), T)), encode(add(times(r, BASE), T))
    against_t = encode(add(times(r, BASE), negative(times(3, T))))
    zero = encode(IDENTITY)
    # name, about, key, R, remainder of k by 8, and whether r is part of S and a is, and what is added to S
    made = [
        ("ordinary", "A signature as everybody makes it.", plain_a, plain_r, 0, (r, a, 0)),
        (
            "mixed-key-that-holds",
            "A = aB + T, and 8 divides k: the equation holds as it is.",
            mixed_a,
            plain_r,
            0,
            (r, a, 0),
        ),
        (
            "mixed-key-and-r-that-hold",
            "A = aB + T, R = rB - 3T, and k is 3 more than a multiple of 8: kT and -3T cancel.",
            mixed_a,
            against_t,
            3,
            (r, a, 0),
        ),
        (
            "mixed-key",
            "A = aB + T, and 8 does not divide k: holds only if both sides are taken eight times.",
            mixed_a,
            plain_r,
            None,
            (r, a, 0),
        ),
        ("mixed-r", "R = rB + T: holds only if both sides are taken eight times.", plain_a, mixed_r, 0, (r, a, 0)),
        ("s-plus-l", "An ordinary signature with S + L for S.", plain_a, plain_r, 0, (r, a, L)),
        (
            "small-order-key",
            "A = T, and 8 divides k: SB = R for every message of that kind.",
            encode(T),
            plain_r,
            0,
            (r, 0, 0),
        ),
        ("small-order-r", "R is the neutral point, S = ka.", plain_a, zero, 0, (0, a, 0)),
        ("noncanonical-key", "A is the neutral point with y = p + 1.", NONCANONICAL_IDENTITY, plain_r, 0, (r, 0, 0)),
        (
            "noncanonical-r",
            "R is the neutral point with y = p + 1, S = ka.",
            plain_a,
            NONCANONICAL_IDENTITY,
            0,
            (0, a, 0),
        ),
    ]
    cases: list[dict[str, object]] = []
    for name, about, key, r_bytes, remainder, (nonce, secret, surplus) in made:
        message = find_message(r_bytes, key, remainder)
        s = (nonce + challenge(r_bytes, key, message) * secret) % L + surplus
        signature = r_bytes + s.to_bytes(32, "little")
        cases.append(
            {
                "name": name,
                "about": about,
                "key": key.hex(),
                "message": message.hex(),
                "signature": signature.hex(),
                "accepted": holds_strictly(key, message, signature),
                "accepted_with_the_cofactor": holds_with_the_cofactor(key, message, signature),
            }
        )
    return cases

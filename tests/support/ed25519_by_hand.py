"""Ed25519 in plain arithmetic: the rule of docs/protocol.md section 2.8 as it reads, and one that is too lenient.

Slow, and not for secrets. It makes the cases of tests/vectors/ed25519.json and says what each rule makes of them.
"""

from hashlib import sha512

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
_ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

Point = tuple[int, int]
IDENTITY: Point = (0, 1)


def add(one: Point, other: Point) -> Point:
    """The sum of two points, by the complete addition law of the curve."""
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P


def negative(point: Point) -> Point:
    """The point that adds up to nothing with this one."""
    return -point[0] % P, point[1]


def times(number: int, point: Point) -> Point:
    """The multiple of a point."""
    result = IDENTITY
    while number:
        if number & 1:
            result = add(result, point)
        point = add(point, point)
        number >>= 1
    return result


def encode(point: Point) -> bytes:
    """The canonical encoding: y in 255 bits, then the lowest bit of x."""
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def decode(data: bytes) -> Point | None:
    """The point of an encoding, canonical or not; None if y is of no point."""
    number = int.from_bytes(data, "little")
    y, sign = number % 2**255 % P, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * _ROOT_OF_MINUS_ONE % P
    if (x * x - square) % P:
        return None
    return (x if x & 1 == sign else -x % P), y


def _base() -> Point:
    found = decode((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
    assert found is not None
    return found


BASE = _base()


def torsion_point() -> Point:
    """A point of order 8: what is left of the first point by y that has one, after taking L times it."""
    y = 2
    while True:
        found = decode(y.to_bytes(32, "little"))
        if found is not None and times(4, times(L, found)) != IDENTITY:
            return times(L, found)
        y += 1


def challenge(r: bytes, key: bytes, message: bytes) -> int:
    """k: the hash that binds R, the key and the message, modulo L."""
    return int.from_bytes(sha512(r + key + message).digest(), "little") % L


def holds_strictly(key: bytes, message: bytes, signature: bytes) -> bool:
    """The rule of section 2.8."""
    a, r, s = decode(key), decode(signature[:32]), int.from_bytes(signature[32:], "little")
    if s >= L or a is None or r is None or encode(a) != key or encode(r) != signature[:32]:
        return False
    if times(8, a) == IDENTITY or times(8, r) == IDENTITY:
        return False
    return times(s, BASE) == add(r, times(challenge(signature[:32], key, message), a))


def holds_with_the_cofactor(key: bytes, message: bytes, signature: bytes) -> bool:
    """The same but for the equation, of which both sides are taken eight times: this lets more through."""
    a, r, s = decode(key), decode(signature[:32]), int.from_bytes(signature[32:], "little")
    if s >= L or a is None or r is None or encode(a) != key or encode(r) != signature[:32]:
        return False
    if times(8, a) == IDENTITY or times(8, r) == IDENTITY:
        return False
    right = add(r, times(challenge(signature[:32], key, message), a))
    return times(8, times(s, BASE)) == times(8, right)

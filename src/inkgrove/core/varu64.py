"""VarU64: unsigned 64-bit integers, small ones in one byte, only the shortest form valid.

docs/protocol.md section 2.
"""

from inkgrove.core.errors import VarU64Error
from inkgrove.core.limits import MAX_U64

_ONE_BYTE_MAX = 247


def encode_varu64(value: int) -> bytes:
    """The only valid encoding of `value`."""
    if not 0 <= value <= MAX_U64:
        raise VarU64Error("varu64.out-of-range", f"{value} does not fit into 64 bits", value=value)
    if value <= _ONE_BYTE_MAX:
        return bytes((value,))
    width = (value.bit_length() + 7) // 8
    return bytes((_ONE_BYTE_MAX + width,)) + value.to_bytes(width, "big")


def decode_varu64(data: bytes, start: int = 0) -> tuple[int, int]:
    """The integer at `start` and the position behind it."""
    if start >= len(data):
        raise VarU64Error("varu64.truncated", "an integer is missing at the end of the bytes", position=start)
    first = data[start]
    if first <= _ONE_BYTE_MAX:
        return first, start + 1
    end = start + 1 + first - _ONE_BYTE_MAX
    if end > len(data):
        raise VarU64Error("varu64.truncated", "an integer is cut off at the end of the bytes", position=start)
    value = int.from_bytes(data[start + 1 : end], "big")
    # A first byte of zero, or a value that fits the one-byte form, has a shorter encoding.
    if data[start + 1] == 0 or value <= _ONE_BYTE_MAX:
        raise VarU64Error("varu64.not-shortest", f"{value} is encoded in more bytes than needed", position=start)
    return value, end

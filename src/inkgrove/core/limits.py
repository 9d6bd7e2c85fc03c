"""The limits that decide an outcome: constants, never settings (docs/protocol.md section 10)."""

from typing import Final

MAX_U64: Final = 2**64 - 1
MAX_STORED_INTEGER: Final = 2**63 - 1
"""Log ids, sequence numbers and payload sizes above this are refused by stores and tables."""

MAX_PAYLOAD_BYTES: Final = 512 * 1024
MAX_CBOR_DEPTH: Final = 16
MAX_FIELDS: Final = 256
MAX_NAME_CHARACTERS: Final = 63
MAX_VARCHAR_CHARACTERS: Final = 255
MAX_PATTERN_BYTES: Final = 512
PATTERN_MEMORY_BYTES: Final = 128 * 1024
"""What RE2 gets for a pattern (`max_mem`): one whose program takes more than its share of it is no pattern."""
SMALL_PATTERN_MEMORY_BYTES: Final = 8 * 1024
"""A pattern that RE2 does not take with this `max_mem` is a large one."""
MAX_PATTERNS: Final = 128
"""How many different patterns the fields of a version have."""
MAX_LARGE_PATTERNS: Final = 24
"""How many of them are large."""
MAX_UNICODE_CLASSES: Final = 128
"""How often `\\p` and `\\P` stand in the different patterns of a version."""
MAX_MATCHING: Final = 512 * 1024
"""How much matching one message may ask for: bytes of text, times the weight of the pattern."""
SMALL_PATTERN_WEIGHT: Final = 4
LARGE_PATTERN_WEIGHT: Final = 16
MAX_LIGHT_PATTERN_CHARACTERS: Final = 64
"""A pattern of at most so many characters, without `{` and not large, has the weight 1."""
MAX_ARRAY_ELEMENTS: Final = 1024
MAX_SALT_BYTES: Final = 512
MIN_SALT_BYTES: Final = 16
PADDING_BYTES: Final = 128
"""Salted payloads are padded to a multiple of this."""

MAX_BRANCH_ENTRIES: Final = 1024
"""If so many entries are held in the forked part of a log, or outside of its pinned branch, no more are taken."""

MAX_INSTANCE_ID_BYTES: Final = 66
MAX_RECIPIENTS: Final = 1024

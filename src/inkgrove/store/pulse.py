"""How a stream is doing, for people: when it last merged a batch and how fast, and what last went wrong.

Nothing depends on it but what is shown; the position that counts is in `view_progress`.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from inkgrove.store.database import put_row
from inkgrove.store.view_tables import pulses

_LONGEST_MESSAGE = 2_000


@dataclass(frozen=True, slots=True)
class Trouble:
    """What ended a pipeline."""

    at: int
    """In microseconds since 1970."""
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Pulse:
    """The last batch of a stream, and its last trouble."""

    at: int | None = None
    """When the batch was merged, in microseconds since 1970; None if there was none."""
    moved: int = 0
    """How many positions it took."""
    micros: int = 0
    """How long it took, from reading to merging."""
    trouble: Trouble | None = None

    @property
    def rate(self) -> float | None:
        """Positions per second in the last batch."""
        return None if self.at is None or not self.micros else self.moved * 1_000_000 / self.micros


def note_batch(connection: Connection, stream: str, *, at: int, moved: int, micros: int) -> None:
    """Note a batch; part of the transaction that merges it."""
    put_row(connection, pulses, {"stream": stream, "at": at, "moved": moved, "micros": micros})


def note_trouble(connection: Connection, stream: str, trouble: Trouble) -> None:
    """Note what ended a pipeline."""
    facts = {"trouble_at": trouble.at, "code": trouble.code, "message": trouble.message[:_LONGEST_MESSAGE]}
    put_row(connection, pulses, {"stream": stream, **facts})


def read_pulse(connection: Connection, stream: str) -> Pulse:
    """How a stream is doing."""
    row = connection.execute(select(pulses).where(pulses.c.stream == stream)).first()
    if row is None:
        return Pulse()
    trouble = None if row.trouble_at is None else Trouble(row.trouble_at, row.code, row.message)
    return Pulse(row.at, row.moved or 0, row.micros or 0, trouble)

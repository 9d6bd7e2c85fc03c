"""What is dirty: from what happened in the store to the groups of messages that must be folded anew.

docs/protocol.md section 6. A group is named by the entry that its messages are folded with: their instance's create.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from inkgrove.store.ingests import Ingest, What
from inkgrove.store.log_store import LogStore


class Group(NamedTuple):
    """The messages of one instance; without `create_seq`, all of a log."""

    log: int
    create_seq: int | None


_LATE = frozenset({What.PAYLOAD, What.PAYLOAD_DROPPED})
_BREAKS = frozenset({What.FORK, What.LIE, What.ENDED})


def dirty_groups(store: LogStore, ingests: Iterable[Ingest]) -> set[Group]:
    """The groups whose fold may have changed."""
    groups: set[Group] = set()
    hashes = []
    late: list[tuple[int, int]] = []
    for item in ingests:
        if item.log is None or item.seq_num is None:
            continue
        if item.what in _BREAKS:
            groups.update(Group(item.log, seq) for seq in store.create_seqs_from(item.log, item.seq_num))
            # What names an entry there by its hash is touched as well.
            hashes += store.hashes_from(item.log, item.seq_num)
            continue
        if item.hash is not None:
            hashes.append(item.hash)
        # Messages may name the entry as theirs before anyone knows what it is.
        groups.add(Group(item.log, item.seq_num))
        if item.create_seq is not None:
            groups.add(Group(item.log, item.create_seq))
        if item.what in _LATE:
            late.append((item.log, item.seq_num))
    first_held = store.first_payloads({log for log, _ in late})
    # A payload that came or went before all others can change what its whole log is taken for.
    groups.update(Group(log, None) for log, seq_num in late if seq_num <= first_held.get(log, seq_num) or seq_num == 1)
    for waiting in store.waiting_for(hashes):
        groups.add(Group(waiting.log, waiting.seq_num))
    return groups


def in_parts(groups: Iterable[Group], parts: int) -> list[list[Group]]:
    """The groups in at most `parts` lists, each log whole in one of them."""
    ordered = sorted(groups, key=lambda group: (group.log, group.create_seq or 0))
    size = max(1, -(-len(ordered) // parts))
    result: list[list[Group]] = []
    for group in ordered:
        if not result or (len(result[-1]) >= size and result[-1][-1].log != group.log and len(result) < parts):
            result.append([])
        result[-1].append(group)
    return result


def logs_in_parts(heights: Sequence[tuple[int, int]], parts: int) -> list[list[Group]]:
    """Whole logs, given with their sizes, in parts of neighbours with about the same number of entries each."""
    total = sum(size for _, size in heights)
    result: list[list[Group]] = [[] for _ in range(parts)]
    before = 0
    for log, size in sorted(heights):
        result[min(parts - 1, before * parts // max(total, 1))].append(Group(log, None))
        before += size
    return [part for part in result if part]


def in_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as the first and last of each unbroken run."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs

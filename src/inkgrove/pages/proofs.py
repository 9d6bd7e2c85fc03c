"""The check of a proof in plain words: what was looked at, and whether it holds.

The verdict is `verify_proof`'s alone, the same code that `inkgrove proof verify` runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from inkgrove.core.certificate import shortest_path
from inkgrove.core.entry import Entry, decode_entry
from inkgrove.core.errors import InkgroveError
from inkgrove.messages.proof import Proof, ProvedInstance, verify_proof
from inkgrove.pages.words import plural, short
from inkgrove.store.query import ViewRow


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    title: str
    detail: str
    holds: bool


@dataclass(frozen=True, slots=True)
class CheckedProof:
    """What became of a proof."""

    holds: bool
    checks: Sequence[Check]
    entries: Sequence[tuple[Entry, bytes | None]]


def check_proof(proof: Proof, row: ViewRow) -> CheckedProof:
    """Verify a proof and say what that took."""
    try:
        entries = [(decode_entry(entry), payload) for entry, payload in proof.entries]
        proved = verify_proof(proof)
    except InkgroveError as error:
        return CheckedProof(False, [Check("The proof does not hold", error.message, holds=False)], [])
    checks = [*_words(proved, entries), _values(proved, row)]
    return CheckedProof(all(check.holds for check in checks), checks, entries)


def _words(proved: ProvedInstance, entries: Sequence[tuple[Entry, bytes | None]]) -> list[Check]:
    author = short(proved.author)
    path = " → ".join(map(str, shortest_path(proved.messages[-1].seq_num, 1)))
    said = sum(payload is not None for _, payload in entries)
    later = len(proved.messages) - 1
    return [
        Check(
            "Signed by its author",
            f"{plural(len(entries), 'entry')} of log {proved.log_id}, each with an Ed25519 signature of the key"
            f" {author}: every signature fits its bytes. Whoever does not hold the key cannot have made them.",
            holds=True,
        ),
        Check(
            "Linked, back to the first entry",
            f"Each entry names the hashes of earlier ones, and they are the right ones: {path}. Nothing on the way can"
            " have been changed, left out or put in without breaking a link.",
            holds=True,
        ),
        Check(
            "The words are the ones that were signed",
            f"{plural(said, 'message')} came along, and size and hash of each are what its entry says.",
            holds=True,
        ),
        Check(
            "It is about this row",
            f"Entry {proved.messages[0].seq_num} is the create whose hash is the row’s id"
            + (f"; it is named by {plural(later, 'later message')}." if later else "."),
            holds=True,
        ),
    ]


def _values(proved: ProvedInstance, row: ViewRow) -> Check:
    known = {item.seq_num for item in proved.messages}
    missing = sorted(name for name, seq_num in row.field_seq_nums.items() if seq_num not in known)
    if missing:
        detail = (
            f"The messages behind {', '.join(missing)} are not among them: the view has seen more than the log holds."
        )
        return Check("The values are in these messages", detail, holds=False)
    detail = f"Every value shown comes from one of these {plural(len(known), 'message')}, by the rules of its schema."
    return Check("The values are in these messages", detail, holds=True)

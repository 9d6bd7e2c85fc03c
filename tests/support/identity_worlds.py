"""Generated log 0s: first keys, controllers and further keys, forked, partial, with documents that fit and that do not.

Everything comes from one random generator, so a seed is a world.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from inkgrove.core import Hash, HeldEntry, PublicKey, SecretKey, identity_of, verify_signed
from inkgrove.messages import FurtherKey, IdentityDocument, KeyOf, Message, RevokedLog, encode_message
from tests.support.logs import LogBuilder, key

FIRST_KEYS = [key(number) for number in (201, 202)]
FURTHER_KEYS = [key(number) for number in (211, 212, 213, 214)]


def copy_branch(log: LogBuilder, height: int) -> LogBuilder:
    """Return a log that has the entries up to a height in common with another one."""
    branch = LogBuilder(log.secret, log.log_id, log.flavour)
    branch.entries, branch.payloads = log.entries[:height], log.payloads[:height]
    return branch


@dataclass
class IdentityWorld:
    """What a seed makes: every entry there is, and those that somebody may hold."""

    rng: random.Random
    first_keys: Sequence[SecretKey] = tuple(FIRST_KEYS)
    further_keys: Sequence[SecretKey] = tuple(FURTHER_KEYS)
    end_of: Callable[[PublicKey, int], RevokedLog] | None = None
    """Says where a log of a revoked key ends; None for anywhere."""
    branches: dict[SecretKey, list[LogBuilder]] = field(default_factory=dict)
    documents: list[Hash] = field(default_factory=list)

    @classmethod
    def from_seed(cls, seed: int) -> "IdentityWorld":
        """Make the world of a seed."""
        world = cls(random.Random(seed))
        world.grow(world.rng.randint(6, 40))
        return world

    def grow(self, steps: int) -> None:
        """Append so many entries, each to some branch of somebody's log 0."""
        for _ in range(steps):
            self._step()

    def hand_over(self, first: SecretKey, controllers: Sequence[SecretKey]) -> None:
        """Let a first key name a controller that speaks, and each controller the next one; sometimes it overrules."""
        for is_last in (False, True)[: self.rng.choice([1, 1, 2])]:
            under = None
            for speaker, following in zip([first, *controllers], [*controllers, None], strict=True):
                log = self.rng.choice(self.branches.setdefault(speaker, [LogBuilder(speaker, 0)]))
                if speaker is not first and not log.entries:
                    log.append(encode_message(KeyOf(identity_of(first.public))))
                document = self._document(is_further=False)
                named = None if following is None else following.public
                listed = tuple(FurtherKey(secret.public) for secret in self.further_keys)
                said = replace(document, controller=named, under=under, keys=listed if not is_last else document.keys)
                log.append(encode_message(said))
                under = log.hash(len(log.entries))
                self.documents.append(under)

    def held(self) -> list[HeldEntry]:
        """Return the entries in random order, in most worlds without some of them and of their payloads."""
        lost = self.rng.choice([0, 0, 0.1, 0.3])
        found: dict[Hash, HeldEntry] = {}
        for branches in self.branches.values():
            for log in branches:
                for entry, payload in zip(log.entries, log.payloads, strict=True):
                    signed = verify_signed(entry)
                    is_kept = self.rng.random() >= lost / 2
                    found[signed.hash] = HeldEntry(signed, payload if is_kept else None)
        items = [item for item in found.values() if self.rng.random() >= lost]
        self.rng.shuffle(items)
        return items

    def _step(self) -> None:
        rng = self.rng
        secret = rng.choice([*self.first_keys, *self.further_keys])
        branches = self.branches.setdefault(secret, [LogBuilder(secret, 0)])
        log = rng.choice(branches)
        if log.entries and rng.random() < 0.15:
            log = copy_branch(log, rng.choice([0, len(log.entries) - 1, rng.randrange(len(log.entries))]))
            branches.append(log)
        message = self._message(secret, len(log.entries) + 1)
        payload = rng.randbytes(5) if message is None else encode_message(message)
        log.append(payload, is_end_of_log=rng.random() < 0.01)
        if isinstance(message, IdentityDocument):
            self.documents.append(log.hash(len(log.entries)))

    def _message(self, secret: SecretKey, seq_num: int) -> Message | None:
        rng = self.rng
        if rng.random() < 0.05:
            return None
        is_further = secret in self.further_keys
        if is_further and (seq_num == 1 or rng.random() < 0.05):
            # Mostly the same identity, so that few keys are contested.
            usual = self.first_keys[self.further_keys.index(secret) % len(self.first_keys)]
            owner = usual if rng.random() < 0.85 else rng.choice(self.first_keys)
            return KeyOf(identity_of(owner.public))
        return self._document(is_further=is_further if rng.random() < 0.95 else not is_further)

    def _document(self, *, is_further: bool) -> IdentityDocument:
        rng = self.rng
        listed = tuple(
            FurtherKey(secret.public, self._ends(secret.public))
            for secret in (*self.further_keys, *self.first_keys)
            if rng.random() < 0.7
        )
        controller = rng.choice([*[None] * 6, *self.further_keys, *self.further_keys, *self.first_keys])
        recent = self.documents[-6:] or [Hash(b"\0\x40" + bytes(64))]
        return IdentityDocument(
            "jane.haiku.ink",
            "https://haiku.ink",
            name=str(rng.random()),
            keys=listed,
            controller=None if controller is None else controller.public,
            under=rng.choice(recent) if is_further else None,
        )

    def _ends(self, author: PublicKey) -> tuple[RevokedLog, ...] | None:
        if self.rng.random() < 0.75:
            return None
        end_of = self.end_of or (lambda _, log_id: RevokedLog(log_id, self.rng.randint(0, 4)))
        return tuple(end_of(author, log_id) for log_id in range(3) if self.rng.random() < 0.6)

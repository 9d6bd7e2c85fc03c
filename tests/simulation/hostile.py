"""Hosts that keep keys which are not theirs, against real nodes, all by a seed (docs/protocol.md section 7.2).

Jane has her words in the drawer. The host that kept her first controller, in some worlds her second one as well, goes
on signing with them after she has replaced them. John has no words: the host has kept his first key. It forks entry 1
of every log of these keys, signs a second `key-of`, documents, rows and deletes, and shows each to the nodes it
chooses, before and after Jane overrules it. Ann has nothing to do with any of this. Nodes pass on random parts of what
they hold, in random order; in the end they exchange everything.

After each batch that a node takes in, `HostileCheck` looks at that node.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from inkgrove.core import Hash, HeldEntry, SecretKey, decode_entry, identity_of, verify_signed
from inkgrove.federation.replication.intake import IntakeCounts, check_response, ingest_checked
from inkgrove.messages import (
    Create,
    Delete,
    Entries,
    FieldChange,
    FurtherKey,
    IdentityDocument,
    KeyOf,
    Message,
    RevokedLog,
    SchemaMeta,
    SchemaMigration,
    SchemaVersion,
    Update,
    encode_message,
)
from inkgrove.node.identity import apply_identity_log
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.logs import by_log, ingest_batch, prepare_items
from inkgrove.store.node import HostedIdentity, NameRecord, add_identity, put_name, put_relation_state
from tests.simulation.hostile_check import HostileCheck, Problem
from tests.simulation.nodes import SETTINGS, VAULT
from tests.support.identity_worlds import copy_branch
from tests.support.logs import LogBuilder, key, resign
from tests.support.templates import copy_empty_store

SCHEMA = SchemaVersion(key(200).public, 1, 2)
NEW_HOME = "https://new.ink"
_MEMORY = Path("/dev/shm")
"""Where the stores are, if there is such a place: the simulation is about nodes, not about disks."""

Log = tuple[SecretKey, int]


@dataclass(slots=True)
class Cast:
    """Who has which keys."""

    jane: SecretKey
    """Her first key: the words in the drawer."""
    kept: list[SecretKey]
    """Controllers of Jane that the hostile host keeps."""
    controllers: list[SecretKey]
    """All her controllers before she overrules the host, in the order in which they hand over."""
    phone: SecretKey
    new: SecretKey
    """The controller that she names with her words."""
    spare: SecretKey
    """The controller that she names when she tries her words on another host first."""
    john: SecretKey
    """His first key, which the hostile host keeps: he has no words."""
    tablet: SecretKey
    """A further key of John's, which is his alone."""
    ann: SecretKey
    mallory: SecretKey
    """The host's own identity."""

    @classmethod
    def from_rng(cls, rng: Random) -> "Cast":
        """Make the keys of a world."""
        first, second, *rest = (SecretKey.from_seed(rng.randbytes(32)) for _ in range(10))
        controllers = [first, second] if rng.random() < 0.6 else [first]
        kept = controllers if rng.random() < 0.5 else [first]
        jane, phone, new, spare, john, tablet, ann, mallory = rest
        return cls(jane, kept, controllers, phone, new, spare, john, tablet, ann, mallory)

    @property
    def stolen(self) -> list[SecretKey]:
        """The keys of others that the hostile host signs with."""
        return [*self.kept, self.john]

    @property
    def everybody(self) -> list[SecretKey]:
        """All keys."""
        own = [self.jane, self.phone, self.new, self.spare, self.john, self.tablet, self.ann, self.mallory]
        return [*self.controllers, *own]


@dataclass(slots=True)
class HostilePlan:
    """What a seed decides before anything happens."""

    seed: int
    nodes: int = 3
    steps: int = 14
    second_claim: str = field(init=False)
    """What a second entry 1 in log 0 of Jane's controllers says: `mallory`, `jane` again, or there is `none`."""
    is_early: bool = field(init=False)
    """Whether the host begins before Jane overrules it, else afterwards."""
    tries_words_twice: bool = field(init=False)
    john_has_controller: bool = field(init=False)
    """Whether John's first document names a controller: words that the host made, and kept."""

    def __post_init__(self) -> None:
        rng = Random(f"plan {self.seed}")
        self.second_claim = ("mallory", "jane", "none")[self.seed % 3]
        self.is_early = rng.random() < 0.6
        self.tries_words_twice = rng.random() < 0.3
        self.john_has_controller = rng.random() < 0.3


class HostileWorld:
    """One run: what everybody has signed, and the nodes."""

    def __init__(self, plan: HostilePlan, home: Path) -> None:
        self.plan = plan
        self.rng = Random(plan.seed)
        self.cast = Cast.from_rng(self.rng)
        self.logs: dict[Log, LogBuilder] = {}
        """What the owners of the keys have written."""
        self.branches: list[LogBuilder] = []
        """What the hostile host has written with their keys, and with its own."""
        self.honest: dict[Hash, HeldEntry] = {}
        self.forged: dict[Hash, HeldEntry] = {}
        self.words: list[Hash] = []
        """The documents of Jane's first key that overrule the host, of all branches."""
        self.rows: list[Hash] = []
        self.done: Counter[str] = Counter()
        self.step = 0
        self.nodes = [
            Node(copy_empty_store(home / str(number)), SETTINGS, home=home / str(number), vault=VAULT)
            for number in range(plan.nodes)
        ]
        self.check = HostileCheck(self)

    @property
    def new_home(self) -> Node:
        """The node that Jane moves to."""
        return self.nodes[0]

    @property
    def has_overruled(self) -> bool:
        """Whether Jane has used her words."""
        return bool(self.words)

    @property
    def newest_words(self) -> Hash:
        """Jane's newest document with her words: of two branches the one that counts for who holds both."""
        return max(self.words, key=lambda name: (self.honest[name].signed.entry.seq_num, name))

    # How it goes

    def run(self) -> None:
        """Everything, up to the point where every node has been offered all that any of them holds."""
        self._begin()
        steps = self.plan.steps
        moment = self.rng.randint(steps // 3, 2 * steps // 3)
        attacks = self._attacks()
        first = 3 if self.plan.is_early else moment + 1
        when = sorted(self.rng.randint(first, steps) for _ in attacks)
        for self.step in range(1, steps + 1):
            if self.step == moment // 2 and len(self.cast.controllers) > 1:
                self._hand_over()
            if self.step == moment:
                self._overrule()
            self._write_something()
            while when and when[0] <= self.step:
                when.pop(0)
                attacks.pop(0)()
            if self.step > first and self.rng.random() < 0.7:
                self._forge_something()
            for _ in range(2):
                self._gossip()
        self._exchange()

    def _begin(self) -> None:
        cast = self.cast
        schema = LogBuilder(key(200))
        for message in (SchemaMeta("note"), SchemaMigration((FieldChange("text", "create", "text"),))):
            schema.append(encode_message(message))
        everybody = [verify_signed(entry) for entry in schema.entries]
        items = [HeldEntry(signed, payload) for signed, payload in zip(everybody, schema.payloads, strict=True)]
        self.honest |= {item.signed.hash: item for item in items}
        for node in self.nodes:
            self._deliver(node, items)
            node.database.write(self._relate)
        for secret, owner in (
            *((secret, cast.jane) for secret in (*cast.controllers[:1], cast.phone)),
            (cast.tablet, cast.john),
        ):
            self.sign(secret, 0, KeyOf(identity_of(owner.public)))
        self.sign(cast.jane, 0, self._document("jane.old.ink", cast.controllers[0], [cast.controllers[0], cast.phone]))
        john = self._document("john.old.ink", cast.tablet if self.plan.john_has_controller else None, [cast.tablet])
        self.sign(cast.john, 0, john)
        self.sign(cast.ann, 0, self._document("ann.ink", None, []))
        for _ in range(6):
            self._write_something()

    def _relate(self, connection: Connection) -> None:
        ann, jane = identity_of(self.cast.ann.public), identity_of(self.cast.jane.public)
        put_relation_state(connection, ann, jane, "accepted", 0)

    # What owners do

    def sign(self, secret: SecretKey, log_id: int, message: Message, log: LogBuilder | None = None) -> Hash:
        """Append to a log, or to a branch of it that is its owner's too, and send that to some nodes."""
        log = log or self.logs.setdefault((secret, log_id), LogBuilder(secret, log_id))
        item = self._append(log, message)
        for node in self.nodes:
            if self.rng.random() < 0.4:
                self._deliver(node, log.held() if self.rng.random() < 0.7 else [item])
        return item.signed.hash

    def _append(self, log: LogBuilder, message: Message) -> HeldEntry:
        log.append(encode_message(message))
        (item,) = log.held(len(log.entries))
        self.honest[item.signed.hash] = item
        return item

    def _document(
        self,
        fqdn: str,
        controller: SecretKey | None,
        keys: Iterable[SecretKey],
        *,
        ended: Iterable[SecretKey] = (),
        endpoint: str = "https://old.ink",
        under: Hash | None = None,
    ) -> IdentityDocument:
        listed = [FurtherKey(secret.public) for secret in keys]
        listed += [FurtherKey(secret.public, self._pins(secret)) for secret in ended]
        name = str(self.rng.random())
        named = None if controller is None else controller.public
        return IdentityDocument(fqdn, endpoint, name, keys=tuple(listed), controller=named, under=under)

    def _pins(self, secret: SecretKey) -> tuple[RevokedLog, ...]:
        mine = (log for (owner, log_id), log in self.logs.items() if owner is secret and log_id != 0 and log.entries)
        return tuple(RevokedLog(log.log_id, len(log.entries), log.hash(len(log.entries))) for log in mine)

    def _hand_over(self) -> None:
        """The first controller names the second one, without the words."""
        cast = self.cast
        first, second = cast.controllers
        self.sign(second, 0, KeyOf(identity_of(cast.jane.public)))
        under = self.logs[cast.jane, 0].hash(1)
        document = self._document("jane.old.ink", second, [second, cast.phone], ended=[first], under=under)
        self.made_second = self.sign(first, 0, document)
        self.done["handed over"] += 1

    def _overrule(self) -> None:
        """Jane uses her words; in some worlds on two hosts, and then once more on the one that she goes to."""
        cast, log = self.cast, self.logs[self.cast.jane, 0]
        jane = identity_of(cast.jane.public)
        if self.plan.tries_words_twice:
            elsewhere = copy_branch(log, len(log.entries))
            self.sign(cast.spare, 0, KeyOf(jane))
            document = self._document(
                "jane.spare.ink",
                cast.spare,
                [cast.spare, cast.phone],
                ended=cast.controllers,
                endpoint="https://spare.ink",
            )
            self.words.append(self.sign(cast.jane, 0, document, elsewhere))
            self.done["words used twice"] += 1
        self.sign(cast.new, 0, KeyOf(jane))
        for _ in range(2 if self.plan.tries_words_twice else 1):
            document = self._document(
                "jane.new.ink", cast.new, [cast.new, cast.phone], ended=self._ended, endpoint=NEW_HOME
            )
            self.words.append(self._append(log, document).signed.hash)
        self.new_home.database.write(partial(self._move_in, log=log))
        self.check.look_at(self.new_home)
        self.done["overruled"] += 1

    @property
    def _ended(self) -> list[SecretKey]:
        """What Jane ends with her words: who has tried them elsewhere as well ends what was named there."""
        return [*self.cast.controllers, self.cast.spare] if self.plan.tries_words_twice else self.cast.controllers

    def _move_in(self, connection: Connection, log: LogBuilder) -> None:
        """The new home takes Jane in and stores what she signed with her words, in one transaction."""
        first = self.cast.jane.public
        hosted = HostedIdentity(identity_of(first), "jane.new.ink", first, None, 0, NEW_HOME)
        assert add_identity(connection, hosted, None)
        put_name(connection, NameRecord(hosted.fqdn, hosted.id, False, 0, None))
        prepared, _ = prepare_items((item.signed, item.payload) for item in log.held())
        ingest_batch(connection, by_log(prepared), must_be_next=False)
        apply_identity_log(connection, first, is_ours=True)

    def _write_something(self) -> None:
        """Somebody writes a row, changes one, ends one of another key of theirs, or signs another document."""
        cast, rng = self.cast, self.rng
        speaker = cast.new if self.has_overruled else cast.controllers["handed over" in self.done]
        if rng.random() < 0.15 and (speaker, 0) in self.logs:
            under = self.words[-1] if self.has_overruled else self._made_controller(speaker)
            if self.has_overruled:
                document = self._document(
                    "jane.new.ink", cast.new, [cast.new, cast.phone], ended=self._ended, endpoint=NEW_HOME, under=under
                )
            else:
                ended = cast.controllers[: cast.controllers.index(speaker)]
                document = self._document("jane.old.ink", speaker, [speaker, cast.phone], ended=ended, under=under)
            self.sign(speaker, 0, document)
            self.done["document of a controller"] += 1
            return
        secret = rng.choice([speaker, speaker, cast.phone, cast.john, cast.tablet, cast.ann])
        log_id = rng.choice((1, 2)) if secret is speaker else 1
        self.rows.append(self.sign(secret, log_id, self._note(secret, self.logs.get((secret, log_id)))))

    def _made_controller(self, speaker: SecretKey) -> Hash:
        return self.logs[self.cast.jane, 0].hash(1) if speaker is self.cast.controllers[0] else self.made_second

    def _note(self, secret: SecretKey, log: LogBuilder | None) -> Message:
        """A message of rows; honest and hostile ones look alike."""
        rng, chance = self.rng, self.rng.random()
        own = len(log.entries) if log is not None else 0
        if own and chance < 0.2:
            return Update(SCHEMA, rng.randint(1, own), {"text": str(rng.random())})
        if own and chance < 0.25:
            return Delete(rng.randint(1, own))
        if self.rows and (chance < 0.35 or (secret in self.cast.stolen and chance < 0.4)):
            return Delete(rng.choice(self.rows), SCHEMA)
        continues = rng.choice(self.rows) if self.rows and chance < 0.5 else None
        return Create(SCHEMA, {"text": str(rng.random())}, continues=continues)

    # What the hostile host does

    def _attacks(self) -> list[Callable[[], None]]:
        """What it does once in any case: it forks entry 1 of every log, and lists the keys of others as its own."""
        found: list[Callable[[], None]] = [
            partial(self._fork_first, secret, log_id) for secret in self.cast.stolen for log_id in (0, 1, 2)
        ]
        found.append(lambda: self._forge(LogBuilder(self.cast.mallory, 0), self._claim_all()))
        self.rng.shuffle(found)
        return found

    def _claim_all(self) -> IdentityDocument:
        others = [secret for secret in self.cast.everybody if secret is not self.cast.mallory]
        return self._hostile_document(others, None)

    def _fork_first(self, secret: SecretKey, log_id: int) -> None:
        branch = LogBuilder(secret, log_id)
        if log_id != 0:
            self._forge(branch, self._note(secret, None))
        elif secret is self.cast.john:
            self._forge(branch, self._hostile_document([self.cast.mallory], None))
        elif self.plan.second_claim == "mallory":
            self._forge(branch, KeyOf(identity_of(self.cast.mallory.public)))
        elif self.plan.second_claim == "jane":
            self._forge(branch, KeyOf(identity_of(self.cast.jane.public)), is_end_of_log=True)
        else:
            return
        self.done["entry 1 forked"] += 1

    def _hostile_document(self, keys: list[SecretKey], under: Hash | None) -> IdentityDocument:
        rng = self.rng
        listed = tuple(FurtherKey(secret.public, rng.choice([None, None, ()])) for secret in keys)
        controller = rng.choice([None, *keys]) if keys else None
        named = None if controller is None else controller.public
        return IdentityDocument(
            "jane.evil.ink", "https://evil.ink", str(rng.random()), keys=listed, controller=named, under=under
        )

    def _forge_something(self) -> None:
        """Go on with a branch, or with what the owner wrote, from anywhere."""
        rng = self.rng
        secret = rng.choice([*self.cast.stolen, self.cast.mallory])
        log_id = rng.choice((0, 0, 1, 2))
        known = [branch for branch in self.branches if branch.secret is secret and branch.log_id == log_id]
        own = self.logs.get((secret, log_id))
        known += [own] if own is not None else []
        if not known:
            if log_id != 0 or secret is self.cast.mallory:
                self._forge(LogBuilder(secret, log_id), self._hostile_message(secret, log_id, None))
            return
        log = rng.choice(known)
        least = 1 if log_id == 0 else 0
        branch = copy_branch(log, max(least, rng.choice([len(log.entries), rng.randint(0, len(log.entries))])))
        if branch.entries and branch.entries[-1].is_end_of_log:
            return
        for _ in range(rng.randint(1, 3)):
            self._forge(branch, self._hostile_message(secret, log_id, branch), is_lie=rng.random() < 0.04)

    def _hostile_message(self, secret: SecretKey, log_id: int, branch: LogBuilder | None) -> Message:
        if log_id != 0:
            return self._note(secret, branch)
        rng, cast = self.rng, self.cast
        keys = rng.sample(cast.everybody, rng.randint(1, 6))
        keys += [key for key in (*cast.kept, cast.mallory) if key not in keys]
        first_keys = (cast.john, cast.mallory)
        documents = [name for name, item in self.honest.items() if item.signed.entry.author == cast.jane.public
                     and item.signed.entry.log_id == 0]  # fmt: skip
        documents += [branch.hash(len(branch.entries)) for branch in self.branches if branch.log_id == 0]
        return self._hostile_document(keys, None if secret in first_keys else rng.choice(documents))

    def _forge(
        self, branch: LogBuilder, message: Message, *, is_end_of_log: bool = False, is_lie: bool = False
    ) -> None:
        """Sign an entry and show it, with the branch that leads to it or alone, to nodes of one's choice."""
        rng = self.rng
        branch.append(encode_message(message), is_end_of_log=is_end_of_log)
        if is_lie and branch.log_id != 0:
            _lie_about_size(branch)
        if branch not in self.branches:
            self.branches.append(branch)
        (item,) = branch.held(len(branch.entries))
        if item.signed.hash not in self.honest:
            self.forged[item.signed.hash] = item
        self.done["forged"] += 1
        for node in rng.sample(self.nodes, rng.randint(1, 2)):
            shown = branch.held() if rng.random() < 0.85 else [item]
            if rng.random() < 0.1:
                shown = [HeldEntry(part.signed, None) for part in shown]
            self._deliver(node, shown)

    # How it gets about

    def _deliver(self, node: Node, items: Iterable[HeldEntry]) -> int:
        """Let a node take a batch in as replication does, and look at it; how many entries were new to it."""
        batch = [(item.signed.entry.encoded, item.payload) for item in items]
        asked = {(item.signed.entry.author, item.signed.entry.log_id) for item in items}
        taken = IntakeCounts()
        ingest_checked(node, check_response(Entries(batch, None), asked), taken)
        if taken.stored:
            self.done["batches"] += 1
            self.check.look_at(node)
        return taken.stored

    def _gossip(self) -> None:
        """One node sends another a part of what it holds."""
        sender, receiver = self.rng.sample(self.nodes, 2)
        held = self.check.holding(sender)
        logs = sorted({(item.signed.entry.author, item.signed.entry.log_id) for item in held})
        chosen = set(self.rng.sample(logs, self.rng.randint(1, len(logs))))
        share = self.rng.choice([1.0, 1.0, 0.6])
        items = [
            item
            for item in held
            if (item.signed.entry.author, item.signed.entry.log_id) in chosen and self.rng.random() < share
        ]
        self.rng.shuffle(items)
        self._deliver(receiver, items)

    def _exchange(self) -> None:
        """All nodes send each other everything, and the owners send theirs, until nothing is new to anybody."""
        while True:
            everything = dict(self.honest)
            for node in self.nodes:
                for item in self.check.holding(node):
                    if item.payload is not None or item.signed.hash not in everything:
                        everything[item.signed.hash] = item
            items = list(everything.values())
            self.rng.shuffle(items)
            if not sum([self._deliver(node, items) for node in self.nodes]):
                break
        self.check.look_at_end()


def _lie_about_size(branch: LogBuilder) -> None:
    """Sign the last entry of a branch again, with a size that its payload has not."""
    entry = branch.entries[-1]
    wrong = bytearray(entry.encoded)
    at = len(wrong) - 64 - len(entry.payload_hash) - 1
    if wrong[at] < 247:
        wrong[at] += 1
        branch.entries[-1] = decode_entry(resign(branch.secret, bytes(wrong)))


@dataclass(frozen=True, slots=True)
class HostileResult:
    """What came of a seed."""

    plan: HostilePlan
    problems: list[str]
    done: Counter[str]
    seconds: float
    """Of the processor."""

    def __str__(self) -> str:
        what = (
            f"seed {self.plan.seed}: {self.plan.nodes} nodes, {self.plan.steps} steps, {self.done['batches']} batches"
        )
        what += f", {self.done['forged']} forged entries"
        text = f"{what}, {self.seconds:.1f} s: " + ("as it should be" if not self.problems else "NOT AS IT SHOULD BE")
        if self.problems:
            text += "".join(f"\n  {problem}" for problem in self.problems)
            text += f"\n  to replay: python -m tests.simulation --hostile --seed {self.plan.seed} "
            text += f"--nodes {self.plan.nodes} --operations {self.plan.steps}"
        return text


def simulate_hostile(plan: HostilePlan) -> HostileResult:
    """Play a plan; ends with the first thing that is not as it should be."""
    begun = time.process_time()
    home = Path(tempfile.mkdtemp(prefix="inkgrove-", dir=_MEMORY if _MEMORY.is_dir() else None))
    problems: list[str] = []
    try:
        world = HostileWorld(plan, home)
        try:
            world.run()
        except Problem as problem:
            problems.append(f"step {world.step}: {problem}")
        finally:
            for node in world.nodes:
                node.close()
        world.done.update(world.check.seen)
        return HostileResult(plan, problems, world.done, time.process_time() - begun)
    finally:
        shutil.rmtree(home, ignore_errors=True)

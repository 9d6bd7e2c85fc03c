"""What the node has to do with others: people elsewhere, copies of their mails, runs of rot, requests, deliveries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from inkgrove.core import Hash, IdentityId, certificate_pool, identity_of, parse_hash
from inkgrove.federation.errors import PeerTimeout
from inkgrove.federation.sharing import receive_delivery
from inkgrove.messages import Create, Delivery, Parcel, SchemaVersion, encode_message
from inkgrove.node.publishing import DeliveryDecision
from inkgrove.node.runtime import Node
from inkgrove.pipeline.rot.policy import Limits, Policy
from inkgrove.store.federation import RemoteIdentity, list_due_deliveries, put_remote_identity, record_delivery
from inkgrove.store.node import put_key
from inkgrove.store.rot import (
    apply_moves,
    begin_rot_run,
    commit_plan,
    count_steps,
    find_copy,
    finish_rot_run,
    note_copies,
)
from inkgrove.store.views import drop_stages, find_stage_url, open_merge_transaction, open_stage
from tests.support.logs import LogBuilder, key

DAY = 86_400_000_000
ALICE, BOB, MOLE = key(30), key(31), key(32)
NAMES = {ALICE: "alice.sloth.example", BOB: "bob.sloth.example", MOLE: "mole.sloth.example"}
POLICY = Policy(node=Limits(200_000, 30), per_identity=Limits(0, 20), cooked_seconds=2 * 86_400)
RUNS, NEW, KEPT = 9, 6, 30
"""So many runs, a day apart; before each so many mails came, and so many copies may stay."""
BINS = 20


def get_to_know(node: Node) -> None:
    """Let the node know people elsewhere, as if it had asked their nodes."""
    now = node.clock()

    def work(connection: Connection) -> None:
        for secret, name in NAMES.items():
            identity = identity_of(secret.public)
            put_key(connection, secret.public, identity)
            where = f"https://{name}"
            put_remote_identity(
                connection,
                RemoteIdentity(identity, name, where, secret.public, 1, key(39).public, fetched=now, expires=now + DAY),
            )

    node.database.write(work)


# Rot


@dataclass
class Copies:
    """Mails of alice and bob that came day by day, and the runs that let them rot."""

    node: Node
    schema: SchemaVersion

    def __post_init__(self) -> None:
        self.logs = {secret: LogBuilder(secret, log_id=4) for secret in (ALICE, BOB)}
        self.born: dict[Hash, int] = {}
        self.shown: list[Hash] = []
        self.of_bob: set[Hash] = set()

    def live(self) -> None:
        """All of it, up to yesterday."""
        for tick in range(1, RUNS + 1):
            now = self.node.clock() - (RUNS - tick + 1) * DAY
            for number in range(NEW):
                self._arrive(ALICE if number % 3 else BOB, tick, number)
            self.node.database.write(lambda c, at=(tick, now): note_copies(c, *at))  # type: ignore[misc]
            self._run(tick, now)

    def _arrive(self, secret: Any, tick: int, number: int) -> None:
        log = self.logs[secret]
        fields: dict[str, Any] = {"subject": f"From the canopy, day {tick}", "stars": number}
        fields["body"] = "It rains. " * (2 + number)
        entry = log.append(encode_message(Create(self.schema, fields)))
        (receipt,) = self.node.store.ingest([(entry.encoded, log.payloads[-1])])
        assert receipt.error is None, receipt
        instance = log.hash(len(log.entries))
        self.born[instance] = tick
        self.shown.append(instance)
        if secret is BOB:
            self.of_bob.add(instance)

    def freshness(self, instance: Hash, tick: int) -> float:
        """From run to run a fifth goes, of bob's a tenth: people read them more often."""
        is_bobs = instance in self.of_bob
        return float((0.9 if is_bobs else 0.8) ** (tick - self.born[instance]))

    def _run(self, tick: int, now: int) -> None:
        """A run as Spark's would be: begun, staged, committed, worked off, finished."""
        database = self.node.database
        run = database.write(lambda c: begin_rot_run(c, POLICY.seed, now, POLICY.render()))
        fresh = sorted((self.freshness(instance, tick), instance) for instance in self.shown)
        newest = {log.hash(len(log.entries)) for log in self.logs.values()}
        victims = [pair for pair in fresh if pair[1] not in newest][: max(0, len(fresh) - KEPT)]
        self.shown = [instance for instance in self.shown if instance not in {name for _, name in victims}]
        moves = list(self._moves(victims, tick))
        stage = open_stage(find_stage_url(database.url), "0", {})
        stage.write("rot_fresh", [(instance, place, 0.0, None, 0) for place, instance in fresh])
        stage.write("rot_moves", [(*move[:5], int(move[3] == "cooked")) for move in moves])
        stage.finish()
        bins = [0] * BINS
        for instance in self.shown:
            bins[min(BINS - 1, int(self.freshness(instance, tick) * BINS))] += 1
        told: dict[tuple[str, str, str], list[int]] = {}
        for _, _, _, to_step, why, size in moves:
            step = "full" if to_step == "cooked" else "cooked"
            counts = told.setdefault((step, to_step, why.partition(":")[0]), [0, 0])
            counts[0], counts[1] = counts[0] + 1, counts[1] + size
        report = {
            "moves": [_move(names, counts) for names, counts in sorted(told.items())],
            "kept": {"newest": len(newest)},
            "freshness": bins,
        }
        try:
            with open_merge_transaction(database, [stage.name]) as (connection, names):
                commit_plan(connection, names, tick, {**report, "before": count_steps(connection)})
        finally:
            drop_stages(database, [stage.name])
        while database.write(lambda c: apply_moves(c, run, POLICY.guards)).moves:
            continue
        database.write(lambda c: finish_rot_run(c, tick, now, {"after": count_steps(c)}))

    def _moves(self, victims: list[tuple[float, Hash]], tick: int) -> Iterator[tuple[Hash, int, int, str, str, int]]:
        """The least fresh are cooked; what was cooked two days before becomes a stub."""
        for place, instance in victims:
            copy = self._copy(instance)
            why = f"node rows: freshness {place:.6f}, and the budget is met at {victims[-1][0]:.6f}"
            yield instance, copy.log, copy.create_seq, "cooked", why, copy.bytes
        taken = {instance for _, instance in victims}
        for instance in self.born.keys() - set(self.shown) - taken:
            copy = self._copy(instance)
            if copy.step == "cooked" and copy.run is not None and (tick - copy.run) * DAY >= POLICY.cooked:
                yield instance, copy.log, copy.create_seq, "stub", "age", 0

    def _copy(self, instance: Hash) -> Any:
        copy = self.node.database.read(lambda c: find_copy(c, instance))
        assert copy is not None
        return copy


def _move(names: tuple[str, str, str], counts: list[int]) -> Mapping[str, Any]:
    step, to_step, why = names
    return {"step": step, "to_step": to_step, "why": why, "copies": counts[0], "bytes": counts[1]}


# Requests and deliveries


def write_as_stranger(node: Node, schema: SchemaVersion, to: IdentityId) -> Hash:
    """Mole, whom nobody here knows, sends a mail: it is held until the recipient decides."""
    log = LogBuilder(MOLE, log_id=4)
    log.append(encode_message(Create(schema, {"subject": "May I dig here?", "body": "Quietly."})))
    entries = [(log.entry(n).encoded, log.payloads[n - 1]) for n in certificate_pool(1, 1)]
    (receipt,) = receive_delivery(node, Delivery(identity_of(MOLE.public), [Parcel(log.hash(1), (to,), entries)]))
    assert receipt.decision is DeliveryDecision.HELD, receipt
    return log.hash(1)


def settle_deliveries(node: Node, delivered: str, given_up: str) -> None:
    """One of what waits has arrived and one was tried for too long; nobody answers there, so the rest waits on."""
    now = node.clock()

    def work(connection: Connection) -> None:
        dues = {
            due.instance: due
            for due in list_due_deliveries(connection, [identity_of(secret.public) for secret in NAMES])
        }
        arrived = dues[parse_hash(delivered)]
        record_delivery(connection, arrived, "delivered", delivered=arrived.wanted, now=now - DAY)
        record_delivery(connection, dues[parse_hash(given_up)], "given-up", code=PeerTimeout.code, now=now - 2 * DAY)

    node.database.write(work)

"""Whether everybody holds what they should once everything has been delivered."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select

from inkgrove.core import Hash, HeldEntry, IdentityId, SignedEntry, verify_signed
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.messages import decode_delivery, open_parcel
from inkgrove.reference import ReferenceRow, fold_views
from inkgrove.schema import NoOtherLogs, ViewDefinition, fold_log, fold_schema
from inkgrove.store.db import deliveries, request_box, shares
from inkgrove.store.federation import LOCAL_DELIVERY, count_waiting_deliveries, read_backoffs
from inkgrove.store.logs import LogStore, payloads_of_schema, read_entries
from tests.simulation.world import SCHEMA, World


@dataclass(slots=True)
class Holding:
    """What a node has in the end."""

    entries: list[HeldEntry]
    payloads: set[Hash]
    """Of the instance logs: the entries that are held with their payload."""
    shares: set[tuple[Hash, IdentityId]]
    boxes: dict[tuple[IdentityId, IdentityId, Hash], set[Hash]]
    """(recipient, sender, instance): the messages in the box of requests."""


class Check:
    """Compares a world with its oracle; `problems` says what is wrong."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.oracle = world.oracle
        self._signed: dict[bytes, SignedEntry] = {}
        self.holdings = {domain: self._read(domain) for domain in world.nodes}
        self.truth = self._truth()

    def problems(self) -> list[str]:
        """Everything that is not as it should be."""
        return [
            *(f"a node failed: {error!r}" for error in self.world.failures),
            *self._undelivered(),
            *self._reached_too_far(),
            *self._missing(),
            *self._unended(),
            *self._receipts(),
            *self._relations(),
            *self._views(),
        ]

    # What there is

    def _read(self, domain: str) -> Holding:
        node = self.world.nodes[domain].node
        entries = []
        for author, log_id in node.store.heights():
            for stored in node.store.read(read_entries, author, log_id):
                encoded = stored.entry.encoded
                if encoded not in self._signed:
                    self._signed[encoded] = verify_signed(stored.entry)
                entries.append(HeldEntry(self._signed[encoded], stored.payload))
        with node.database.reading() as connection:
            sent = {(Hash(row.instance), IdentityId(row.identity)) for row in connection.execute(select(shares))}
            boxes = {}
            # Of what people of one node send each other nothing but the place is in the box.
            for row in connection.execute(select(request_box).where(request_box.c.parcel != b"")):
                (parcel,) = decode_delivery(row.parcel).parcels
                opened = {item.hash for item in open_parcel(parcel, None).messages}
                boxes[IdentityId(row.recipient), IdentityId(row.via), Hash(row.instance)] = opened
        payloads = {item.signed.hash for item in entries if item.payload is not None and item.signed.entry.log_id != 0}
        return Holding(entries, payloads, sent, boxes)

    def _truth(self) -> dict[Hash, HeldEntry]:
        """Every entry as its author's own node has it."""
        home = {person.key: person.domain for person in self.world.people}
        return {
            item.signed.hash: item
            for domain, holding in self.holdings.items()
            for item in holding.entries
            if home.get(item.signed.entry.author, domain) == domain
        }

    def _name(self, identity: IdentityId) -> str:
        return self.world.by_id[identity].fqdn

    # What is compared

    def _undelivered(self) -> Iterator[str]:
        for domain, node in self.world.nodes.items():
            left = node.node.database.read(count_waiting_deliveries)
            if left:
                why = [trouble.error for trouble in node.node.database.read(read_backoffs).values()]
                yield f"{domain} still has {left} deliveries to make: {why}"

    def _reached_too_far(self) -> Iterator[str]:
        at_home: dict[str, list[IdentityId]] = {domain: [] for domain in self.holdings}
        for identity, domain in self.oracle.domains.items():
            at_home[domain].append(identity)
        boxed: dict[Hash, list[tuple[str, IdentityId, IdentityId, set[Hash]]]] = defaultdict(list)
        for domain, holding in self.holdings.items():
            for (recipient, via, instance), messages in holding.boxes.items():
                boxed[instance].append((domain, recipient, via, messages))
        for instance, story in self.oracle.stories.items():
            may = self.oracle.may_have(instance)
            said = {item.entry for item in story.said}
            for domain, holding in self.holdings.items():
                here = at_home[domain]
                allowed = set().union(*(may[identity] for identity in here))
                if extra := (holding.payloads & said) - allowed:
                    yield f"{domain} holds {self._places(instance, extra)}, which nobody there may have"
                if extra := self.world.reached[domain].get(instance, set()) - allowed:
                    yield f"{domain} was sent {self._places(instance, extra)}, which nobody there may have"
                for identity in here:
                    if (instance, identity) in holding.shares and not may[identity]:
                        yield f"{self._name(identity)} sees {self._places(instance, said)} and may not"
            for domain, recipient, via, messages in boxed.get(instance, ()):
                if not messages <= may[recipient]:
                    yield f"the box of {self._name(recipient)} on {domain} holds too much from {self._name(via)}"

    def _missing(self) -> Iterator[str]:
        for instance, story in self.oracle.stories.items():
            whole = {item.entry for item in story.said}
            for identity, is_known in self.oracle.must_have(instance):
                yield from self._compare(instance, whole, story.owner, identity, is_known=is_known)
            for domain in self.oracle.must_replicate(instance):
                if lacking := whole - self.holdings[domain].payloads:
                    yield f"{domain} has not replicated {self._places(instance, lacking)}"
            for by, to, is_known in self.oracle.must_follow(instance):
                held = self.holdings[self.oracle.domains[by]].payloads & whole
                yield from self._compare(instance, held, by, to, is_known=is_known)

    def _compare(
        self, instance: Hash, expected: set[Hash], by: IdentityId, to: IdentityId, *, is_known: bool
    ) -> Iterator[str]:
        holding = self.holdings[self.oracle.domains[to]]
        is_held = expected <= holding.payloads and (instance, to) in holding.shares
        is_boxed = expected <= holding.boxes.get((to, by, instance), set())
        if not is_held and (is_known or not is_boxed):
            lacking = self._places(instance, expected - holding.payloads)
            kind = "known" if is_known else "a stranger"
            yield f"{self._name(to)} ({kind}) lacks {lacking} from {self._name(by)}"

    def _unended(self) -> Iterator[str]:
        """Whoever has what was deleted must know, unless somebody did not want to hear of it."""
        for instance, story in self.oracle.stories.items():
            if not story.is_deleted:
                continue
            end = story.said[-1].entry
            home = self.oracle.domains[story.owner]
            told = {home}
            if story.public():
                told |= {node for node, peer in self.oracle.peers if peer == home}
            grows = True
            while grows:
                grows = False
                for to, domain in self.oracle.domains.items():
                    if domain in told or (instance, to) not in self.holdings[domain].shares:
                        continue
                    senders = [by for _, by, other in story.passed_on if other == to]
                    if self.oracle.was_queued(instance, to):
                        senders.append(story.owner)
                    telling = [by for by in senders if self.oracle.domains[by] in told]
                    if any(not self.oracle.has_blocked(to, [by, story.owner]) for by in telling):
                        told.add(domain)
                        grows = True
            for domain in told:
                holding = self.holdings[domain]
                if story.said[0].entry in holding.payloads and end not in holding.payloads:
                    yield f"{domain} has not heard of the end of {self._places(instance, {end})}"

    def _receipts(self) -> Iterator[str]:
        for domain, node in self.world.nodes.items():
            with node.node.database.reading() as connection:
                is_told = deliveries.c.state == "delivered", deliveries.c.wanted < LOCAL_DELIVERY
                rows = connection.execute(select(deliveries).where(*is_told)).all()
            for row in rows:
                instance, to = Hash(row.instance), IdentityId(row.recipient)
                said = {item.seq_num: item.entry for item in self.oracle.stories[instance].said}
                there = self.holdings[self.oracle.domains[to]].payloads
                if row.delivered and said[row.delivered] not in there:
                    yield f"{domain} believes that {self._name(to)} has {row.delivered} of {instance.hex()[:12]}"

    def _relations(self) -> Iterator[str]:
        """After asking again, both sides agree, but for a block, which looks like a refusal from outside."""
        states = {place: history[-1][1] for place, history in self.oracle.relations.items()}
        for (domain, follower, followee), state in states.items():
            if domain != self.oracle.domains[follower] or state is None:
                continue
            there = states.get((self.oracle.domains[followee], follower, followee))
            shown = "refused" if there == "blocked" else there
            if domain != self.oracle.domains[followee] and state != shown:
                names = f"{self._name(follower)} -> {self._name(followee)}"
                yield f"{names} is {state} on one side and {there} on the other"

    def _views(self) -> Iterator[str]:
        """What a node folds is what the reference makes of that part of the truth; what is whole looks as at home."""
        whole = _rows(list(self.truth.values()))
        for domain, holding in self.holdings.items():
            strange = [item for item in holding.entries if item.signed.hash not in self.truth]
            if strange:
                yield f"{domain} holds {len(strange)} entries that nobody has written"
                continue
            hashes = {item.signed.hash for item in holding.entries}
            part = [
                HeldEntry(
                    item.signed, item.payload if place in holding.payloads or item.signed.entry.log_id == 0 else None
                )
                for place, item in self.truth.items()
                if place in hashes
            ]
            rows = _fold_store(self.world.nodes[domain].node.store)
            if rows != _rows(part):
                yield f"the view of {domain} is not that of what it holds"
            for instance, story in self.oracle.stories.items():
                if {item.entry for item in story.said} <= holding.payloads and rows.get(instance) != whole.get(
                    instance
                ):
                    yield f"{domain} sees {instance.hex()[:12]} otherwise than its owner"

    def _places(self, instance: Hash, entries: set[Hash]) -> str:
        story = self.oracle.stories[instance]
        numbers = [item.seq_num for item in story.said if item.entry in entries]
        return f"{numbers} of {instance.hex()[4:16]} by {self._name(story.owner)}"


def _fold_store(store: LogStore) -> dict[Hash, ReferenceRow]:
    """The rows as the pipeline's fold makes them, in the form of the reference."""
    definition = ViewDefinition(fold_schema(SCHEMA, *store.read(payloads_of_schema, SCHEMA)), [SCHEMA])
    names = [field.name for field in definition.fields]
    rows = {}
    for log, messages in store.whole_logs(1, MAX_STORED_INTEGER):
        for item in fold_log(log.log_id, messages, {SCHEMA: definition}.get, NoOtherLogs()).instances:
            if (row := item.row) is not None:
                fields = dict(zip(names, row.values, strict=True))
                place = (log.author, log.log_id, row.seq_num, row.last_seq_num, row.last_hash)
                facts = (row.access, row.expires, row.copied_from)
                rows[row.instance] = ReferenceRow(row.instance, *place, fields, *facts)
    return rows


def _rows(held: list[HeldEntry]) -> dict[Hash, ReferenceRow]:
    (view,) = (view for view in fold_views(held, [SCHEMA]) if view.schema == SCHEMA)
    return {row.instance: row for row in view.rows}

"""What everybody should hold in the end, written down naively from docs/protocol.md section 8.

It sees what happened in one order, with no network in it, and answers two questions for each message of each instance:
who must have it when everything has been delivered, and who may have it at all. Where these differ it depended on who
was faster: narrowing recalls nothing, so what was withdrawn before it was delivered may have arrived or not.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from inkgrove.core import Hash, IdentityId
from inkgrove.messages import Access

Time = int


@dataclass(frozen=True, slots=True)
class Said:
    """A message of an instance."""

    time: Time
    seq_num: int
    entry: Hash
    access: Access | None
    is_delete: bool


@dataclass(slots=True)
class Story:
    """All that happened to one instance."""

    owner: IdentityId
    said: list[Said] = field(default_factory=list)
    sent: dict[IdentityId, Time] = field(default_factory=dict)
    """To whom the owner sent it, and when first."""
    last_sent: dict[IdentityId, Time] = field(default_factory=dict)
    passed_on: list[tuple[Time, IdentityId, IdentityId]] = field(default_factory=list)
    """(when, by whom, to whom)"""

    @property
    def is_deleted(self) -> bool:
        return self.said[-1].is_delete

    def mode_at(self, time: Time) -> tuple[str, tuple[IdentityId, ...]]:
        """The newest word of the owner at a time."""
        words = [item.access for item in self.said if item.time <= time and item.access is not None]
        return (words[-1].mode, words[-1].to) if words else ("listed", ())

    def public(self) -> set[Hash]:
        """What anybody may have: all up to a word that makes it public; once it was, that it has ended."""
        ends = [item.seq_num for item in self.said if self.mode_after(item.seq_num) == "public"]
        return {item.entry for item in self.said if ends and (item.is_delete or item.seq_num <= ends[-1])}

    def mode_after(self, seq_num: int) -> str:
        """The newest word of somebody who has everything up to a message and nothing later."""
        words = [item.access for item in self.said if item.seq_num <= seq_num and item.access is not None]
        return words[-1].mode if words else "listed"


class Oracle:
    """Follows what happens; `domains` says where everybody lives."""

    def __init__(self) -> None:
        self.time: Time = 0
        self.domains: dict[IdentityId, str] = {}
        self.peers: set[tuple[str, str]] = set()
        """(node, the node that it replicates from)"""
        self.stories: dict[Hash, Story] = {}
        self.relations: dict[tuple[str, IdentityId, IdentityId], list[tuple[Time, str | None]]] = defaultdict(list)
        """(node, follower, followee): how it stood there, and since when."""
        self.refused: dict[tuple[IdentityId, IdentityId], Time] = {}
        """(recipient, sender): when the recipient last refused what waited."""
        self.senders: dict[tuple[IdentityId, IdentityId], list[tuple[Time, bool]]] = defaultdict(list)
        """(recipient, sender): whether the recipient takes whatever the sender sends, and since when."""

    # What happens

    def tick(self) -> Time:
        self.time += 1
        return self.time

    def published(
        self, owner: IdentityId, instance: Hash, seq_num: int, entry: Hash, access: Access | None, *, is_delete: bool
    ) -> None:
        story = self.stories.setdefault(instance, Story(owner))
        story.said.append(Said(self.tick(), seq_num, entry, access, is_delete))
        if access is not None:
            self._send(story, access.to)

    def shared(self, instance: Hash, recipients: Collection[IdentityId]) -> None:
        self.tick()
        self._send(self.stories[instance], recipients)

    def _send(self, story: Story, recipients: Collection[IdentityId]) -> None:
        for recipient in recipients:
            story.sent.setdefault(recipient, self.time)
            story.last_sent[recipient] = self.time

    def passed_on(self, instance: Hash, by: IdentityId, recipients: Collection[IdentityId]) -> None:
        time = self.tick()
        story = self.stories[instance]
        story.passed_on += [(time, by, to) for to in recipients if to != story.owner]

    def related(self, domain: str, follower: IdentityId, followee: IdentityId, state: str | None) -> None:
        history = self.relations[domain, follower, followee]
        if not history or history[-1][1] != state:
            history.append((self.tick(), state))

        if state == "blocked" and self.domains[followee] == domain:
            self.takes_from(followee, follower, is_so=False)

    def has_refused(self, recipient: IdentityId, sender: IdentityId) -> None:
        self.refused[recipient, sender] = self.tick()

    def takes_from(self, recipient: IdentityId, sender: IdentityId, *, is_so: bool) -> None:
        self.senders[recipient, sender].append((self.tick(), is_so))

    def taken_from(self, recipient: IdentityId) -> list[IdentityId]:
        """The senders whom somebody has accepted."""
        return sorted(sender for (who, sender), words in self.senders.items() if who == recipient and words[-1][1])

    def _is_taken_since(self, recipient: IdentityId, sender: IdentityId, time: Time) -> bool:
        words = self.senders.get((recipient, sender), [])
        before = [is_so for since, is_so in words if since <= time]
        return bool(before) and before[-1] and all(is_so for since, is_so in words if since > time)

    # How things stood

    def _state_at(self, domain: str, follower: IdentityId, followee: IdentityId, time: Time) -> str | None:
        states = [state for since, state in self.relations.get((domain, follower, followee), ()) if since <= time]
        return states[-1] if states else None

    def _states_since(self, domain: str, follower: IdentityId, followee: IdentityId, time: Time) -> set[str | None]:
        later = {state for since, state in self.relations.get((domain, follower, followee), ()) if since > time}
        return later | {self._state_at(domain, follower, followee, time)}

    def _is_told(self, story: Story, to: IdentityId, time: Time) -> bool:
        """Whether the owner lets somebody have what is said, as things stood at a time."""
        mode, named = story.mode_at(time)
        was_sent = story.sent.get(to, time + 1) <= time
        follows = self._state_at(self.domains[story.owner], to, story.owner, time) == "accepted"
        match mode:
            case "self":
                return False
            case "closed":
                return was_sent and to in named
            case "listed":
                return was_sent
            case "relations":
                return follows
            case _:  # public
                return was_sent or follows

    def _turns(self, story: Story, to: IdentityId, since: Time) -> Iterator[Time]:
        """The times at which something about it changed, from one on."""
        yield since
        yield from (item.time for item in story.said if item.time > since and item.access is not None)
        if story.sent.get(to, 0) > since:
            yield story.sent[to]
        history = self.relations.get((self.domains[story.owner], to, story.owner), ())
        yield from (time for time, _ in history if time > since)

    def _is_always_told(self, story: Story, to: IdentityId, since: Time) -> bool:
        return all(self._is_told(story, to, time) for time in self._turns(story, to, since))

    def _is_ever_told(self, story: Story, to: IdentityId, since: Time) -> bool:
        return any(self._is_told(story, to, time) for time in self._turns(story, to, since))

    def has_blocked(self, recipient: IdentityId, others: Collection[IdentityId], since: Time = 0) -> bool:
        """Whether somebody blocked one of those at any time since."""
        domain = self.domains[recipient]
        return any("blocked" in self._states_since(domain, other, recipient, since) for other in others)

    def is_known(self, recipient: IdentityId, others: Collection[IdentityId], since: Time) -> bool:
        """Whether somebody has had an accepted relation with one of those, or accepted them, all the time since."""
        domain = self.domains[recipient]
        if any(self._is_taken_since(recipient, other, since) for other in others):
            return True
        pairs = [pair for other in others for pair in ((recipient, other), (other, recipient))]
        return any(self._states_since(domain, *pair, since) == {"accepted"} for pair in pairs)

    # Who may have what

    def may_have(self, instance: Hash) -> dict[IdentityId, set[Hash]]:
        """For everybody, the messages of an instance that may reach them."""
        story = self.stories[instance]
        first = story.said[0].time
        found: dict[IdentityId, set[Hash]] = {}
        for identity in self.domains:
            if self.domains[identity] == self.domains[story.owner]:
                found[identity] = {item.entry for item in story.said}
                continue
            told = {item.entry for item in story.said if self._is_ever_told(story, identity, item.time)}
            if self._is_ever_told(story, identity, first):  # that it has ended is told to all who may have it
                told |= {item.entry for item in story.said if item.is_delete}
            found[identity] = told | story.public()
        grows = True
        while grows:
            grows = False
            for _, by, to in story.passed_on:
                here = self.domains[by]
                held = set().union(*(found[other] for other, domain in self.domains.items() if domain == here))
                passed = {
                    item.entry for item in story.said if item.entry in held and self._is_passable(story, item, by, to)
                }
                grows |= not passed <= found[to]
                found[to] |= passed
        return found

    def _is_passable(self, story: Story, item: Said, by: IdentityId, to: IdentityId) -> bool:
        """Whether somebody who has a message could have thought that it may be passed on to somebody."""
        later = [other.seq_num for other in story.said if other.seq_num >= item.seq_num]
        shut = ["self", "closed"]
        if "accepted" not in self._states_since(self.domains[by], to, story.owner, 0):
            shut.append("relations")
        return item.is_delete or any(story.mode_after(seq) not in shut for seq in later)

    # Who must have what

    def must_have(self, instance: Hash) -> Iterator[tuple[IdentityId, bool]]:
        """Who must have all of a living instance from its owner: as their own (True), or at least in their box."""
        story = self.stories[instance]
        if story.is_deleted:
            return
        for identity, domain in self.domains.items():
            if domain == self.domains[story.owner]:
                continue
            moved = max(story.said[-1].time, story.last_sent.get(identity, 0))  # when it was last sent
            if not self._is_always_told(story, identity, moved) or self.has_blocked(identity, [story.owner], moved):
                continue
            if story.mode_at(self.time)[0] == "relations" and not self._follows_since(domain, identity, story, moved):
                continue
            if self.is_known(identity, [story.owner], moved):
                yield identity, True
            elif self.refused.get((identity, story.owner), 0) < moved:
                yield identity, False

    def _follows_since(self, domain: str, identity: IdentityId, story: Story, time: Time) -> bool:
        """Whether a node has known somebody to follow the owner all the time since, as `relations` needs."""
        return self._states_since(domain, identity, story.owner, time) == {"accepted"}

    def must_replicate(self, instance: Hash) -> Iterator[str]:
        """The nodes that must have all of a living instance because it is public where they replicate from."""
        story = self.stories[instance]
        if not story.is_deleted and story.mode_at(self.time)[0] == "public":
            yield from (node for node, peer in sorted(self.peers) if peer == self.domains[story.owner])

    def must_follow(self, instance: Hash) -> Iterator[tuple[IdentityId, IdentityId, bool]]:
        """(by, to, as above): who must have whatever those have who passed a living instance on to them."""
        story = self.stories[instance]
        if story.is_deleted:
            return
        for time, by, to in story.passed_on:
            if self.domains[by] == self.domains[to]:
                continue
            words = [
                story.mode_at(time),
                *((item.access.mode, ()) for item in story.said if item.time > time and item.access),
            ]
            shut = ("self", "closed", "relations")
            if any(mode in shut for mode, _ in words) or self.has_blocked(to, [by, story.owner], time):
                continue
            if self.is_known(to, [by, story.owner], time):
                yield by, to, True
            elif self.refused.get((to, by), 0) < time:
                yield by, to, False

    def was_queued(self, instance: Hash, to: IdentityId) -> bool:
        """Whether the owner had something of it to send to somebody, at any time; its end goes to those alone."""
        story = self.stories[instance]
        said = [item.time for item in story.said if not item.is_delete]
        triggers = [*said, story.last_sent.get(to, 0), story.sent.get(to, 0)]
        return any(time and self._is_told(story, to, time) for time in triggers)

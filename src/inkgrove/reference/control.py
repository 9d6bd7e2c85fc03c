"""Who controls an identity: its document, its keys, and the state of every `identity` message (section 7.2).

A pure function of the held entries of log 0, in whatever order they come. All branches of forked logs are looked at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from inkgrove.core import Hash, HeldEntry, IdentityId, PublicKey, SignedEntry, identity_of, verify_log, verify_payload
from inkgrove.core.errors import InkgroveError, PayloadHashMismatch, PayloadSizeMismatch
from inkgrove.messages import IdentityDocument, KeyOf, Message, RevokedLog, decode_message


@dataclass(frozen=True, slots=True)
class ReferenceIdentity:
    """One identity as the held entries show it."""

    document: Hash
    """The entry of the document in effect."""
    keys: dict[PublicKey, str]
    """The state of the first key and of each listed one."""
    state: str | None
    """`identity.forked` or `identity.words-used-twice`, if log 0 of the first key is forked."""


@dataclass(slots=True)
class ReferenceControl:
    """All identities, and what follows for keys and documents."""

    identities: dict[IdentityId, ReferenceIdentity] = field(default_factory=dict)
    documents: dict[Hash, str] = field(default_factory=dict)
    """The state of each `identity` message by the hash of its entry; none of those that say nothing."""
    owners: dict[PublicKey, IdentityId] = field(default_factory=dict)
    """The identity of each key that belongs to one."""
    ends: dict[PublicKey, tuple[RevokedLog, ...]] = field(default_factory=dict)
    """How far the logs of ended keys count."""


@dataclass(slots=True)
class _Log0:
    """Every signed entry of log 0 of one key, and what each says."""

    entries: dict[Hash, SignedEntry] = field(default_factory=dict)
    payloads: dict[Hash, bytes] = field(default_factory=dict)

    def says(self, entry: Hash) -> Message | None:
        try:
            return decode_message(self.payloads[entry]) if entry in self.payloads else None
        except InkgroveError:
            return None

    @property
    def firsts(self) -> list[Hash]:
        return [name for name, signed in self.entries.items() if signed.entry.seq_num == 1]

    @property
    def is_of_further_key(self) -> bool:
        return any(isinstance(self.says(name), KeyOf) for name in self.firsts)

    def linked_from(self, entry: Hash) -> set[Hash]:
        """The entry, and every held one that links of held ones lead to from it."""
        reached, waiting = set(), [entry]
        while waiting:
            name = waiting.pop()
            if name in self.entries and name not in reached:
                reached.add(name)
                links = self.entries[name].entry.backlink, self.entries[name].entry.lipmaa_link
                waiting.extend(link for link in links if link is not None)
        return reached

    def leads_to_first(self, entry: Hash) -> bool:
        return any(self.entries[name].entry.seq_num == 1 for name in self.linked_from(entry))

    def counted(self) -> tuple[set[Hash], str | None]:
        """The entries of the part that counts, and the state of an identity whose first key has this log."""
        held = [HeldEntry(signed, self.payloads.get(name)) for name, signed in self.entries.items()]
        report = verify_log(held, partial=True)
        verified = {item.hash for item in report.verified.values()}
        if report.fork is None:
            return verified, None
        if self.is_of_further_key or not any(_names_controller(self.says(name)) for name in verified):
            return verified, "identity.forked"
        candidates = [
            (signed.entry.seq_num, name)
            for name, signed in self.entries.items()
            if (report.wrong_size is None or signed.entry.seq_num < report.wrong_size) and self.leads_to_first(name)
        ]
        return self.linked_from(max(candidates)[1]), "identity.words-used-twice"

    def newest_document(self, *, under: Hash | None) -> Hash | None:
        """The newest `identity` message of the part that counts that stands under an entry, or under none."""
        counted, _ = self.counted()
        found = [
            (self.entries[name].entry.seq_num, name)
            for name in counted
            if isinstance(message := self.says(name), IdentityDocument) and message.under == under
        ]
        return max(found)[1] if found else None


def _names_controller(message: Message | None) -> bool:
    return isinstance(message, IdentityDocument) and message.under is None and message.controller is not None


def judge_control(held: Iterable[HeldEntry]) -> ReferenceControl:
    """Judge all identities whose log 0 is held."""
    logs = _gather(held)
    control = ReferenceControl()
    steps: dict[Hash, PublicKey] = {}
    for first_key, log in logs.items():
        if not log.is_of_further_key:
            _judge_identity(control, first_key, logs, steps)
    for author in logs:
        _judge_documents(control, author, logs, steps)
    return control


def _gather(held: Iterable[HeldEntry]) -> dict[PublicKey, _Log0]:
    logs: dict[PublicKey, _Log0] = {}
    for item in held:
        entry = item.signed.entry
        if entry.log_id == 0:
            log = logs.setdefault(entry.author, _Log0())
            log.entries[item.signed.hash] = item.signed
            if item.payload is not None and _is_of(item):
                log.payloads[item.signed.hash] = item.payload
    return logs


def _is_of(item: HeldEntry) -> bool:
    """Whether the payload is the entry's, be its size the promised one or not."""
    assert item.payload is not None
    try:
        verify_payload(item.signed.entry, item.payload)
    except PayloadHashMismatch:
        return False
    except PayloadSizeMismatch:
        return True
    return True


def _claim(log: _Log0 | None) -> IdentityId | str:
    """The identity that all entries 1 of a log 0 say they are of, else why there is none."""
    said = [log.says(name) for name in log.firsts] if log is not None else []
    named = {message.identity if isinstance(message, KeyOf) else None for message in said}
    if len(said) > 1 and (len(named) > 1 or None in named):
        return "key.contested"
    claimed = named.pop() if named else None
    return claimed if claimed is not None else "key.unclaimed"


def _judge_identity(
    control: ReferenceControl, first_key: PublicKey, logs: dict[PublicKey, _Log0], steps: dict[Hash, PublicKey]
) -> None:
    identity, log = identity_of(first_key), logs[first_key]
    at, speaker = log.newest_document(under=None), first_key
    if at is None:
        return
    while True:
        document = logs[speaker].says(at)
        assert isinstance(document, IdentityDocument)
        controller = document.controller
        if controller is None or controller == first_key or _claim(logs.get(controller)) != identity:
            break
        if not any(item.key == controller and item.revoked is None for item in document.keys):
            break
        following = logs[controller].newest_document(under=at)
        if following is None:
            break
        steps[at] = controller
        at, speaker = following, controller
    listed = {item.key: item for item in document.keys}
    keys = {key: _key_state(identity, key, item.revoked is not None, logs) for key, item in listed.items()}
    own = listed.get(first_key)
    keys[first_key] = "key.ended" if own is not None and own.revoked is not None else "key.counts"
    control.identities[identity] = ReferenceIdentity(at, keys, log.counted()[1])
    for key, state in keys.items():
        if state in ("key.counts", "key.ended"):
            control.owners[key] = identity
        if state == "key.ended":
            control.ends[key] = listed[key].revoked or ()


def _key_state(identity: IdentityId, key: PublicKey, is_revoked: bool, logs: dict[PublicKey, _Log0]) -> str:
    claim = _claim(logs.get(key))
    if claim == identity:
        return "key.ended" if is_revoked else "key.counts"
    return "key.contested" if claim == "key.contested" else "key.unclaimed"


def _judge_documents(
    control: ReferenceControl, author: PublicKey, logs: dict[PublicKey, _Log0], steps: dict[Hash, PublicKey]
) -> None:
    log = logs[author]
    in_effect = {identity.document for identity in control.identities.values()}
    readable = {name for other in logs.values() for name in other.payloads}
    counted, _ = log.counted()
    for name in log.entries:
        message = log.says(name)
        if not isinstance(message, IdentityDocument) or not log.leads_to_first(name):
            continue
        under = message.under
        is_known = any(first in log.payloads for first in log.firsts)
        if (under is None) is log.is_of_further_key and (under is None or is_known):
            continue  # it says nothing
        if name in in_effect:
            control.documents[name] = "document.in-effect"
        elif name in counted and (under is None or steps.get(under) == author):
            control.documents[name] = "document.replaced"
        elif under is not None and (under not in readable or not is_known):
            control.documents[name] = "document.waits"
        else:
            control.documents[name] = "document.overruled"

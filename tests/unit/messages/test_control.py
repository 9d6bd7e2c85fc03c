"""The rules of control (docs/protocol.md section 7.2): by hand, and against the reference over generated logs."""

from inkgrove.core import Hash, HeldEntry, PublicKey, SecretKey, identity_of
from inkgrove.messages import (
    Control,
    DocumentState,
    FurtherKey,
    IdentityDocument,
    IdentityLogInMemory,
    IdentityState,
    KeyOf,
    KeyState,
    RevokedLog,
    SignedDocument,
    claimed_identities,
    decide_control,
    decode_if_valid,
    encode_message,
    judge_document,
)
from inkgrove.reference.control import ReferenceControl, ReferenceIdentity, judge_control
from tests.support.identity_worlds import IdentityWorld, copy_branch
from tests.support.logs import LogBuilder, key
from tests.support.tiers import amount


def read_logs(held: list[HeldEntry]) -> dict[PublicKey, IdentityLogInMemory]:
    by_author: dict[PublicKey, list[HeldEntry]] = {}
    for item in held:
        by_author.setdefault(item.signed.entry.author, []).append(item)
    return {author: IdentityLogInMemory(items) for author, items in by_author.items()}


def decide(held: list[HeldEntry], first_key: PublicKey) -> Control | None:
    logs = read_logs(held)
    return decide_control(first_key, lambda author: logs.get(author) or IdentityLogInMemory([]))


def with_path(held: list[HeldEntry]) -> list[HeldEntry]:
    """The entries that links of others lead to entry 1 from: what a store keeps."""
    kept: dict[Hash, HeldEntry] = {}
    for item in sorted(held, key=lambda item: item.signed.entry.seq_num):
        entry = item.signed.entry
        if entry.seq_num == 1 or entry.backlink in kept or entry.lipmaa_link in kept:
            kept[item.signed.hash] = item
    return list(kept.values())


def tell(held: list[HeldEntry]) -> ReferenceControl:
    """What the rules say of all identities and documents, in the form of the reference."""
    logs, told = read_logs(held), ReferenceControl()
    controls = {identity_of(author): decide(held, author) for author in logs}
    for identity, control in controls.items():
        if control is not None:
            keys = {author: state.value for author, state in control.keys.items()}
            state = None if control.state is None else control.state.value
            told.identities[identity] = ReferenceIdentity(control.current.hash, keys, state)
            told.owners |= {author: identity for author, found in control.keys.items() if found.belongs}
            told.ends |= control.ends
    for item in held:
        message, entry = decode_if_valid(item.payload), item.signed.entry
        if isinstance(message, IdentityDocument):
            named = claimed_identities(logs[entry.author]) or {identity_of(entry.author)}
            readable = {other.signed.hash for other in held if other.payload is not None}
            found = judge_document(
                SignedDocument(entry.author, entry.seq_num, item.signed.hash, message),
                logs[entry.author],
                controls.get(named.pop()) if len(named) == 1 else None,
                is_under_readable=message.under in readable,
            )
            if found is not None:
                told.documents[item.signed.hash] = found.value
    return told


def test_rules_say_what_the_reference_says() -> None:
    seen: set[str] = set()
    for seed in range(amount(150, 3000)):
        held = with_path(IdentityWorld.from_seed(seed).held())
        told, expected = tell(held), judge_control(held)
        assert told == expected, seed
        seen.update(told.documents.values())
        for identity in told.identities.values():
            seen.update(identity.keys.values(), [identity.state] if identity.state is not None else [])
    assert seen == {str(state) for kind in (DocumentState, KeyState, IdentityState) for state in kind}


JANE, SERVER, PHONE, OTHER = key(1), key(2), key(3), key(4)
JANE_ID = identity_of(JANE.public)


def document(name: str, *listed: FurtherKey, controller: SecretKey | None = None, under: Hash | None = None) -> bytes:
    named = None if controller is None else controller.public
    return encode_message(
        IdentityDocument("jane.haiku.ink", "https://haiku.ink", name, keys=listed, controller=named, under=under)
    )


def further(secret: SecretKey, *, of: SecretKey = JANE) -> LogBuilder:
    """Log 0 of a further key, which says whose it is."""
    log = LogBuilder(secret, 0)
    log.append(encode_message(KeyOf(identity_of(of.public))))
    return log


def name_of(*logs: LogBuilder) -> str | None:
    """The name in the document in effect."""
    return decided(*logs).document.name


def decided(*logs: LogBuilder) -> Control:
    found = decide([item for log in logs for item in log.held()], JANE.public)
    assert found is not None
    return found


class Hosted:
    """Jane, whose words are in the drawer and whose server has signed one document since."""

    def __init__(self) -> None:
        self.words = LogBuilder(JANE, 0)
        self.words.append(document("at sign-up", FurtherKey(SERVER.public), controller=SERVER))
        self.server = further(SERVER)
        self.say("by the server", FurtherKey(SERVER.public), controller=SERVER)

    def say(self, name: str, *listed: FurtherKey, controller: SecretKey | None = None) -> None:
        self.server.append(document(name, *listed, controller=controller, under=self.words.hash(1)))


def test_controller_speaks_until_the_words_overrule_it() -> None:
    jane = Hosted()
    assert name_of(jane.words, jane.server) == "by the server"
    assert name_of(jane.words) == "at sign-up"
    jane.words.append(document("by the words", FurtherKey(OTHER.public), controller=OTHER))
    # A document of the former controller that arrives late, or is signed late, changes nothing.
    jane.say("too late", FurtherKey(SERVER.public), controller=SERVER)
    overruled = decided(jane.words, jane.server, further(OTHER))
    assert overruled.document.name == "by the words"
    assert overruled.keys == {JANE.public: KeyState.COUNTS, OTHER.public: KeyState.COUNTS}


def test_document_counts_whole() -> None:
    jane = Hosted()
    jane.say("without the phone", FurtherKey(SERVER.public), controller=SERVER)
    jane.words.append(document("with it", FurtherKey(PHONE.public, (RevokedLog(1, 4),))))
    control = decided(jane.words, jane.server, further(PHONE))
    assert control.keys == {JANE.public: KeyState.COUNTS, PHONE.public: KeyState.ENDED}
    assert control.ends == {PHONE.public: (RevokedLog(1, 4),)}
    assert control.controller is None


def test_controller_that_is_revoked_unlisted_or_somebody_elses_does_not_speak() -> None:
    for listed, claim in (
        ((FurtherKey(SERVER.public, ()),), further(SERVER)),
        ((), further(SERVER)),
        ((FurtherKey(SERVER.public),), further(SERVER, of=OTHER)),
    ):
        words = LogBuilder(JANE, 0)
        words.append(document("by the words", *listed, controller=SERVER))
        claim.append(document("by the server", FurtherKey(SERVER.public), under=words.hash(1)))
        assert name_of(words, claim) == "by the words"


def test_controller_hands_over_without_the_words() -> None:
    jane = Hosted()
    jane.say("moving", FurtherKey(SERVER.public, (RevokedLog(1, 7),)), FurtherKey(OTHER.public), controller=OTHER)
    there = further(OTHER)
    there.append(document("moved", FurtherKey(OTHER.public), controller=OTHER, under=jane.server.hash(3)))
    control = decided(jane.words, jane.server, there)
    assert [step.document.name for step in control.path] == ["at sign-up", "moving", "moved"]
    assert control.controller == OTHER.public
    assert control.under_for(OTHER.public) == jane.server.hash(3)
    jane.words.append(document("home again"))
    assert name_of(jane.words, jane.server, there) == "home again"


def test_key_with_two_owners_is_nobodys() -> None:
    jane = Hosted()
    control = decided(jane.words, jane.server, further(SERVER, of=OTHER))
    assert (control.document.name, control.keys[SERVER.public]) == ("at sign-up", KeyState.CONTESTED)
    # A fork of log 0 in which the key names one owner leaves the key, and takes its documents.
    twice = further(SERVER)
    twice.append(b"another second entry")
    control = decided(jane.words, jane.server, twice)
    assert (control.document.name, control.keys[SERVER.public]) == ("at sign-up", KeyState.COUNTS)


def test_words_used_twice_end_nothing_and_the_longer_branch_counts() -> None:
    jane = Hosted()
    here, there = copy_branch(jane.words, 1), copy_branch(jane.words, 1)
    here.append(document("here"))
    there.append(document("there"))
    greatest = max((here, there), key=lambda log: log.hash(2))
    control = decided(here, there, jane.server)
    assert control.document.name == ("here" if greatest is here else "there")
    assert control.state is IdentityState.WORDS_USED_TWICE
    shorter = here if greatest is there else there
    shorter.append(document("the longer one"))
    assert name_of(here, there, jane.server) == "the longer one"


def test_fork_before_a_controller_was_named_ends_the_identity() -> None:
    words = LogBuilder(JANE, 0)
    words.append(document("first"))
    other = copy_branch(words, 1)
    words.append(document("second", controller=SERVER))
    other.append(document("another", controller=SERVER))
    control = decided(words, other)
    assert (control.document.name, control.state) == ("first", IdentityState.FORKED)
    assert decide([*words.held(), *fork_of_all(words).held()], JANE.public) is None


def fork_of_all(log: LogBuilder) -> LogBuilder:
    branch = copy_branch(log, 0)
    branch.append(document("another first one", controller=SERVER))
    return branch


def test_first_key_can_be_ended_and_still_speaks_in_log_0() -> None:
    words = LogBuilder(JANE, 0)
    words.append(document("ended", FurtherKey(JANE.public, (RevokedLog(3, 9),))))
    control = decided(words)
    assert (control.keys, control.ends) == ({JANE.public: KeyState.ENDED}, {JANE.public: (RevokedLog(3, 9),)})
    words.append(document("and back"))
    assert decided(words).keys == {JANE.public: KeyState.COUNTS}


def test_document_under_what_nobody_holds_waits() -> None:
    jane = Hosted()
    held = [*jane.server.held()]
    assert tell(held).documents == {jane.server.hash(2): "document.waits"}
    assert tell([*held, *jane.words.held()]).documents == {
        jane.words.hash(1): "document.replaced",
        jane.server.hash(2): "document.in-effect",
    }
    # Where nothing may stand under anything, and where everything must, it says nothing.
    jane.words.append(document("with under", under=jane.server.hash(2)))
    jane.server.append(document("without"))
    assert len(tell([*jane.words.held(), *jane.server.held()]).documents) == 2

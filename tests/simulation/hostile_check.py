"""What must be true on every node whatever a hostile host shows it (docs/protocol.md section 7.2).

Two kinds of checks. A node must say what the reference makes of the entries that it holds: control, owners, ends, rows
and outcomes. And what the rules promise must be true, compared with the reference of the entries alone that the owners
have signed: so a rule that is broken in both places is found as well.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from inkgrove.core import (
    Hash,
    HeldEntry,
    IdentityId,
    PublicKey,
    SecretKey,
    SignedEntry,
    find_fork,
    identity_of,
    verify_payload,
    verify_signed,
)
from inkgrove.messages import Control, IdentityDocument, KeyOf, SchemaId, decode_if_valid
from inkgrove.node.identity import find_control, find_owner, read_newest_document
from inkgrove.node.runtime import Node
from inkgrove.reference import ReferenceView, fold_views
from inkgrove.reference.control import ReferenceControl, judge_control
from inkgrove.reference.logs import gather_logs, pinned_branch
from inkgrove.schema import LogMessage, ViewDefinition, fold_log, fold_schema
from inkgrove.store.logs import (
    LogKey,
    OtherLogsInStore,
    payloads_of_schema,
    read_beside,
    read_ends_within,
    read_entries,
    read_logs,
)
from inkgrove.store.node import find_identity, find_name, find_relation_state, keys_of
from tests.support.logs import key
from tests.support.stored_control import check_against_reference

if TYPE_CHECKING:
    from tests.simulation.hostile import HostileWorld

SCHEMA = SchemaId(key(200).public, 1)
Rows = dict[Hash, tuple[PublicKey, int, Hash, object]]
"""By instance: who wrote it, the last change, and the text."""


class Problem(AssertionError):
    """Something is not as it should be."""


def require(is_so: object, what: str) -> None:
    """Raise `Problem` unless something is so."""
    if not is_so:
        raise Problem(what)


class HostileCheck:
    """Looks at the nodes of a world."""

    def __init__(self, world: "HostileWorld") -> None:
        self.world = world
        self.seen: Counter[str] = Counter()
        """How often each situation was met: a check of what never happens is worth nothing."""
        self._signed: dict[bytes, SignedEntry] = {}
        self._looks = 0
        self._held: dict[int, list[HeldEntry]] = {}
        self.keys = [secret.public for secret in world.cast.everybody]

    def holding(self, node: Node) -> list[HeldEntry]:
        """Everything that a node held when it was looked at last."""
        return self._held[id(node)]

    def look_at(self, node: Node) -> None:
        """Look at a node after it took something in; every eighth time at the state of each document as well."""
        self._looks += 1
        try:
            _NodeView(self, node, with_documents=self._looks % 8 == 0).check()
        except AssertionError as error:
            number = self.world.nodes.index(node)
            raise Problem(f"node {number}: {str(error) or 'not what the reference says'}") from error

    def look_at_end(self) -> None:
        """Look at all nodes once they have exchanged everything."""
        views = []
        for node in self.world.nodes:
            try:
                view = _NodeView(self, node, with_documents=True)
                view.check()
                view.check_end()
                views.append(view)
            except AssertionError as error:
                number = self.world.nodes.index(node)
                raise Problem(f"node {number} in the end: {str(error) or 'not what the reference says'}") from error
        for view in views[1:]:
            require(view.judged == views[0].judged, "two nodes that hold the same judge control differently")
            require(view.rows == views[0].rows, "two nodes that hold the same have different rows")

    def read(self, node: Node) -> list[HeldEntry]:
        """Read everything that a node holds; every entry must verify."""
        heights = node.store.heights()
        with node.database.reading() as connection:
            stored = [
                item
                for author, log_id in heights
                for item in (*read_entries(connection, author, log_id), *read_beside(connection, author, log_id))
            ]
        for item in stored:
            if item.entry.encoded not in self._signed:
                self._signed[item.entry.encoded] = verify_signed(item.entry)
        found = [HeldEntry(self._signed[item.entry.encoded], item.payload) for item in stored]
        self._held[id(node)] = found
        return found


class _NodeView:
    """One node at one moment."""

    def __init__(self, check: HostileCheck, node: Node, *, with_documents: bool) -> None:
        self.world, self.cast, self.seen, self.node = check.world, check.world.cast, check.seen, node
        self.keys = check.keys
        self.held = check.read(node)
        self.honest_held = [item for item in self.held if item.signed.hash in self.world.honest]
        with node.database.reading() as connection:
            self.judged: ReferenceControl = check_against_reference(
                connection, self.keys, self.held, with_documents=with_documents
            )
            self.controls = {author: find_control(connection, author) for author in self.keys}
            self.owners = {author: find_owner(connection, author) for author in self.keys}
        self.honest: ReferenceControl = judge_control(self.honest_held)
        self.rows, self.counted = self._fold()

    def check(self) -> None:
        """Everything that must be so at any moment."""
        self._check_owners()
        self._check_ann()
        self._check_john()
        self._check_jane()

    # What the node says

    def _fold(self) -> tuple[Rows, dict[LogKey, list[LogMessage]]]:
        """The rows as the pipeline folds them from the store, which must be those of the reference."""
        rows: Rows = {}
        outcomes: dict[Hash, str] = {}
        counted: dict[LogKey, list[LogMessage]] = {}
        with self.node.database.reading() as connection:
            schema = fold_schema(SCHEMA, *payloads_of_schema(connection, SCHEMA))
            definitions = {SCHEMA: ViewDefinition(schema, [SCHEMA])}
            numbers = sorted(read_logs(connection))
            ends = read_ends_within(connection, numbers[0], numbers[-1])
            for state, messages in list(self.node.store.whole_logs(numbers[0], numbers[-1])):
                counted[state.author, state.log_id] = messages
                others = OtherLogsInStore(lambda work: work(connection), state.author, ends)
                folded = fold_log(state.log_id, messages, definitions.get, others)
                outcomes |= {entry: ruling.code for entry, (_, ruling) in folded.rulings.items()}
                for item in folded.instances:
                    if (row := item.row) is not None:
                        rows[item.instance] = (state.author, row.last_seq_num, row.last_hash, row.values[0])
        views = fold_views(self.held, [SCHEMA])
        require(rows == _rows(views), "the rows are not those of the reference")
        require(
            outcomes == {outcome.hash: outcome.code for view in views for outcome in view.outcomes},
            "the outcomes are not those of the reference",
        )
        return rows, counted

    def _firsts(self, secret: SecretKey, log_id: int = 0) -> list[HeldEntry]:
        """Every entry 1 of a log of a key that the node holds."""
        wanted = secret.public, log_id, 1
        return [
            item
            for item in self.held
            if (item.signed.entry.author, item.signed.entry.log_id, item.signed.entry.seq_num) == wanted
        ]

    def _is_contested(self, secret: SecretKey) -> bool:
        """Whether the entries 1 of log 0 of a key that the node holds do not all say one `key-of`."""
        said = [decode_if_valid(item.payload) for item in self._firsts(secret)]
        return len(said) > 1 and not (isinstance(said[0], KeyOf) and all(message == said[0] for message in said))

    # Whose keys these are

    def _check_owners(self) -> None:
        """No key becomes somebody else's; one with two claims is nobody's, and so are its rows."""
        cast = self.cast
        jane, john = identity_of(cast.jane.public), identity_of(cast.john.public)
        for secret in (cast.jane, cast.john, cast.ann, cast.mallory):
            require(self.owners[secret.public] == identity_of(secret.public), "a first key is somebody else's")
        further = dict.fromkeys((*cast.controllers, cast.phone, cast.new, cast.spare), jane)
        for secret, owner in (further | {cast.tablet: john}).items():
            found, own = self.owners[secret.public], identity_of(secret.public)
            if self._is_contested(secret):
                self.seen["key.contested"] += 1
                require(found == own, "a key with two claims is somebody's")
                for control in self.controls.values():
                    state = None if control is None else control.keys.get(secret.public)
                    require(state in (None, "key.contested"), f"a key with two claims is {state}")
            elif any(item.signed.hash in self.world.honest for item in self._firsts(secret)):
                require(found in (owner, own), "a further key is somebody else's")
            elif secret not in cast.kept or not self._firsts(secret):
                require(found == own, "a key is somebody's that has not said so")
            else:
                # Only what the host has signed is held: here it says whose its key is.
                self.seen["only the forged claim"] += 1
                require(found in (owner, own, identity_of(cast.mallory.public)), "a key is a stranger's")

    # Those who have nothing to do with it

    def _check_ann(self) -> None:
        ann = self.cast.ann.public
        require(
            self.judged.identities.get(identity_of(ann)) == self.honest.identities.get(identity_of(ann)),
            "the document of somebody else has changed",
        )
        require(self._rows_of([ann]) == self._rows_alone(ann), "the rows of somebody else have changed")

    def _rows_of(self, authors: Collection[PublicKey]) -> Rows:
        return _of(self.rows, authors)

    def _rows_alone(self, author: PublicKey) -> Rows:
        """What a key has written by itself, as if there were no other."""
        own = [item for item in self.honest_held if item.signed.entry.author in (author, SCHEMA.author)]
        return _rows(fold_views(own, [SCHEMA]))

    # The identity without words

    def _check_john(self) -> None:
        """What the known limits allow (section 7.2.8), and no more.

        - two entries 1 of log 0 are held: the identity has ended; it has no document, and no key but the first one
        - one is held, and it is the host's: the host has taken it over
        - one is held, and it is John's, who has named no controller: what he said before the fork counts, or, where
          only one branch is seen, the newest document of that
        - one is held, and it is John's, who has named a controller: who has the first key decides, and has the words
        """
        john, control = self.cast.john.public, self.controls[self.cast.john.public]
        firsts = self._firsts(self.cast.john)
        is_his = any(item.signed.hash in self.world.honest for item in firsts)
        if len(firsts) > 1:
            self.seen["john has ended"] += 1
            require(control is None, "an identity whose entry 1 is forked has a document")
            require(self.owners[self.cast.tablet.public] != identity_of(john), "an ended identity has a further key")
            return
        if control is None:
            return
        root = control.path[0]
        require(root.author == john, "the document of an identity does not begin with its first key")
        self._check_steps(control)
        if not is_his:
            self.seen["john is taken over"] += 1
            require(root.hash in self.world.forged, "behind the host's entry 1 stands a document of John")
        elif not self.world.plan.john_has_controller:
            forked_at = _forked_at(self.held, john)
            require((control.state == "identity.forked") == (forked_at is not None), f"forked: {control.state}")
            if forked_at is not None:
                self.seen["john is forked later"] += 1
                require(root.seq_num < forked_at, "what lies behind a fork counts")

    def _check_steps(self, control: Control) -> None:
        """Each document on the way to the one in effect stands in log 0 of the controller that the last one named."""
        for before, after in zip(control.path, control.path[1:], strict=False):
            require(before.document.controller == after.author, "a document of a key that was not the controller")
            require(after.document.under == before.hash, "a document under another one than it says")

    # The identity whose words are in the drawer

    def _check_jane(self) -> None:
        """She cannot be taken over where her newest document with her words is held."""
        jane, world = identity_of(self.cast.jane.public), self.world
        control = self.controls[self.cast.jane.public]
        if control is None:
            require(jane not in self.honest.identities, "an identity with words in the drawer has no document")
            return
        require(control.path[0].author == self.cast.jane.public, "the document does not begin with the first key")
        require(control.path[0].hash in world.honest, "a first key has signed what its owner has not")
        self._check_steps(control)
        if not world.has_overruled or not self._holds_newest_words():
            self.seen["before the words"] += 1
            if control.current.hash in world.forged:
                self.seen["taken over until overruled"] += 1
            return
        self.seen["with the words"] += 1
        own = self.honest.identities[jane]
        require(control.path[0].hash == world.newest_words, "the newest document of the first key does not count")
        require(control.current.hash == own.document, "the document in effect is not the owner's")
        require(control.current.author in (self.cast.jane.public, self._new_controller()), "a former controller speaks")
        found = self.judged.identities[jane]
        require(found.state == own.state, f"the identity is {found.state}")
        for author, state in own.keys.items():
            is_kept = author in {secret.public for secret in self.cast.kept}
            # Whether the owner's own entry 1 of a kept key has come or only one that the host signed: it has ended.
            allowed = {"key.ended", "key.contested", "key.unclaimed"} if is_kept else {state}
            require(found.keys[author] in allowed, f"a key is {found.keys[author]} instead of {state}")
        self._check_rows(jane)

    def _holds_newest_words(self) -> bool:
        """Whether the entry is held with its payload and a path to entry 1."""
        return self.honest.documents.get(self.world.newest_words) in ("document.in-effect", "document.replaced")

    def _new_controller(self) -> PublicKey:
        document = self.controls[self.cast.jane.public]
        assert document is not None
        named = document.path[0].document.controller
        require(named in (self.cast.new.public, self.cast.spare.public), "a controller that the owner has not named")
        assert named is not None
        return named

    def _check_rows(self, jane: IdentityId) -> None:
        """Her rows are those of what she wrote herself, except for keys that are contested.

        Until a pinned entry has come its log counts as others do (section 7.2.7), and so does what the host wrote in
        that: this is looked at once all pins decide.
        """
        belonging = {author for author in self.keys if self.owners[author] == jane}
        lost = {secret.public for secret in self.cast.kept} - belonging
        if not self._do_pins_decide(belonging):
            self.seen["pins wait"] += 1
            return
        entries = [item for item in self.honest_held if item.signed.entry.author not in lost]
        expected = _rows(fold_views(entries, [SCHEMA]))
        require(self._rows_of(belonging) == _of(expected, belonging), "rows have changed that are not contested")
        self.seen["rows stay"] += 1
        for secret in self.cast.kept:
            if secret.public in belonging and _is_any_forked(self.held, secret.public):
                self.seen["rows stay although the log is forked"] += bool(_of(expected, [secret.public]))

    def _do_pins_decide(self, belonging: Collection[PublicKey]) -> bool:
        """Whether of each log of a kept key that counts in part the owner's pinned entry is held, or nothing is."""
        logs, ends = gather_logs(self.honest_held), self.honest.ends
        if any(secret.public in belonging and secret.public not in ends for secret in self.cast.kept):
            return False  # it belongs by an entry 1 that the host signed; the owner's has not come
        held = {(item.signed.entry.author, item.signed.entry.log_id) for item in self.held}
        for secret in self.cast.kept:
            if secret.public not in belonging:
                continue
            for end in ends.get(secret.public, ()):
                log = logs.get((secret.public, end.log_id))
                is_held = (secret.public, end.log_id) in held
                if is_held and (log is None or pinned_branch(log, end) is None):
                    return False
        return True

    # In the end

    def check_end(self) -> None:
        """What must be so once everything was exchanged."""
        cast, world = self.cast, self.world
        jane = identity_of(cast.jane.public)
        held = {item.signed.hash: item for item in self.held}
        for name, item in world.honest.items():
            require(name in held, "an entry of an owner is lost")
            require(held[name].payload == item.payload, "a payload of an owner is lost")
            verify_payload(held[name].signed.entry, held[name].payload or b"")
        require(self._holds_newest_words(), "the words have not come")
        belonging = {author for author in self.keys if self.owners[author] == jane}
        require(self._do_pins_decide(belonging), "a pin does not decide although all of it is held")
        self._check_older_entries(belonging)
        # Contested are the keys that the host has claimed for itself, and those of which it has signed a second entry 1
        # that it shows to nobody with its payload: what is not held says nothing (section 7.2.3). No others are.
        for secret in (*cast.controllers, cast.phone, cast.new):
            is_silent = any(item.payload is None for item in self._firsts(secret))
            is_lost = secret in cast.kept and (world.plan.second_claim == "mallory" or is_silent)
            self.seen["contested by a claim that nobody was shown"] += is_lost and is_silent
            require((secret.public in belonging) is not is_lost, "a key of the owner is not the owner's")
        self._check_relations(jane)
        # The identity without words has ended. What its other key wrote stays, as that key's own; of the first key's
        # logs nothing does, since entry 1 of each is forked. Only a fork that came while a document of the host had
        # ended the first key itself was kept by nobody: nothing behind an end is taken in.
        require(self.controls[cast.john.public] is None, "an identity whose entry 1 is forked has a document")
        his = self._rows_of([cast.john.public]).keys() & world.honest.keys()
        forked = {log_id for log_id in (1, 2) if len(self._firsts(cast.john, log_id)) > 1}
        self.seen["john's log is forked in the end"] += bool(forked)
        require(
            not [name for name in his if world.honest[name].signed.entry.log_id in forked],
            "rows of a log whose entry 1 is forked",
        )
        of_john = {name: item for name, item in world.forged.items() if item.signed.entry.author == cast.john.public}
        is_lost = any(item.signed.entry.seq_num == 1 and name not in held for name, item in of_john.items())
        require(not is_lost or _ends(of_john.values(), cast.john.public), "a fork of a log that nobody ended is lost")
        require(self.owners[cast.tablet.public] == identity_of(cast.tablet.public), "a key of an ended identity")
        tablet = cast.tablet.public
        require(self._rows_of([tablet]) == self._rows_alone(tablet), "rows of a key that nobody stole have changed")

    def _check_older_entries(self, belonging: Collection[PublicKey]) -> None:
        """All that the owner's keys ever signed counts, the keys that were replaced included."""
        wrote: dict[LogKey, set[Hash]] = {}
        for name, item in self.world.honest.items():
            wrote.setdefault((item.signed.entry.author, item.signed.entry.log_id), set()).add(name)
        for (author, log_id), hashes in wrote.items():
            if author in belonging and log_id != 0:
                counted = {item.hash for item in self.counted[author, log_id] if item.invalid_code is None}
                require(counted == hashes, "of a log of the owner something else counts than the owner wrote")
                self.seen["older entries verify"] += len(hashes)

    def _check_relations(self, jane: IdentityId) -> None:
        """Relations are by id, and the id leads to the endpoint that the owner named last."""
        ann = identity_of(self.cast.ann.public)
        with self.node.database.reading() as connection:
            require(find_relation_state(connection, ann, jane) == "accepted", "a relation is lost")
            (first,) = [author for author in keys_of(connection, jane) if identity_of(author) == jane]
            _, document = read_newest_document(connection, first)
            require(
                (document.fqdn, document.endpoint) == ("jane.new.ink", "https://new.ink"),
                f"the relation leads to {document.endpoint}",
            )
            if self.node is self.world.new_home:
                hosted, name = find_identity(connection, jane), find_name(connection, "jane.new.ink")
                require(hosted is not None and hosted.lives_here, "the owner does not live where she went")
                require(name is not None and name.identity == jane and name.left_at is None, "the name is lost")


def _rows(views: Collection[ReferenceView]) -> Rows:
    return {
        row.instance: (row.author, row.last_seq_num, row.last_hash, row.fields["text"])
        for view in views
        for row in view.rows
    }


def _of(rows: Rows, authors: Collection[PublicKey]) -> Rows:
    return {instance: row for instance, row in rows.items() if row[0] in authors}


def _forked_at(held: Collection[HeldEntry], author: PublicKey, log_id: int = 0) -> int | None:
    """The first place of a log at which what is held contradicts itself (section 2.10)."""
    log = (item.signed for item in held if (item.signed.entry.author, item.signed.entry.log_id) == (author, log_id))
    fork = find_fork(log)
    return None if fork is None else fork.seq_num


def _ends(items: Iterable[HeldEntry], author: PublicKey) -> bool:
    """Whether one of these is a document that lists a key as revoked."""
    documents = [decode_if_valid(item.payload) for item in items]
    return any(
        listed.key == author and listed.revoked is not None
        for document in documents
        if isinstance(document, IdentityDocument)
        for listed in document.keys
    )


def _is_any_forked(held: Collection[HeldEntry], author: PublicKey) -> bool:
    return any(_forked_at(held, author, log_id) is not None for log_id in (1, 2))

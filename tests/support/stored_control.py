"""What a store says on who controls identities, in the form of the reference (docs/protocol.md section 7.2)."""

from collections.abc import Collection

from inkgrove.core import HeldEntry, PublicKey, identity_of
from inkgrove.messages import Control
from inkgrove.node.identity import find_control, find_document_state
from inkgrove.reference.control import ReferenceControl, ReferenceIdentity, judge_control
from inkgrove.store.db import Connection
from inkgrove.store.node import find_key_status, identities_of


def check_against_reference(
    connection: Connection, keys: Collection[PublicKey], held: Collection[HeldEntry], *, with_documents: bool = True
) -> ReferenceControl:
    """Compare what a store says with what the reference makes of the entries that it holds; what the latter says.

    The states of all documents are asked for one by one, which takes most of the time: `with_documents` False does not.
    """
    expected, told = judge_control(held), _tell_of(connection, keys, held if with_documents else ())
    assert told.identities == expected.identities
    assert not with_documents or told.documents == expected.documents
    for author in keys:
        assert told.owners.get(author, identity_of(author)) == expected.owners.get(author, identity_of(author))
    assert _ends_in(connection, keys) == {
        key: {end.log_id: end.last for end in ends} for key, ends in expected.ends.items()
    }
    return expected


def _tell_of(connection: Connection, keys: Collection[PublicKey], held: Collection[HeldEntry]) -> ReferenceControl:
    told = ReferenceControl()
    for author in keys:
        control = find_control(connection, author)
        if control is not None:
            told.identities[control.identity] = _identity(control)
    told.owners = identities_of(connection, keys)
    for item in held:
        state = find_document_state(connection, item.signed.hash) if item.signed.entry.log_id == 0 else None
        if state is not None:
            told.documents[item.signed.hash] = state.value
    return told


def _identity(control: Control) -> ReferenceIdentity:
    keys = {author: state.value for author, state in control.keys.items()}
    return ReferenceIdentity(control.current.hash, keys, None if control.state is None else control.state.value)


def _ends_in(connection: Connection, keys: Collection[PublicKey]) -> dict[PublicKey, dict[int, int]]:
    found = {author: find_key_status(connection, author) for author in keys}
    return {author: status.ends for author, status in found.items() if status is not None and status.ends is not None}

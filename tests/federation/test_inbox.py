"""What becomes of a parcel of somebody who contradicts themselves."""

from inkgrove.core.certificate import certificate_pool
from inkgrove.core.keys import IdentityId, identity_of
from inkgrove.federation.inbox import receive_parcel
from inkgrove.federation.rules import Fate
from inkgrove.messages.delivery import Parcel
from inkgrove.messages.ids import SchemaVersion
from inkgrove.messages.instance import Create
from inkgrove.messages.message import encode_message
from inkgrove.node.identities import create_identity
from inkgrove.node.node import Node
from inkgrove.store.publishing import shares_of
from inkgrove.store.relations import put_state
from tests.support.logs import LogBuilder, key

SCHEMA = SchemaVersion(key(7).public, 1, 2)
JANE = identity_of(key(1).public)


def parcel(log: LogBuilder, seq_num: int, to: IdentityId) -> Parcel:
    entries = [
        (log.entry(n).encoded, log.payloads[n - 1] if n == seq_num else None)
        for n in certificate_pool(seq_num, len(log.entries))
    ]
    return Parcel(log.hash(seq_num), (to,), entries)


def test_fork_is_kept_as_evidence_and_nobody_gets_the_second_branch(node: Node) -> None:
    john = create_identity(node, "john.haiku.ink", None).id
    node.database.write(lambda c: put_state(c, john, JANE, "accepted", 0))
    log = LogBuilder()
    log.append(encode_message(Create(SCHEMA, {"subject": "one"})))
    log.append(encode_message(Create(SCHEMA, {"subject": "two"})))
    other = LogBuilder()
    other.entries, other.payloads = log.entries[:1], log.payloads[:1]
    other.append(encode_message(Create(SCHEMA, {"subject": "another two"})))

    (receipt,) = receive_parcel(node, JANE, parcel(log, 2, john))
    assert receipt.fate is Fate.ACCEPTED
    (receipt,) = receive_parcel(node, JANE, parcel(other, 2, john))
    assert (receipt.fate, receipt.code) == (Fate.REFUSED, "log.forked")
    assert node.database.read(lambda c: shares_of(c, other.hash(2))) == []
    evidence = node.store.entry(other.hash(2))
    assert evidence is not None
    assert evidence.payload is None
    assert node.store.fork_proof(key(1).public, 1) is not None

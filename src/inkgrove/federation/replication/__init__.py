"""Replication: copying the offered logs of peers, whole or in parts (docs/protocol.md section 8).

`sync` asks peers and the nodes of schema authors for what is lacking here, `client` puts the questions, `intake`
verifies and stores the answers, `server` answers the questions of others, `recovery` fetches our own entries back
after a restore, and `arrivals` goes on with identities that come here from elsewhere. Entries come in only verified;
what goes out is what the public index offers.
"""

from inkgrove.federation.replication.arrivals import ArrivalWorker
from inkgrove.federation.replication.client import fetch_entries, in_questions
from inkgrove.federation.replication.helped import find_offer
from inkgrove.federation.replication.intake import (
    ArchiveImporter,
    BulkIntake,
    ImportedArchive,
    IntakeCounts,
    check_response,
)
from inkgrove.federation.replication.recovery import NO_NAME, Recovery, RecoveryLimits
from inkgrove.federation.replication.server import (
    ENTRIES_PATH,
    FORK_PROOFS_PATH,
    HEIGHTS_PATH,
    OWN_ENTRIES_PATH,
    OWN_HEIGHTS_PATH,
    OWN_RELATIONS_PATH,
    OWN_SHARES_PATH,
    answer_entries,
    answer_heights,
    answer_own_entries,
    answer_own_heights,
    answer_own_relations,
    answer_own_shares,
    catch_up,
    take_fork_proof,
)
from inkgrove.federation.replication.sync import BULK, Replicator, SyncResult, pick_next_schemas, sync_with

__all__ = [
    "BULK",
    "ENTRIES_PATH",
    "FORK_PROOFS_PATH",
    "HEIGHTS_PATH",
    "NO_NAME",
    "OWN_ENTRIES_PATH",
    "OWN_HEIGHTS_PATH",
    "OWN_RELATIONS_PATH",
    "OWN_SHARES_PATH",
    "ArchiveImporter",
    "ArrivalWorker",
    "BulkIntake",
    "ImportedArchive",
    "IntakeCounts",
    "Recovery",
    "RecoveryLimits",
    "Replicator",
    "SyncResult",
    "answer_entries",
    "answer_heights",
    "answer_own_entries",
    "answer_own_heights",
    "answer_own_relations",
    "answer_own_shares",
    "catch_up",
    "check_response",
    "fetch_entries",
    "find_offer",
    "in_questions",
    "pick_next_schemas",
    "sync_with",
    "take_fork_proof",
]

"""The routes of the API, a module for each group: what they take, what they answer, how they can be refused.

A handler's signature declares its parameters; they are read, checked and documented from that alone. A handler calls
one use case of `inkgrove.node` or `inkgrove.federation` and makes JSON of what it returns. What several groups share:
`models` (bodies, answers, parameters) and `publishing` (handing work to the writer).
"""

from inkgrove.api.routes import (
    account,
    arrivals,
    blobs,
    changes,
    entries,
    exports,
    federation,
    identities,
    instance_reads,
    instance_writes,
    moves,
    operation,
    relations,
    request_box,
    rot,
    schemas,
    views,
)
from inkgrove.api.routes.changes import ViewWatch
from inkgrove.api.routes.relations import FollowerBody, FollowingBody
from inkgrove.api.routes.request_box import named_instance, sender_of, show_request, show_requests

ROUTERS = (
    identities.router,
    account.router,
    arrivals.router,
    relations.router,
    schemas.router,
    instance_writes.router,
    instance_writes.sharing_router,
    request_box.router,
    federation.router,
    entries.router,
    views.router,
    changes.router,
    instance_reads.router,
    blobs.router,
    exports.router,
    moves.router,
    rot.router,
    operation.router,
)

__all__ = [
    "ROUTERS",
    "FollowerBody",
    "FollowingBody",
    "ViewWatch",
    "named_instance",
    "relations",
    "sender_of",
    "show_request",
    "show_requests",
]

"""HTTP for a node, whatever the routes are: what happens to a request before and after its handler.

In the order of a request: `serving` accepts connections within the limits of `connections`; `telemetry`, `middleware`
and `bodies` log it, bound it and read its body; `dispatch` finds its route and `auth` who sends it. Answers come from
`answers` or, if it is refused, from `problems`. `openapi` documents the routes; `limits` has thread pools and budgets.
"""

from inkgrove.api.http.answers import (
    MOST_OF_NETWORK,
    MOST_WAITING,
    MOST_WAITING_OF_NETWORK,
    THREADS,
    LargeAnswers,
    make_large,
)
from inkgrove.api.http.auth import (
    AddressDependency,
    HostDependency,
    NodeDependency,
    check_origin,
    cookie_name,
    cookie_of,
    get_caller,
    get_node,
    is_https,
)
from inkgrove.api.http.bodies import BodyLimits
from inkgrove.api.http.connections import StallTimer, TrustedProxies
from inkgrove.api.http.formats import FEW_VALUES, MAX_DEPTH, MAX_DIGITS, MAX_MEMBERS, FormDependency, parse_json
from inkgrove.api.http.limits import LEAST_RATE, PASSWORDS, BoundedThreadPool, FairThreadPool, PoolLimits
from inkgrove.api.http.problems import (
    MEDIA_TYPE,
    RequestProblem,
    note_internal,
    on_http_error,
    problem_facts,
    status_of,
)
from inkgrove.api.http.serving import make_config, open_app, serve, tune_garbage_collection
from inkgrove.api.http.telemetry import configure_logs

__all__ = [
    "FEW_VALUES",
    "LEAST_RATE",
    "MAX_DEPTH",
    "MAX_DIGITS",
    "MAX_MEMBERS",
    "MEDIA_TYPE",
    "MOST_OF_NETWORK",
    "MOST_WAITING",
    "MOST_WAITING_OF_NETWORK",
    "PASSWORDS",
    "THREADS",
    "AddressDependency",
    "BodyLimits",
    "BoundedThreadPool",
    "FairThreadPool",
    "FormDependency",
    "HostDependency",
    "LargeAnswers",
    "NodeDependency",
    "PoolLimits",
    "RequestProblem",
    "StallTimer",
    "TrustedProxies",
    "check_origin",
    "configure_logs",
    "cookie_name",
    "cookie_of",
    "get_caller",
    "get_node",
    "is_https",
    "make_config",
    "make_large",
    "note_internal",
    "on_http_error",
    "open_app",
    "parse_json",
    "problem_facts",
    "serve",
    "status_of",
    "tune_garbage_collection",
]

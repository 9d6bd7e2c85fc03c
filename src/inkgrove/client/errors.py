"""What a client can meet: no node, a node that refuses, an authorisation that came to nothing.

    InkgroveError
    └── ClientError          client.*
        ├── Unreachable      no answer
        ├── NotANode         an answer of something else
        ├── NotAuthorised    the way through the browser failed
        ├── ExportFailed     an export that came to nothing
        └── Refused          the node said no; `code` is the node's own
            ├── NotSignedIn  sign in, or authorise again
            ├── NotAllowed   somebody else may
            ├── NotFound     it is not there, or may not be seen
            ├── Conflict     it is otherwise than the request assumes
            ├── Invalid      the request is wrong
            └── TryLater     wait `retry_after` seconds

Catch the class for what to do next, look at `code` for the reason (docs/errors.md).
"""

from collections.abc import Mapping
from typing import Any, Final

from inkgrove.core.errors import ErrorCode, InkgroveError, SingleCode


class ClientError(InkgroveError):
    """What a client of a node can meet."""

    codes = (
        ErrorCode("client.unreachable", 422, "The node cannot be reached: check its address, and that it runs."),
        ErrorCode("client.not-a-node", 422, "What answers at this address does not speak as a node does."),
        ErrorCode(
            "client.not-authorised",
            422,
            "The identity did not agree, or the browser did not come back in time, or with something else.",
        ),
        ErrorCode(
            "client.export-failed",
            422,
            "The node could not write the file of an export, or what was downloaded has another digest.",
            "Ask for another export; if it fails again, ask the operator whether the disk is full.",
        ),
        ErrorCode(
            "client.arrival-failed",
            504,
            "An identity did not come to its new node in the time that was given.",
            "Begin again: it goes on where it was. The message says what it waits for.",
        ),
        ErrorCode("client.refused", 422, "The node refused; the `code` of the error is the one that the node gave."),
    )


class Unreachable(SingleCode, ClientError):
    code = "client.unreachable"


class NotANode(SingleCode, ClientError):
    code = "client.not-a-node"


class NotAuthorised(SingleCode, ClientError):
    code = "client.not-authorised"


class ExportFailed(SingleCode, ClientError):
    code = "client.export-failed"


class ArrivalFailed(SingleCode, ClientError):
    code = "client.arrival-failed"


class Refused(ClientError):
    """The node refused; the `code` of the error is the one that the node gave."""

    def __init__(self, code: str, message: str, status: int, data: Mapping[str, Any]) -> None:
        super().__init__(code, message, **data)
        self.status = status


class NotSignedIn(Refused):
    """There is no token, or it has expired or was revoked, or the password is wrong: sign in or authorise again."""


class NotAllowed(Refused):
    """Somebody else may do this: the owner, the administrator, or a service with another scope."""


class NotFound(Refused):
    """It is not there, or may not be seen."""


class Conflict(Refused):
    """Something is otherwise than the request assumes; `data` tells how, such as `next` or the candidates."""


class Invalid(Refused):
    """The request is wrong and will be tomorrow."""


class TryLater(Refused):
    """The node cannot do it now; `retry_after` is how many seconds to wait, if it said so."""

    @property
    def retry_after(self) -> int | None:
        """Seconds to wait."""
        seconds = self.data.get("retry_after")
        return seconds if isinstance(seconds, int) else None


_BY_CODE: Final[Mapping[str, type[Refused]]] = {
    "auth.required": NotSignedIn,
    "auth.bad-token": NotSignedIn,
    "auth.bad-password": NotSignedIn,
    "oauth.invalid-grant": NotSignedIn,
    "oauth.access-denied": NotAllowed,
    "view.behind": TryLater,
    "view.too-many-listeners": TryLater,
    "publish.closing": TryLater,
    "store.unavailable": TryLater,
    "auth.too-many-attempts": TryLater,
}
_BY_STATUS: Final[Mapping[int, type[Refused]]] = {
    401: NotSignedIn,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: TryLater,
    502: TryLater,
    503: TryLater,
    504: TryLater,
}


def refusal(status: int, problem: Mapping[str, Any]) -> Refused:
    """The error that problem details (RFC 9457) stand for."""
    code = str(problem.get("code", "client.refused"))
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (Invalid if status < 500 else Refused)
    message = str(problem.get("detail") or problem.get("title") or f"the node answered {status}")
    data = {key: value for key, value in problem.items() if key not in _OWN}
    return kind(code, message, status, data)


_OWN: Final = frozenset({"type", "title", "status", "code", "detail", "message", "error", "error_description"})

"""The methods of both clients: each flow becomes a method that blocks, or one that is awaited."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from inkgrove.client import account, arrivals, exports, identities, moves, publishing, reading, signing
from inkgrove.client import relations as relating
from inkgrove.client.connection import SECONDS, Credentials, Flow
from inkgrove.client.models import Tokens

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(ABC):
    """A client that runs a flow and waits for its result."""

    @abstractmethod
    def run(self, flow: Flow[T]) -> T:
        """Send each request of a flow and return its result."""


class Awaiting(ABC):
    """A client whose runs of a flow are awaited."""

    @abstractmethod
    async def run(self, flow: Flow[T]) -> T:
        """Send each request of a flow and return its result."""


class Operation(Generic[P, T]):
    """A flow as a method: of a blocking client it returns the result, of the other an awaitable."""

    def __init__(self, flow: Callable[P, Flow[T]]) -> None:
        self._flow = flow
        self.__doc__ = flow.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Self: ...
    @overload
    def __get__(self, client: Blocking, kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, kind: type) -> Callable[P, Awaitable[T]]: ...

    def __get__(self, client: Blocking | Awaiting | None, kind: type) -> Any:
        if client is None:
            return self

        @wraps(self._flow)
        def call(*arguments: P.args, **options: P.kwargs) -> Any:
            return client.run(self._flow(*arguments, **options))

        return call


class Operations:
    """The state and the methods that both clients have in common."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tokens: Tokens | None = None,
        keep: Callable[[Tokens], None] | None = None,
        timeout: float = SECONDS,
    ) -> None:
        """`url` is the address of the node.

        `token` is that of a sign-in, `tokens` are those of a service; `keep` is called with each new `Tokens`.
        """
        self.url = url.rstrip("/")
        self._credentials = Credentials(token, tokens, keep)
        self._connect(timeout)

    def _connect(self, timeout: float) -> None:
        """Make the connections, which are opened when they are needed."""
        raise NotImplementedError

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of a service, to be kept for the next time."""
        return self._credentials.tokens

    create_identity = Operation(identities.create_identity)
    adopt_identity = Operation(identities.adopt_identity)
    sign_up = Operation(identities.sign_up)
    recover = Operation(identities.recover)
    replace_controller = Operation(identities.replace_controller)
    show_words = Operation(identities.show_words)
    confirm_words = Operation(identities.confirm_words)
    identity = Operation(identities.identity)
    me = Operation(identities.me)
    change_me = Operation(identities.change_me)
    sign_out = Operation(identities.sign_out)
    add_key = Operation(identities.add_key)
    revoke_key = Operation(identities.revoke_key)
    change_password = Operation(account.change_password)
    sessions = Operation(account.sessions)
    end_session = Operation(account.end_session)
    end_other_sessions = Operation(account.end_other_sessions)
    devices = Operation(account.devices)
    label_key = Operation(account.label_key)
    usage = Operation(account.usage)
    services = Operation(account.services)
    end_service = Operation(account.end_service)
    close_account = Operation(account.close_account)
    closing = Operation(account.closing)
    endpoint_for = Operation(moves.endpoint_for)
    begin_move = Operation(moves.begin_move)
    move_state = Operation(moves.move_state)
    cancel_move = Operation(moves.cancel_move)
    take_over = Operation(moves.take_over)
    arrival_state = Operation(arrivals.arrival_state)
    start_export = Operation(exports.start_export)
    export_state = Operation(exports.export_state)
    remove_export = Operation(exports.remove_export)
    follow = Operation(relating.follow)
    unfollow = Operation(relating.unfollow)
    answer_follower = Operation(relating.answer_follower)
    relations = Operation(relating.relations)

    requests = Operation(relating.requests)
    request_content = Operation(relating.request_content)
    accept_request = Operation(relating.accept_request)
    refuse_request = Operation(relating.refuse_request)
    accept_sender = Operation(relating.accept_sender)
    drop_sender = Operation(relating.drop_sender)
    senders = Operation(relating.senders)

    create_schema = Operation(publishing.create_schema)
    migrate = Operation(publishing.migrate)
    revert = Operation(publishing.revert)
    schema = Operation(publishing.schema)
    materialise = Operation(publishing.materialise)
    dematerialise = Operation(publishing.dematerialise)

    create = Operation(publishing.create)
    update = Operation(publishing.update)
    patch = Operation(publishing.patch)
    set_access = Operation(publishing.set_access)
    replace = Operation(publishing.replace)
    delete = Operation(publishing.delete)
    copy = Operation(publishing.copy)
    share = Operation(publishing.share)
    pass_on = Operation(publishing.pass_on)
    deliveries = Operation(publishing.deliveries)
    upload = Operation(publishing.upload)
    download = Operation(publishing.download)
    publish = Operation(signing.publish)
    send_entry = Operation(signing.send_entry)

    views = Operation(reading.views)
    instance = Operation(reading.instance)
    history = Operation(reading.history)
    proof = Operation(reading.proof)
    verify = Operation(reading.verify)

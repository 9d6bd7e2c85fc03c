"""Everything a client can do, once for both kinds: each flow becomes a method that blocks or one that is awaited."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from inkgrove.client import identities, publishing, reading, signing
from inkgrove.client import requests as box
from inkgrove.client.exchange import Flow

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(ABC):
    """Runs a flow and waits for it."""

    @abstractmethod
    def run(self, flow: Flow[T]) -> T:
        """Send what the flow asks for until it has its result."""


class Awaiting(ABC):
    """Runs a flow that is awaited."""

    @abstractmethod
    async def run(self, flow: Flow[T]) -> T:
        """Send what the flow asks for until it has its result."""


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
    """What both clients offer."""

    create_identity = Operation(identities.create_identity)
    adopt_identity = Operation(identities.adopt_identity)
    identity = Operation(identities.identity)
    me = Operation(identities.me)
    change_me = Operation(identities.change_me)
    sign_out = Operation(identities.sign_out)
    add_key = Operation(identities.add_key)
    revoke_key = Operation(identities.revoke_key)
    follow = Operation(identities.follow)
    unfollow = Operation(identities.unfollow)
    answer_follower = Operation(identities.answer_follower)
    relations = Operation(identities.relations)

    requests = Operation(box.requests)
    request_content = Operation(box.request_content)
    accept_request = Operation(box.accept_request)
    refuse_request = Operation(box.refuse_request)
    accept_sender = Operation(box.accept_sender)
    drop_sender = Operation(box.drop_sender)
    senders = Operation(box.senders)

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

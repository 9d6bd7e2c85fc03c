"""The client that blocks; `async_client.py` has the one that is awaited."""

import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx

from inkgrove.client import identities, services
from inkgrove.client.arrow import to_arrow
from inkgrove.client.connection import (
    FIRST_WAIT,
    LONGEST_WAIT,
    SECONDS,
    Credentials,
    no_answer,
    options_of,
    read_answer,
)
from inkgrove.client.errors import TryLater, Unreachable
from inkgrove.client.events import ChangeReader, LineSplitter
from inkgrove.client.exchange import Answer, Flow, Request, check
from inkgrove.client.loopback import Loopback
from inkgrove.client.models import Change, Outcome, Page, Row, SchemaField, Tokens
from inkgrove.client.operations import Blocking, Operations
from inkgrove.client.reading import Asked, Question, outcomes, page, views

T = TypeVar("T")


class Client(Operations, Blocking):
    """Speaks to one node, as nobody, as an identity or as a service; close it, or use it in `with`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tokens: Tokens | None = None,
        keep: Callable[[Tokens], None] | None = None,
        timeout: float = SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        self._credentials = Credentials(token, tokens, keep)
        self._refreshing = threading.Lock()
        self._http = httpx.Client(base_url=self.url, timeout=timeout)

    @classmethod
    def sign_in(cls, url: str, fqdn: str, password: str) -> Self:
        """A client of the identity itself, which may do everything of its own."""
        client = cls(url)
        try:
            client._credentials.token = client.run(identities.open_session(fqdn, password))
        except BaseException:
            client.close()
            raise
        return client

    @classmethod
    def authorise(
        cls,
        url: str,
        scopes: Sequence[str],
        *,
        service: str,
        hint: str | None = None,
        open_page: Callable[[str], object] = webbrowser.open,
        keep: Callable[[Tokens], None] | None = None,
        timeout: float = 300,
    ) -> Self:
        """A client of a service: the identity agrees in its browser (OAuth with PKCE, back to a port here)."""
        client = cls(url, keep=keep)
        try:
            with Loopback() as loopback:
                attempt = client.run(services.begin(service, loopback.redirect_uri, scopes, hint))
                open_page(client.url + attempt.address)
                returned = loopback.wait(timeout)
            client._credentials.renew(client.run(services.finish(attempt, returned)))
        except BaseException:
            client.close()
            raise
        return client

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of a service, to be kept for the next time."""
        return self._credentials.tokens

    def give_back(self) -> None:
        """End the access that the identity granted to this service."""
        if self._credentials.tokens is not None:
            self.run(services.give_back(self._credentials.tokens))

    def view(self, name: str) -> "View":
        """A view, by name or AUTHOR/LOG."""
        return View(self, name)

    def run(self, flow: Flow[T]) -> T:
        """Send what a flow asks for until it has its result."""
        try:
            request = next(flow)
            while True:
                request = flow.send(self._answer(request))
        except StopIteration as end:
            result: T = end.value
            return result

    def _answer(self, request: Request) -> Answer:
        tokens = self._credentials.tokens
        answer = self._send(request)
        if self._credentials.is_stale(answer.status, request):
            self._refresh(tokens)
            answer = self._send(request)
        return answer

    def _refresh(self, used: Tokens | None) -> None:
        with self._refreshing:  # a refresh token is good for one use
            if used is not None and self._credentials.tokens is used:
                self._credentials.renew(self.run(services.refresh(used)))

    def _send(self, request: Request) -> Answer:
        try:
            return read_answer(self._http.request(**options_of(request, self._credentials)))
        except httpx.TransportError as err:
            raise no_answer(self.url, err) from err

    def stream(self, request: Request) -> Iterator[bytes]:
        """What an endless answer brings, piece by piece."""
        tokens = self._credentials.tokens
        try:
            with self._http.stream(**options_of(request, self._credentials)) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    if self._credentials.is_stale(answer.status_code, request):
                        self._refresh(tokens)
                        return  # whoever follows asks again
                    check(read_answer(answer))
                yield from answer.iter_bytes()
        except httpx.TransportError as err:
            raise no_answer(self.url, err) from err

    def close(self) -> None:
        """Let go of connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()


class View:
    """A view of the node: iterate over its rows, follow its changes, take it as a table."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def page(self, *, cursor: str | None = None, count: bool = False, **asked: Unpack[Asked]) -> Page:
        """One page of rows."""
        return self._client.run(page(self.name, Question(**asked), cursor, count=count))

    def rows(self, **asked: Unpack[Asked]) -> Iterator[Row]:
        """All rows that match and may be seen, page by page."""
        for part in self._pages(Question(**asked)):
            yield from part.rows

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def _pages(self, question: Question) -> Iterator[Page]:
        part = self._client.run(page(self.name, question))
        yield part
        while part.cursor is not None:
            part = self._client.run(page(self.name, question, part.cursor))
            yield part

    def outcomes(
        self, only: Literal["applied", "pending", "quarantined", "obsolete"] | None = None
    ) -> Iterator[Outcome]:
        """What became of messages, page by page."""
        cursor: str | None = None
        while True:
            found, cursor = self._client.run(outcomes(self.name, only, cursor))
            yield from found
            if cursor is None:
                return

    def changes(self, after: str | None = None) -> Iterator[Change]:
        """Changes as they happen, from now on or from behind a page's `changes`; reconnects by itself, endlessly."""
        reader, wait, was_there = ChangeReader(after), FIRST_WAIT, False
        while True:
            lines = LineSplitter()
            try:
                for piece in self._client.stream(reader.request(self.name)):
                    wait, was_there = FIRST_WAIT, True
                    for line in lines.feed(piece):
                        yield from reader.feed(line)
            except (Unreachable, TryLater):
                if not was_there:
                    raise
            reader.restart()
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    def to_arrow(self, **asked: Unpack[Asked]) -> Any:
        """All rows as a `pyarrow.Table`, typed as the schema says."""
        question = replace(Question(**asked), page_size=1000)
        found = list(self._pages(question))
        return to_arrow((row for part in found for row in part.rows), self._fields(found[0], question))

    def to_pandas(self, **asked: Unpack[Asked]) -> Any:
        """All rows as a `pandas.DataFrame`."""
        return self.to_arrow(**asked).to_pandas()

    def to_spark(self, spark: Any, **asked: Unpack[Asked]) -> Any:
        """All rows as a DataFrame of a Spark session."""
        return spark.createDataFrame(self.to_arrow(**asked))

    def _fields(self, part: Page, question: Question) -> Sequence[SchemaField]:
        return fields_of(self._client.run(views()), part, question)


def fields_of(known: Sequence[Any], part: Page, question: Question) -> Sequence[SchemaField]:
    """The fields that a page shows, with their types."""
    fields = next(view.fields for view in known if view.schema == part.schema)
    wanted = None if question.fields is None else {*question.fields, *question.expand}
    return [field for field in fields if wanted is None or field.name in wanted]

"""The client that is awaited; what it can do is the same as in `client.py`."""

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack

import httpx

from inkgrove.client import identities, services
from inkgrove.client.arrow import to_arrow
from inkgrove.client.client import fields_of
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
from inkgrove.client.models import Change, Outcome, Page, Row, Tokens
from inkgrove.client.operations import Awaiting, Operations
from inkgrove.client.reading import Asked, Question, outcomes, page, views

T = TypeVar("T")


class AsyncClient(Operations, Awaiting):
    """Speaks to one node, as nobody, as an identity or as a service; close it, or use it in `async with`."""

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
        self._refreshing = asyncio.Lock()
        self._http = httpx.AsyncClient(base_url=self.url, timeout=timeout)

    @classmethod
    async def sign_in(cls, url: str, fqdn: str, password: str) -> Self:
        """A client of the identity itself, which may do everything of its own."""
        client = cls(url)
        try:
            client._credentials.token = await client.run(identities.open_session(fqdn, password))
        except BaseException:
            await client.close()
            raise
        return client

    @classmethod
    async def authorise(
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
                attempt = await client.run(services.begin(service, loopback.redirect_uri, scopes, hint))
                await asyncio.to_thread(open_page, client.url + attempt.address)
                returned = await asyncio.to_thread(loopback.wait, timeout)
            client._credentials.renew(await client.run(services.finish(attempt, returned)))
        except BaseException:
            await client.close()
            raise
        return client

    @property
    def tokens(self) -> Tokens | None:
        """The tokens of a service, to be kept for the next time."""
        return self._credentials.tokens

    async def give_back(self) -> None:
        """End the access that the identity granted to this service."""
        if self._credentials.tokens is not None:
            await self.run(services.give_back(self._credentials.tokens))

    def view(self, name: str) -> "AsyncView":
        """A view, by name or AUTHOR/LOG."""
        return AsyncView(self, name)

    async def run(self, flow: Flow[T]) -> T:
        """Send what a flow asks for until it has its result."""
        try:
            request = next(flow)
            while True:
                request = flow.send(await self._answer(request))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _answer(self, request: Request) -> Answer:
        tokens = self._credentials.tokens
        answer = await self._send(request)
        if self._credentials.is_stale(answer.status, request):
            await self._refresh(tokens)
            answer = await self._send(request)
        return answer

    async def _refresh(self, used: Tokens | None) -> None:
        async with self._refreshing:  # a refresh token is good for one use
            if used is not None and self._credentials.tokens is used:
                self._credentials.renew(await self.run(services.refresh(used)))

    async def _send(self, request: Request) -> Answer:
        try:
            return read_answer(await self._http.request(**options_of(request, self._credentials)))
        except httpx.TransportError as err:
            raise no_answer(self.url, err) from err

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        """What an endless answer brings, piece by piece."""
        tokens = self._credentials.tokens
        try:
            async with self._http.stream(**options_of(request, self._credentials)) as answer:
                if answer.status_code >= 400:
                    await answer.aread()
                    if self._credentials.is_stale(answer.status_code, request):
                        await self._refresh(tokens)
                        return  # whoever follows asks again
                    check(read_answer(answer))
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx.TransportError as err:
            raise no_answer(self.url, err) from err

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        await self.close()


class AsyncView:
    """A view of the node: iterate over its rows, follow its changes, take it as a table."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    async def page(self, *, cursor: str | None = None, count: bool = False, **asked: Unpack[Asked]) -> Page:
        """One page of rows."""
        return await self._client.run(page(self.name, Question(**asked), cursor, count=count))

    async def rows(self, **asked: Unpack[Asked]) -> AsyncIterator[Row]:
        """All rows that match and may be seen, page by page."""
        async for part in self._pages(Question(**asked)):
            for row in part.rows:
                yield row

    def __aiter__(self) -> AsyncIterator[Row]:
        return self.rows()

    async def _pages(self, question: Question) -> AsyncIterator[Page]:
        part = await self._client.run(page(self.name, question))
        yield part
        while part.cursor is not None:
            part = await self._client.run(page(self.name, question, part.cursor))
            yield part

    async def outcomes(
        self, only: Literal["applied", "pending", "quarantined", "obsolete"] | None = None
    ) -> AsyncIterator[Outcome]:
        """What became of messages, page by page."""
        cursor: str | None = None
        while True:
            found, cursor = await self._client.run(outcomes(self.name, only, cursor))
            for item in found:
                yield item
            if cursor is None:
                return

    async def changes(self, after: str | None = None) -> AsyncIterator[Change]:
        """Changes as they happen, from now on or from behind a page's `changes`; reconnects by itself, endlessly."""
        reader, wait, was_there = ChangeReader(after), FIRST_WAIT, False
        while True:
            lines = LineSplitter()
            try:
                async for piece in self._client.stream(reader.request(self.name)):
                    wait, was_there = FIRST_WAIT, True
                    for line in lines.feed(piece):
                        for change in reader.feed(line):
                            yield change
            except (Unreachable, TryLater):
                if not was_there:
                    raise
            reader.restart()
            await asyncio.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)

    async def to_arrow(self, **asked: Unpack[Asked]) -> Any:
        """All rows as a `pyarrow.Table`, typed as the schema says."""
        question = replace(Question(**asked), page_size=1000)
        found = [part async for part in self._pages(question)]
        fields = fields_of(await self._client.run(views()), found[0], question)
        return to_arrow((row for part in found for row in part.rows), fields)

    async def to_pandas(self, **asked: Unpack[Asked]) -> Any:
        """All rows as a `pandas.DataFrame`."""
        return (await self.to_arrow(**asked)).to_pandas()

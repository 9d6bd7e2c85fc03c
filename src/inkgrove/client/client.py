"""The client whose methods block; `async_client.py` has the one whose methods are awaited."""

import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from inkgrove.client import arrivals, authorisation, exports, identities
from inkgrove.client.connection import (
    FIRST_WAIT,
    LONGEST_WAIT,
    Flow,
    HttpRequest,
    HttpResponse,
    check,
    options_of,
    read_response,
    unreachable,
)
from inkgrove.client.errors import Conflict, NotFound, TryLater, Unreachable
from inkgrove.client.events import ChangeReader, LineSplitter
from inkgrove.client.models import Arrival, Change, Export, Identity, MessageOutcome, Page, Row, Tokens
from inkgrove.client.operations import Blocking, Operations
from inkgrove.client.reading import OutcomeName, ViewOptions, ViewQuery, fields_of, outcomes, page, views
from inkgrove.client.values import to_arrow

T = TypeVar("T")


class Client(Operations, Blocking):
    """Speaks to one node, without signing in, as an identity or as a service; close it, or use it in `with`."""

    def _connect(self, timeout: float) -> None:
        self._refreshing = threading.Lock()
        self._http = httpx.Client(base_url=self.url, timeout=timeout)

    @classmethod
    def sign_in(cls, url: str, fqdn: str, password: str, *, label: str | None = None) -> Self:
        """Sign in with a password: return a client that may do everything the identity may; raises `NotSignedIn`.

        `label` is what the identity sees in the list of its sign-ins.
        """
        client = cls(url)
        try:
            client._credentials.token = client.run(identities.open_session(fqdn, password, label))
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
        """Return a client of a service, after the identity has agreed in its browser (OAuth with PKCE).

        `open_page` is given the address to open. Raises `NotAuthorised` if they do not agree in `timeout` seconds.
        """
        client = cls(url, keep=keep)
        try:
            with authorisation.Loopback() as loopback:
                attempt = client.run(authorisation.begin(service, loopback.redirect_uri, scopes, hint))
                open_page(client.url + attempt.address)
                returned = loopback.wait(timeout)
            client._credentials.renew(client.run(authorisation.finish(attempt, returned)))
        except BaseException:
            client.close()
            raise
        return client

    def give_back(self) -> None:
        """End the access that the identity granted to this service."""
        if self._credentials.tokens is not None:
            self.run(authorisation.give_back(self._credentials.tokens))

    def export_me(self, target: Path | str, *, passphrase: str | None = None) -> Export:
        """Have everything that the caller has here written into a file, wait for it, and download it to `target`.

        A download that was cut off goes on when this is called again. `passphrase`: see `start_export`. Raises
        `FileExistsError` if there is such a file, and `ExportFailed`.
        """
        download = exports.ExportDownload(Path(target))
        export = self._begun_export(download) or self.start_export(passphrase)
        while export.state in ("waiting", "running"):
            time.sleep(exports.LOOK_SECONDS)
            export = self.export_state(export.id)
        exports.require_success(export)
        while (size := download.size(export)) < (export.size or 0):
            download.append(export, self.run(exports.export_part(export, size)))
        download.finish(export)
        return export

    def _begun_export(self, download: exports.ExportDownload) -> Export | None:
        begun = download.find_begun()
        if begun is None:
            return None
        try:
            return self.export_state(begun)
        except NotFound:
            download.forget(begun)
            return None

    def bring_identity(
        self,
        fqdn: str,
        password: str,
        words: str,
        *,
        file: Path | str | None = None,
        friends: Sequence[str] = (),
        hostile: bool = False,
        older: bool = False,
        old_name: str | None = None,
        timeout: float = 600,
        on_progress: Callable[[Arrival], None] = lambda _arrival: None,
    ) -> Identity:
        """Take an identity to this node, whose old one is dead or hostile, with its words; it gets the name `fqdn`.

        `file` is the file of the person. Without one the nodes of `friends` are asked for what they hold. `hostile`
        ends the old controller. `older`: this node may hold newer entries than the file. `old_name` is the one that the
        identity has had so far, to be sure of whose words these are. Called again after an interruption it goes on.
        Raises `KeysError` for wrong words, `PersonFileError`, `ArrivalFailed`, or `Refused`.
        """
        facts = None if file is None else arrivals.read_file_facts(Path(file))
        begin = arrivals.begin_arrival(fqdn, password, words, file=facts, older=older, friends=friends)
        arrival = self.run(begin)
        until = time.monotonic() + timeout
        while not arrivals.is_over(arrival):
            on_progress(arrival)
            if facts is not None and arrival.state in ("asked", "fetching"):
                part = arrivals.read_part(facts, arrival.received)
                arrival, until = self.run(arrivals.send_part(arrival, part)), time.monotonic() + timeout
                continue
            if time.monotonic() > until:
                raise arrivals.too_long(arrival)
            time.sleep(arrivals.LOOK_SECONDS)
            arrival = self.run(arrivals.arrival_state(arrival))
        on_progress(arrival)
        arrivals.check_name(arrival, old_name)
        identity = self._commit_arrival(arrival, words, hostile=hostile)
        while not arrival.is_finished and time.monotonic() < until:
            time.sleep(arrivals.LOOK_SECONDS)
            arrival = self.run(arrivals.arrival_state(arrival))
            on_progress(arrival)
        return identity

    def _commit_arrival(self, arrival: Arrival, words: str, *, hostile: bool) -> Identity:
        for _ in range(arrivals.TRIES):
            signed = arrivals.sign_arrival(arrival, words, hostile=hostile)
            try:
                return self.run(arrivals.commit_arrival(signed))
            except Conflict as error:  # something has come to log 0 meanwhile: that place was not taken
                if error.code != "log.stale":
                    raise
                arrival = self.run(arrivals.arrival_state(arrival))
        raise arrivals.too_long(arrival)

    def view(self, name: str) -> "View":
        """Return a view, by name or AUTHOR/LOG; nothing is asked of the node yet."""
        return View(self, name)

    def run(self, flow: Flow[T]) -> T:
        """Send each request of a flow and return its result."""
        try:
            request = next(flow)
            while True:
                request = flow.send(self._response(request))
        except StopIteration as end:
            result: T = end.value
            return result

    def _response(self, request: HttpRequest) -> HttpResponse:
        tokens = self._credentials.tokens
        response = self._send(request)
        if self._credentials.is_stale(response.status, request):
            self._refresh(tokens)
            response = self._send(request)
        return response

    def _refresh(self, used: Tokens | None) -> None:
        with self._refreshing:  # a refresh token is good for one use
            if used is not None and self._credentials.tokens is used:
                self._credentials.renew(self.run(authorisation.refresh(used)))

    def _send(self, request: HttpRequest) -> HttpResponse:
        try:
            return read_response(self._http.request(**options_of(request, self._credentials)))
        except httpx.TransportError as err:
            raise unreachable(self.url, err) from err

    def stream(self, request: HttpRequest) -> Iterator[bytes]:
        """Yield the pieces of an endless response; ends at once if the access token had to be refreshed."""
        tokens = self._credentials.tokens
        try:
            with self._http.stream(**options_of(request, self._credentials)) as response:
                if response.status_code >= 400:
                    response.read()
                    if self._credentials.is_stale(response.status_code, request):
                        self._refresh(tokens)
                        return  # the caller asks again, with the new token
                    check(read_response(response))
                yield from response.iter_bytes()
        except httpx.TransportError as err:
            raise unreachable(self.url, err) from err

    def close(self) -> None:
        """Close all connections."""
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

    def page(self, *, cursor: str | None = None, count: bool = False, **options: Unpack[ViewOptions]) -> Page:
        """Return one page of rows; `cursor` is that of the page before."""
        return self._client.run(page(self.name, ViewQuery(**options), cursor, count=count))

    def rows(self, **options: Unpack[ViewOptions]) -> Iterator[Row]:
        """Yield all rows that match and may be seen, page by page."""
        for part in self._pages(ViewQuery(**options)):
            yield from part.rows

    def __iter__(self) -> Iterator[Row]:
        return self.rows()

    def _pages(self, query: ViewQuery) -> Iterator[Page]:
        part = self._client.run(page(self.name, query))
        yield part
        while part.cursor is not None:
            part = self._client.run(page(self.name, query, part.cursor))
            yield part

    def outcomes(self, only: OutcomeName | None = None) -> Iterator[MessageOutcome]:
        """Yield the outcomes of messages, page by page."""
        cursor: str | None = None
        while True:
            found, cursor = self._client.run(outcomes(self.name, only, cursor))
            yield from found
            if cursor is None:
                return

    def changes(self, after: str | None = None) -> Iterator[Change]:
        """Yield changes as they happen, endlessly: from now on, or behind the `changes` of a page or a change's `id`.

        Reconnects by itself; raises `Unreachable` or `TryLater` only before the first connection.
        """
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

    def to_arrow(self, **options: Unpack[ViewOptions]) -> Any:
        """Return all rows as a `pyarrow.Table`, typed as the schema says."""
        query = replace(ViewQuery(**options), page_size=1000)
        found = list(self._pages(query))
        fields = fields_of(self._client.run(views()), found[0], query)
        return to_arrow((row for part in found for row in part.rows), fields)

    def to_pandas(self, **options: Unpack[ViewOptions]) -> Any:
        """Return all rows as a `pandas.DataFrame`."""
        return self.to_arrow(**options).to_pandas()

    def to_spark(self, spark: Any, **options: Unpack[ViewOptions]) -> Any:
        """Return all rows as a DataFrame of a Spark session."""
        return spark.createDataFrame(self.to_arrow(**options))

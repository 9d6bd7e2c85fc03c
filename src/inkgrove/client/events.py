"""The stream of changes of a view: bytes become lines, lines become server-sent events, events become changes."""

import json
from collections.abc import Iterator
from typing import Any

from inkgrove.client.connection import HttpRequest
from inkgrove.client.models import Change, read_row


class LineSplitter:
    """Splits a stream of bytes into lines, which only a line feed ends: text may hold other breaks."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the lines that are complete with this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode()


class ChangeReader:
    """Turns lines of the stream into changes, and keeps the id of the last event for a new connection."""

    def __init__(self, last_id: str | None) -> None:
        self.last_id = last_id
        self._begin()

    def request(self, view: str) -> HttpRequest:
        """Return the request for the stream: from now on, or behind the last event."""
        headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
        return HttpRequest("GET", f"/views/{view}/changes", headers=headers)

    def _begin(self) -> None:
        self._name: str = "message"
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, line: str) -> Iterator[Change]:
        """Yield the changes that are complete with this line."""
        if line == "":
            yield from self._dispatch()
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._name = value
            case "id":
                self._id = value
            case "data":
                self._data.append(value)

    def restart(self) -> None:
        """Forget the half of an event that came before the connection broke."""
        self._begin()

    def _dispatch(self) -> Iterator[Change]:
        name, event_id, data = self._name, self._id, "\n".join(self._data)
        self._begin()
        if name == "reset" and event_id is not None:
            self.last_id = event_id
            yield Change("reset", None, None, event_id)
        elif name == "change" and event_id is not None:
            steps: list[dict[str, Any]] = json.loads(data)
            for step in steps[:-1]:  # the event counts as taken in with its last change
                yield _change(step, self.last_id or "")
            self.last_id = event_id
            for step in steps[-1:]:
                yield _change(step, event_id)
        elif event_id is not None:
            self.last_id = event_id


def _change(step: dict[str, Any], event_id: str) -> Change:
    row = read_row(step["value"]) if "value" in step else None
    return Change(step["op"], step["path"].rpartition("/")[2], row, event_id)

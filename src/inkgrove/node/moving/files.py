"""The file that somebody brings who comes here: it is taken in parts, then checked and taken into the logs.

docs/protocol.md section 7.10.2. It lies in `HOME/arrivals` as far as it has come; its size there is what was received,
so an upload that was cut off goes on. A file in which something is wrong is removed, and nothing of it was taken in.
"""

import json
from typing import Any, Final

from inkgrove.core import IdentityId
from inkgrove.core.errors import InputError, PersonFileError
from inkgrove.node.errors import ArrivalError, Busy, QuotaError, StorageError
from inkgrove.node.identity import show_quota
from inkgrove.node.moving.arrivals import part_path, set_state
from inkgrove.node.person_file import FileReader, VerifiedPerson, import_person
from inkgrove.node.runtime import Node
from inkgrove.store.db import Connection
from inkgrove.store.files import make_directory, sync_file
from inkgrove.store.locks import try_file_lock
from inkgrove.store.node import StoredAmounts, StoredArrival, forget_arrivals, remove_arrival

_SECOND: Final = 1_000_000


def file_request(node: Node, size: int, digest: str, *, older: bool) -> dict[str, Any]:
    """Return what an arrival with a file asks for; raises `arrival.too-large`, or `storage.low-disk`."""
    if size > node.settings.arrival_bytes:
        raise ArrivalError(
            "arrival.too-large",
            f"the file has {size:,} bytes, and this node takes {node.settings.arrival_bytes:,} at most",
            limit=node.settings.arrival_bytes,
        )
    if node.settings.disk_reserve_bytes and node.disk.free() - size < node.settings.disk_reserve_bytes:
        raise StorageError("storage.low-disk", "the disk of this node has no room for the file")
    return {"size": size, "digest": digest, "older": older}


def resume_file(node: Node, arrival: StoredArrival, before: StoredArrival | None) -> StoredArrival:
    """Go on with the file of the arrival that this one replaces, if it is the same file; else remove what has come."""
    path, wanted = part_path(node, arrival.identity), json.loads(arrival.request)
    asked = {} if before is None else json.loads(before.request)
    names = ("size", "digest")
    if arrival.way != "file" or any(asked.get(name) != wanted[name] for name in names):
        path.unlink(missing_ok=True)
    elif path.exists() and path.stat().st_size == wanted["size"]:
        return set_state(node, arrival, "arriving") or arrival
    return arrival


class PartWriter:
    """Appends a part of a file to what has come; close it. Others who bring a part meanwhile get `auth.busy`.

    What has come when it is cut off stays, and the next part begins behind it.
    """

    def __init__(self, node: Node, arrival: StoredArrival, offset: int) -> None:
        """Raises `arrival.not-ready` or `arrival.wrong-part`."""
        self._node, self.arrival = node, arrival
        if arrival.way != "file" or arrival.state not in ("asked", "fetching"):
            raise ArrivalError(
                "arrival.not-ready", f"the arrival is {arrival.state} and takes no file now", state=arrival.state
            )
        self._size: int = json.loads(arrival.request)["size"]
        path = part_path(node, arrival.identity)
        make_directory(path.parent)
        lock = try_file_lock(path.with_suffix(".lock"))
        if lock is None:
            raise Busy("another part of this file is being sent: wait for its end", retry_after=1)
        self._lock, self._path = lock, path
        try:
            path.touch(0o600)
            self.received = path.stat().st_size
            if offset != self.received:
                raise ArrivalError(
                    "arrival.wrong-part",
                    f"{self.received:,} bytes of the file have come: go on there",
                    received=self.received,
                )
            node.disk.require()
            self._file = path.open("ab")
        except BaseException:
            lock.close()
            raise

    def close(self) -> None:
        """Let others bring the next part."""
        self._file.close()
        self._lock.close()

    def write(self, data: bytes) -> None:
        """Append bytes; raises `arrival.too-large` for more than the file has, and `storage.low-disk`."""
        if self.received + len(data) > self._size:
            raise ArrivalError("arrival.too-large", f"the file was to have {self._size:,} bytes", limit=self._size)
        self._node.disk.require()
        self._file.write(data)
        self.received += len(data)

    def finish(self) -> StoredArrival:
        """Note that a part has come; with the last one the arrival is `arriving`."""
        self._file.flush()
        is_whole = self.received == self._size
        if is_whole:
            sync_file(self._path)
        return set_state(self._node, self.arrival, "arriving" if is_whole else "fetching") or self.arrival


def take_in_file(node: Node, arrival: StoredArrival) -> None:
    """Check the file of an arrival that is `arriving` and take it into the logs; then it is `committing`.

    If something is wrong with the file, or it is too much for this node, it is removed, the arrival is `asked` again
    and has the code. A full disk keeps it where it is.
    """
    path, told = part_path(node, arrival.identity), json.loads(arrival.facts)
    request = told.get("expected") or json.loads(arrival.request)
    try:
        with FileReader(path) as reader:
            digest = reader.digest.hex()
            if digest != request["digest"]:
                raise PersonFileError("file.changed", "this is another file than the one that was to come")
        report = import_person(
            node,
            path,
            expected=arrival.identity,
            allow_older=request["older"],
            admit=lambda verified: _admit(node, arrival.identity, verified),
        )
    except (PersonFileError, QuotaError, ArrivalError, InputError) as error:  # the last: it is not there any more
        path.unlink(missing_ok=True)
        set_state(node, arrival, "asked", code=error.code, reason=error.message)
        return
    except StorageError as error:
        set_state(node, arrival, "arriving", code=error.code, reason=error.message)
        return
    counts = {"new": report.new, "known": report.known, "refused": report.refused}
    facts = {"digest": digest, **{name: dict(items) for name, items in counts.items()}}
    set_state(node, arrival, "committing", facts=facts)


def _admit(node: Node, identity: IdentityId, verified: VerifiedPerson) -> None:
    """Refuse a file that is more than an identity may store here, before anything of it is taken in."""
    counts = verified.counts
    if verified.largest_blob > (most := node.settings.max_blob_bytes):
        raise ArrivalError(
            "arrival.too-large",
            f"a blob in the file has {verified.largest_blob:,} bytes, and this node takes {most:,} at most",
            limit=most,
        )
    quota = show_quota(node, identity)
    wanted = StoredAmounts(counts["entries"], verified.payload_bytes, counts["blob_bytes"])
    quota.require(StoredAmounts(*(max(0, more - used) for more, used in zip(wanted, quota.used, strict=True))))


def give_up(node: Node, arrival: StoredArrival) -> None:
    """Forget an arrival that is not `here` yet, with its file; raises `arrival.not-ready` if it is, or may be soon."""

    def work(connection: Connection) -> bool:
        return remove_arrival(connection, arrival)

    if not node.database.write(work, durable=True):
        raise ArrivalError(
            "arrival.not-ready",
            "the identity lives here already, or the old node was asked for the end: take it back there",
            state="here",
        )
    part_path(node, arrival.identity).unlink(missing_ok=True)


def tidy_arrivals(node: Node) -> None:
    """Give up arrivals with which nobody has done anything for long, and forget those that are over."""
    before = node.clock() - node.settings.arrival_seconds * _SECOND
    for identity in node.database.write(lambda c: forget_arrivals(c, before=before)):
        part_path(node, identity).unlink(missing_ok=True)

"""Exports that people ask for over HTTP: a job that one can look at, and a file that can be downloaded for a while.

docs/person-file.md. Everything about a job lies in files under `HOME/exports/IDENTITY`, or `HOME/departures/IDENTITY`
if it is for a move to another node: `ID.json` is its state, `ID.part` the file that is being written, `ID.person` the
finished one. A process that writes one holds the lock of the identity; a job whose process has died is begun again by
whoever finds it.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final, Literal

import structlog

from inkgrove.core import IdentityId
from inkgrove.core.errors import InkgroveError
from inkgrove.messages.person_file import SealedSecret
from inkgrove.node.errors import Busy, ExportError
from inkgrove.node.person_file.export import write_person_file
from inkgrove.node.person_file.secret import seal_secret
from inkgrove.node.runtime import Node
from inkgrove.store.files import make_directory, rename_durably, replace_file
from inkgrove.store.locks import FileLock, try_file_lock
from inkgrove.store.node import find_identity, sealed_key

JobState = Literal["waiting", "running", "finished", "failed"]
_SECOND: Final = 1_000_000
_NOTE_SECONDS: Final = 0.5
_ID_BYTES: Final = 16
_SEAL_SECONDS: Final = 5.0
log = structlog.get_logger("inkgrove.exports")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportJob:
    """An export of an identity, as it is stored."""

    id: str
    state: JobState
    asked: int
    """When it was asked for."""
    has_secret: bool = False
    """Whether the first key goes into the file, sealed with a passphrase."""
    phase: str | None = None
    """What is being written: entries, copies, a table, bytes of blobs."""
    done: int = 0
    """How much of it."""
    total: int | None = None
    """Of how much, if that is known."""
    size: int | None = None
    """How many bytes the finished file has."""
    digest: str | None = None
    """BLAKE2b-512 of everything before its seal, in hex."""
    expires: int | None = None
    """When the file, or the failed job, is removed."""
    code: str | None = None
    """Why it failed."""
    secret: str | None = None
    """The sealed key, until the file is written."""


class _Stopped(Exception):
    """The node stops: the job is begun again when it starts."""


class Exports:
    """The exports of a node; one is written at a time. Safe for threads, and for several processes of one home."""

    def __init__(self, node: Node, folder: str = "exports", *, kept_seconds: int | None = None) -> None:
        """`kept_seconds`: how long a file is kept, if not as long as the settings say."""
        self._node = node
        self._folder = node.home / folder
        self._kept_seconds = kept_seconds or node.settings.export_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")
        self._queued: set[tuple[IdentityId, str]] = set()
        self._lock = Lock()
        self._sealing = Lock()
        """One passphrase at a time: each takes 64 MiB."""

    def close(self) -> None:
        """Stop what is being written; it is begun again when the node starts."""
        self._node.stopping.set()
        self._thread.shutdown(cancel_futures=True)

    # What people ask for

    def start(self, identity: IdentityId, passphrase: str | None = None) -> ExportJob:
        """Begin an export, or return the one that is under way; a finished file of before is removed.

        `passphrase`: seals the first key, if the node keeps it (`export.no-secret`). Raises `storage.low-disk`.
        """
        self._node.disk.require()
        folder = self._folder / identity.hex()
        make_directory(folder)
        with FileLock(folder / ".asking"):
            jobs = list(self._jobs(identity))
            for job in jobs:
                if job.state in ("waiting", "running"):
                    self._enqueue(identity, job.id)
                    return job
            secret = None if passphrase is None else self._seal(identity, passphrase)
            for job in jobs:
                self._remove(identity, job.id)
            new = ExportJob(
                id=self.new_id(),
                state="waiting",
                asked=self._node.clock(),
                has_secret=secret is not None,
                secret=secret,
            )
            self._put(identity, new)
        self._enqueue(identity, new.id)
        return new

    def new_id(self) -> str:
        """Return an id for `ensure`."""
        return self._node.random_bytes(_ID_BYTES).hex()

    def ensure(self, identity: IdentityId, job_id: str) -> ExportJob:
        """Return the job with an id that was made before, begun now if it is not there; raises `storage.low-disk`."""
        folder = self._folder / identity.hex()
        make_directory(folder)
        with FileLock(folder / ".asking"):
            job = self._read(identity, job_id)
            if job is None:
                self._node.disk.require()
                job = self._put(identity, ExportJob(id=job_id, state="waiting", asked=self._node.clock()))
        if job.state in ("waiting", "running"):
            self._enqueue(identity, job_id)
        return job

    def discard(self, identity: IdentityId) -> None:
        """Remove every job of an identity with its file, except for one that is being written."""
        for job in list(self._jobs(identity)):
            if job.state in ("finished", "failed"):
                self._remove(identity, job.id)

    def _seal(self, identity: IdentityId, passphrase: str) -> str:
        hosted = self._node.database.read(lambda c: find_identity(c, identity))
        assert hosted is not None
        if self._node.database.read(lambda c: sealed_key(c, hosted.key)) is None:
            raise ExportError(
                "export.no-secret", "this node does not keep your first key: you have it, so ask without a passphrase"
            )
        if not self._sealing.acquire(timeout=_SEAL_SECONDS):
            raise Busy("too many passphrases are being stretched at this moment", retry_after=int(_SEAL_SECONDS))
        try:
            secret = seal_secret(self._node, self._node.secret_key(hosted.key), passphrase)
        finally:
            self._sealing.release()
        values = asdict(secret) | {
            "salt": b64encode(secret.salt).decode(),
            "sealed": b64encode(secret.sealed).decode(),
        }
        return json.dumps(values)

    def find(self, identity: IdentityId, job_id: str) -> ExportJob:
        """Return a job of an identity; raises `export.unknown` for one that is not there, expired or another's."""
        job = self._read(identity, job_id)
        if job is None or self._is_expired(job):
            raise ExportError("export.unknown", "no such export of yours is here: it has expired, or never was")
        if job.state in ("waiting", "running"):
            self._enqueue(identity, job_id)  # its process may have died
        return job

    def find_file(self, identity: IdentityId, job_id: str) -> tuple[ExportJob, Path]:
        """Return a finished job and its file; raises `export.unknown` or `export.not-finished`."""
        job = self.find(identity, job_id)
        if job.state != "finished":
            raise ExportError("export.not-finished", f"the export is {job.state}: look again later", state=job.state)
        return job, self._path(identity, job_id, "person")

    def remove(self, identity: IdentityId, job_id: str) -> None:
        """Remove a job with its file; raises `export.unknown`, or `export.not-finished` while it is written."""
        job = self.find(identity, job_id)
        if job.state in ("waiting", "running"):
            raise ExportError("export.not-finished", f"the export is {job.state}: look again later", state=job.state)
        self._remove(identity, job_id)

    # What the node does by itself

    def tidy(self) -> None:
        """Remove what has expired, and begin again what a process that has died left behind."""
        for folder in self._folder.glob("*"):
            with suppress(ValueError):
                identity = IdentityId.fromhex(folder.name)
                for job in list(self._jobs(identity)):
                    if self._is_expired(job):
                        self._remove(identity, job.id)
                    elif job.state in ("waiting", "running"):
                        self._enqueue(identity, job.id)

    def _enqueue(self, identity: IdentityId, job_id: str) -> None:
        with self._lock:
            if (identity, job_id) in self._queued or self._node.stopping.is_set():
                return
            self._queued.add((identity, job_id))
        self._thread.submit(self._run, identity, job_id)

    def _run(self, identity: IdentityId, job_id: str) -> None:
        try:
            lock = try_file_lock(self._folder / identity.hex() / ".writing")
            if lock is None:
                return  # another process writes it
            with lock:
                job = self._read(identity, job_id)
                if job is not None and job.state in ("waiting", "running"):
                    self._write(identity, job)
        except Exception:
            log.exception("an export failed", identity=identity.hex(), export=job_id)
        finally:
            with self._lock:
                self._queued.discard((identity, job_id))

    def _write(self, identity: IdentityId, job: ExportJob) -> None:
        part = self._path(identity, job.id, "part")
        try:
            job = self._put(identity, replace(job, state="running"))
            noted = monotonic()

            def on_progress(phase: str, done: int, total: int | None) -> None:
                nonlocal noted
                if self._node.stopping.is_set():
                    raise _Stopped
                if monotonic() - noted >= _NOTE_SECONDS:
                    self._put(identity, replace(job, phase=phase, done=done, total=total))
                    noted = monotonic()

            part.touch(0o600)
            with part.open("wb") as file:
                written = write_person_file(
                    self._node, identity, file, secret=_read_secret(job.secret), on_progress=on_progress
                )
            rename_durably(part, self._path(identity, job.id, "person"))
            digest = written.digest.hex()
            self._put(
                identity,
                replace(job, state="finished", secret=None, size=written.size, digest=digest),
                expires=True,
            )
        except _Stopped:
            part.unlink(missing_ok=True)
        except (InkgroveError, OSError) as error:
            part.unlink(missing_ok=True)
            code = error.code if isinstance(error, InkgroveError) else "storage.low-disk"
            log.warning("an export failed", identity=identity.hex(), code=code, reason=str(error))
            self._put(identity, replace(job, state="failed", secret=None, code=code), expires=True)

    # Files

    def _path(self, identity: IdentityId, job_id: str, kind: str) -> Path:
        return self._folder / identity.hex() / f"{job_id}.{kind}"

    def _put(self, identity: IdentityId, job: ExportJob, *, expires: bool = False) -> ExportJob:
        if expires:
            job = replace(job, expires=self._node.clock() + self._kept_seconds * _SECOND)
        replace_file(self._path(identity, job.id, "json"), json.dumps(asdict(job)).encode(), 0o600)
        return job

    def _read(self, identity: IdentityId, job_id: str) -> ExportJob | None:
        if len(job_id) != 2 * _ID_BYTES or not set(job_id) <= set("0123456789abcdef"):
            return None
        try:
            return ExportJob(**json.loads(self._path(identity, job_id, "json").read_bytes()))
        except FileNotFoundError:
            return None

    def _jobs(self, identity: IdentityId) -> Iterator[ExportJob]:
        for path in sorted((self._folder / identity.hex()).glob("*.json")):
            job = self._read(identity, path.stem)
            if job is not None:
                yield job

    def _is_expired(self, job: ExportJob) -> bool:
        return job.expires is not None and job.expires <= self._node.clock()

    def _remove(self, identity: IdentityId, job_id: str) -> None:
        for kind in ("person", "part", "json"):  # the state last: what is cut off here is found again
            self._path(identity, job_id, kind).unlink(missing_ok=True)


def _read_secret(text: str | None) -> SealedSecret | None:
    if text is None:
        return None
    values = json.loads(text)
    return SealedSecret(b64decode(values["salt"]), values["operations"], values["memory"], b64decode(values["sealed"]))

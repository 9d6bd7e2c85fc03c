"""Exports: everything that the caller has on the node, downloaded as one file (docs/person-file.md)."""

import re
from hashlib import blake2b
from pathlib import Path
from typing import Final

from inkgrove.client.connection import Flow, ask
from inkgrove.client.errors import ExportFailed
from inkgrove.client.models import Export, read_export
from inkgrove.messages.person_file import SEAL_SIZE

PART_BYTES: Final = 4 * 1024 * 1024
"""How much one answer of a download holds."""
LOOK_SECONDS: Final = 0.5
"""How often one looks whether an export is finished."""


def start_export(passphrase: str | None = None) -> Flow[Export]:
    """Begin to write everything that the caller has into a file on the node, or return the export under way.

    `passphrase` seals the first key for it, if the node keeps that; without one no secret is in the file.
    """
    body = {} if passphrase is None else {"passphrase": passphrase}
    return read_export((yield from ask("POST", "/me/export", body=body)).json())


def export_state(export_id: str) -> Flow[Export]:
    """Return how far an export is; raises `NotFound` if it has expired."""
    return read_export((yield from ask("GET", f"/me/export/{export_id}")).json())


def remove_export(export_id: str) -> Flow[None]:
    """Remove a finished export from the node."""
    yield from ask("DELETE", f"/me/export/{export_id}")


def export_part(export: Export, first: int) -> Flow[bytes]:
    """Return the next bytes of a finished file, from `first` on."""
    last = min(first + PART_BYTES, export.size or 0) - 1
    headers = {"Range": f"bytes={first}-{last}", "If-Range": f'"{export.digest}"'}
    content: bytes = (yield from ask("GET", f"/me/export/{export.id}/file", headers=headers)).content
    return content


class ExportDownload:
    """The file that a download writes to: `NAME.ID.part` beside the target, so that it can go on after an end."""

    def __init__(self, target: Path) -> None:
        """Raises `FileExistsError` if the target is there."""
        if target.exists():
            raise FileExistsError(f"{target} exists already")
        self.target = target

    def find_begun(self) -> str | None:
        """Return the id of an export whose download was begun before and not finished."""
        form = re.compile(re.escape(self.target.name) + r"\.([0-9a-f]{32})\.part")
        for path in sorted(self.target.parent.glob(f"{self.target.name}.*.part")):
            if (match := form.fullmatch(path.name)) is not None:
                return match.group(1)
        return None

    def _part(self, export_id: str) -> Path:
        return self.target.with_name(f"{self.target.name}.{export_id}.part")

    def forget(self, export_id: str) -> None:
        """Remove what was downloaded of an export that is not there any more."""
        self._part(export_id).unlink(missing_ok=True)

    def size(self, export: Export) -> int:
        """How many bytes are here."""
        part = self._part(export.id)
        part.touch(0o600)
        return part.stat().st_size

    def append(self, export: Export, content: bytes) -> None:
        """Add bytes at the end."""
        with self._part(export.id).open("ab") as file:
            file.write(content)

    def finish(self, export: Export) -> None:
        """Check the digest and give the file its name; raises `client.export-failed` if it is another one."""
        part, digest = self._part(export.id), blake2b()
        left = (export.size or 0) - SEAL_SIZE
        with part.open("rb") as file:
            while left > 0 and (content := file.read(min(PART_BYTES, left))):
                digest.update(content)
                left -= len(content)
        if digest.hexdigest() != export.digest:
            part.unlink()
            raise ExportFailed("the downloaded file has another digest than the node says: download it again")
        part.replace(self.target)


def require_success(export: Export) -> None:
    """Raise `client.export-failed` for an export that has failed."""
    if export.state == "failed":
        raise ExportFailed(f"the node could not write the file ({export.code}): try again later", reason=export.code)

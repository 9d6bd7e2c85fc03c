"""The Python client of a node: `Client` blocks, `AsyncClient` is awaited (docs/client.md)."""

from inkgrove.client.async_client import AsyncClient, AsyncView
from inkgrove.client.client import Client, View
from inkgrove.client.errors import (
    ArrivalFailed,
    ClientError,
    Conflict,
    ExportFailed,
    Invalid,
    NotAllowed,
    NotANode,
    NotAuthorised,
    NotFound,
    NotSignedIn,
    Refused,
    TryLater,
    Unreachable,
)
from inkgrove.client.identities import new_words
from inkgrove.client.models import (
    Arrival,
    Blob,
    Change,
    Export,
    Identity,
    Instance,
    Page,
    Published,
    Row,
    Schema,
    Tokens,
)
from inkgrove.core import SecretKey

__all__ = [
    "Arrival",
    "ArrivalFailed",
    "AsyncClient",
    "AsyncView",
    "Blob",
    "Change",
    "Client",
    "ClientError",
    "Conflict",
    "Export",
    "ExportFailed",
    "Identity",
    "Instance",
    "Invalid",
    "NotANode",
    "NotAllowed",
    "NotAuthorised",
    "NotFound",
    "NotSignedIn",
    "Page",
    "Published",
    "Refused",
    "Row",
    "Schema",
    "SecretKey",
    "Tokens",
    "TryLater",
    "Unreachable",
    "View",
    "new_words",
]

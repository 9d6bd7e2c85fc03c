"""The document at `https://<fqdn>/.well-known/inkgrove`: who lives there, proved, and how to reach them.

docs/protocol.md section 7.1. It carries what proves the identity's newest document to somebody who knows nothing yet:
the entries of its certificate pool in log 0, with the payloads of the first entry and of the document, and entry 1 of
log 0 of each further key. Nothing of it is believed before `proving` has looked at it.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final

from inkgrove.core.errors import InkgroveError
from inkgrove.core.keys import SIGNATURE_BYTES, IdentityId, PublicKey, parse_public_key, verify_signature
from inkgrove.core.limits import MAX_ARRAY_ELEMENTS
from inkgrove.federation.errors import BadAnswer
from inkgrove.messages.value_readers import read_endpoint, read_host

PATH: Final = "/.well-known/inkgrove"
NODE_PATH: Final = "/.well-known/inkgrove-node"
"""Which node answers at a name, whether somebody lives there or not."""
FORMAT: Final = 1
MAX_BYTES: Final = 4 * 1024 * 1024
"""Two payloads of the largest size, in base64, with room for the entries."""

_MAX_LOG_ENTRIES: Final = 256
"""Above any certificate pool: a path in a log of 2^63 entries has less than 130."""


@dataclass(frozen=True, slots=True)
class OfferedEntry:
    """An entry as another node sends it, with its payload or without."""

    encoded: bytes
    payload: bytes | None


@dataclass(frozen=True, slots=True)
class WellKnown:
    """What a node says about an identity that it serves."""

    fqdn: str
    id: IdentityId
    endpoint: str
    node_key: PublicKey
    proof: bytes
    """The node's signature of `claim_of`: that it serves this identity, there."""
    log: tuple[OfferedEntry, ...]
    """Of log 0 of the first key: the newest document and what proves it."""
    keys: tuple[OfferedEntry, ...] = ()
    """Entry 1 of log 0 of each further key."""


def claim_of(identity: IdentityId, fqdn: str, endpoint: str) -> bytes:
    """What a node signs to say that it serves an identity: nobody else can name its key as that of their node."""
    return f"inkgrove node {FORMAT}\n{identity.hex()}\n{fqdn}\n{endpoint}\n".encode()


def host_claim_of(fqdn: str, endpoint: str) -> bytes:
    """What a node signs to say that it answers at a name, whoever may live there."""
    return f"inkgrove host {FORMAT}\n{fqdn}\n{endpoint}\n".encode()


def leads_to(body: bytes, fqdn: str, endpoint: str, node_key: PublicKey) -> bool:
    """Whether the document at `NODE_PATH` of a name is the one of a node, by its key and endpoint."""
    try:
        content = json.loads(body, object_pairs_hook=_map_without_doubles)
        node = content["node"]
        said = (content["inkgrove"], content["fqdn"], node["endpoint"], node["key"])
        verify_signature(node_key, host_claim_of(fqdn, endpoint), _parse_hex(node["proof"], SIGNATURE_BYTES))
    except (InkgroveError, ValueError, TypeError, KeyError, RecursionError):
        return False
    return said == (FORMAT, fqdn, endpoint, node_key.hex())


def render_well_known(document: WellKnown) -> dict[str, Any]:
    """The document as JSON."""
    return {
        "inkgrove": FORMAT,
        "fqdn": document.fqdn,
        "id": document.id.hex(),
        "node": {"endpoint": document.endpoint, "key": document.node_key.hex(), "proof": document.proof.hex()},
        "log": [_render_entry(item) for item in document.log],
        "keys": [_render_entry(item) for item in document.keys],
    }


def parse_well_known(body: bytes) -> WellKnown:
    """The document from an answer; keys that are not known are passed over, so that later formats can say more."""
    try:
        content = json.loads(body, object_pairs_hook=_map_without_doubles)
        if content["inkgrove"] != FORMAT:
            raise BadAnswer(f"a document of format {str(content['inkgrove'])[:20]!r}; {FORMAT} is known")
        return WellKnown(
            fqdn=read_host(content["fqdn"], "fqdn"),
            id=IdentityId(_parse_hex(content["id"], 32)),
            endpoint=read_endpoint(content["node"]["endpoint"], "endpoint"),
            node_key=parse_public_key(content["node"]["key"]),
            proof=_parse_hex(content["node"]["proof"], SIGNATURE_BYTES),
            log=_parse_entries(content["log"], _MAX_LOG_ENTRIES),
            keys=_parse_entries(content["keys"], MAX_ARRAY_ELEMENTS),
        )
    except BadAnswer:
        raise
    except (InkgroveError, ValueError, TypeError, KeyError, RecursionError) as err:
        raise BadAnswer(f"the document of the node cannot be read: {err!r:.200}") from err


def _render_entry(item: OfferedEntry) -> dict[str, str]:
    rendered = {"entry": b64encode(item.encoded).decode()}
    if item.payload is not None:
        rendered["payload"] = b64encode(item.payload).decode()
    return rendered


def _parse_entries(items: Any, most: int) -> tuple[OfferedEntry, ...]:
    if type(items) is not list or len(items) > most:
        raise BadAnswer(f"entries come as a list of at most {most}")
    return tuple(
        OfferedEntry(
            b64decode(item["entry"], validate=True),
            b64decode(item["payload"], validate=True) if "payload" in item else None,
        )
        for item in items
    )


def _parse_hex(text: Any, size: int) -> bytes:
    value = bytes.fromhex(text)
    if len(value) != size:
        raise ValueError(f"{size} bytes are written as {2 * size} hex characters")
    return value


def _map_without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("one key stands twice in a map")
    return found

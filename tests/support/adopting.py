"""Brings an identity whose key the test holds to a node: signs an entry of log 0, and a challenge of the node."""

from base64 import b64decode, b64encode
from typing import Any

import httpx

from inkgrove.core import SecretKey, identity_of
from inkgrove.messages import IdentityDocument, IdentityMessage, adoption_claim, decode_message, encode_message
from tests.support.logs import LogBuilder
from tests.support.nodes import PASSWORD


def signed(log: LogBuilder, message: IdentityMessage) -> dict[str, str]:
    """The next entry of a log with its payload, as routes take it."""
    payload = encode_message(message)
    entry = log.append(payload)
    return {"entry": b64encode(entry.encoded).decode(), "payload": b64encode(payload).decode()}


def prove(
    client: httpx.Client, secret: SecretKey, entry: bytes, fqdn: str, endpoint: str | None = None
) -> dict[str, str]:
    """A fresh challenge of the node, signed for this entry."""
    answer = client.post("/identities/challenges", json={"key": secret.public.hex()})
    assert answer.status_code == 201, answer.text
    challenge = answer.json()["challenge"]
    claim = adoption_claim(identity_of(secret.public), fqdn, endpoint or f"https://{fqdn}", entry, challenge)
    return {"challenge": challenge, "signature": secret.sign(claim).hex()}


def bring(client: httpx.Client, log: LogBuilder, fqdn: str, item: dict[str, str], **proof: Any) -> httpx.Response:
    """Have the identity of a log hosted, with a proof of its key."""
    said = decode_message(b64decode(item["payload"]))
    endpoint = said.endpoint if isinstance(said, IdentityDocument) else None
    proof = proof or prove(client, log.secret, log.entries[-1].encoded, fqdn, endpoint)
    body = {"fqdn": fqdn, "password": PASSWORD, "signed": item, "proof": proof}
    return client.post("/identities", json=body)

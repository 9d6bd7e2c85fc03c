"""The forms of bodies and answers that several groups of routes share."""

from base64 import b64decode
from binascii import Error as BadBase64
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from inkgrove.node.errors import BadRequest
from inkgrove.node.identities import SignedMessage


class Strict(BaseModel):
    """A body with the listed keys only."""

    model_config = ConfigDict(extra="forbid")


Base64 = Annotated[str, Field(max_length=1_000_000, json_schema_extra={"format": "byte"})]
Fqdn = Annotated[str, Field(max_length=253, examples=["jane.haiku.ink"])]
Password = Annotated[str, Field(max_length=1024, examples=["correct horse battery"])]


class SignedEntry(Strict):
    """An entry that the client signed, with its payload, both in base64."""

    entry: Base64
    payload: Base64

    def read(self) -> SignedMessage:
        """The bytes."""
        return SignedMessage(from_base64(self.entry, "entry"), from_base64(self.payload, "payload"))


def from_base64(text: str, what: str) -> bytes:
    """Bytes written in standard base64."""
    try:
        return b64decode(text, validate=True)
    except (BadBase64, ValueError) as err:
        raise BadRequest(f"{what} is not base64") from err

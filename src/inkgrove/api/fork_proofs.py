"""The route by which anybody, known or not, proves to a node that a log is forked."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from inkgrove.api.auth import AddressDependency, NodeDependency
from inkgrove.api.models import from_base64
from inkgrove.api.problems import responses
from inkgrove.api.publishing import Strict
from inkgrove.core import errors as core
from inkgrove.federation.fork_proofs import PATH, take_fork_proof
from inkgrove.node import errors
from inkgrove.node.attempts import count_fork_proof

router = APIRouter(tags=["federation"])

EncodedEntry = Annotated[str, Field(max_length=600, examples=["AIqI4910"], json_schema_extra={"format": "byte"})]


class ForkedEntries(Strict):
    """Two entries of one log, in base64, that contradict each other."""

    first: EncodedEntry
    second: EncodedEntry


class ForkedLog(BaseModel):
    """A log that is known to be forked, and the first place where it is."""

    author: str
    log_id: int
    forked_at: int


@router.post(
    PATH,
    response_model=ForkedLog,
    responses=responses(
        core.BadSignature,
        core.NotAFork,
        core.NoPathToFirst,
        errors.UnknownLog,
        errors.TooManyAttempts,
    ),
)
def prove_fork(node: NodeDependency, address: AddressDependency, body: ForkedEntries) -> ForkedLog:
    """Prove that a log that is held here is forked. Needs no token and no signature: the entries prove themselves."""
    count_fork_proof(node, address)
    log = take_fork_proof(node, from_base64(body.first, "first"), from_base64(body.second, "second"))
    assert log.standing.forked_at is not None
    return ForkedLog(author=log.author.hex(), log_id=log.log_id, forked_at=log.standing.forked_at)

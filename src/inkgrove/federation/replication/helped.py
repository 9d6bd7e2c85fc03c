"""Takes an identity over from its old node, which helps (docs/protocol.md section 7.10.1).

`OldNode` asks that node; `HelpedArrivals` goes on with arrivals whose way is `helped`, each from its row: the file is
fetched in ranges behind what is here, taken in, and then the old node is asked for the end. It answers that question
with the same bytes however often it is asked, so the process may end at any moment. From that question on the arrival
is kept until it is answered: the new controller's secret is in it.
"""

import json
from typing import Any, Final

from inkgrove.core import PublicKey, decode_entry
from inkgrove.core.errors import CODES, InkgroveError, make_error
from inkgrove.federation.errors import BadAnswer
from inkgrove.federation.peers.discovery import Discovery, RunBlocking, in_thread
from inkgrove.federation.peers.signed_requests import sign_request
from inkgrove.federation.peers.transport import PeerRequest, PeerResponse, Transport
from inkgrove.messages import (
    MOVE_MEDIA_TYPE,
    KeyOf,
    MoveAnswer,
    MoveCommit,
    MoveOffer,
    decode_move_answer,
    decode_move_offer,
    encode_message,
    encode_move_commit,
)
from inkgrove.node.errors import ArrivalError, MoveError
from inkgrove.node.identity import SignedMessage, must_lead_here
from inkgrove.node.moving import append_part, begin_part, open_grant, reserve_name, set_state, settle, take_in_file
from inkgrove.node.runtime import Node, load_node_key
from inkgrove.store.node import ArrivalState, StoredArrival, find_arrival

MOVES_PATH: Final = "/federation/moves"
PART_BYTES: Final = 4 * 1024 * 1024
"""How much of a file one request asks for."""
_MOST_BYTES: Final = PART_BYTES + 64 * 1024
"""No answer of an old node is larger."""
_RETRY_MICROSECONDS: Final = 60_000_000
"""How long an arrival rests that does not go on for a reason which seldom passes."""
_FIRST_WAIT_MICROSECONDS: Final = 500_000
_LONGEST_WAIT_MICROSECONDS: Final = 3_600_000_000
_MOST_FAILURES: Final = 10_000
_NONE_OF_IT: Final = ("move.unknown-grant", "move.export-failed", "move.done-before")
"""What the old node says if this move will never be done."""


class OldNode:
    """The node that an identity is about to leave, asked with its grant; belongs to one event loop."""

    def __init__(
        self,
        node: Node,
        transport: Transport,
        *,
        lives_at: str,
        grant: str,
        fqdn: str,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        """`lives_at` is the endpoint of the old node, `fqdn` the name that the identity is to have here."""
        self._node, self._transport, self._run_blocking = node, transport, run_blocking
        self._address, self._sender = f"{lives_at.rstrip('/')}{MOVES_PATH}/{grant}", fqdn

    async def describe(self) -> MoveOffer:
        """Ask what the grant is for, and whether the file is there."""
        answer = await self._ask("GET", "")
        return decode_move_offer(answer.body)

    async def fetch(self, offer: MoveOffer, first: int) -> bytes:
        """Fetch the next bytes of the file, from `first` on; raises `move.wrong-digest` if it is another one now."""
        last = min(first + PART_BYTES, offer.size) - 1
        headers = (("Range", f"bytes={first}-{last}"), ("If-Range", f'"{offer.digest.hex()}"'))
        answer = await self._ask("GET", "/file", headers=headers, is_part=True)
        if answer.status != 206 or len(answer.body) != last + 1 - first:
            raise MoveError("move.wrong-digest", "the old node has written another file since")
        return answer.body

    async def commit(self, commit: MoveCommit) -> MoveAnswer:
        """Ask for the end of the move."""
        answer = await self._ask("POST", "/commit", encode_move_commit(commit))
        return decode_move_answer(answer.body)

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: tuple[tuple[str, str], ...] = (),
        is_part: bool = False,
    ) -> PeerResponse:
        request = await self._run_blocking(lambda: self._signed(method, path, body, headers))
        answer = await self._transport.send(request)
        if answer.status != 200 and not (is_part and answer.status == 206):
            raise _refusal(answer)
        return answer

    def _signed(self, method: str, path: str, body: bytes, headers: tuple[tuple[str, str], ...]) -> PeerRequest:
        kind = (("Content-Type", MOVE_MEDIA_TYPE),) if body else ()
        request = PeerRequest(method, self._address + path, (*headers, *kind), body, _MOST_BYTES)
        nonce = self._node.random_bytes(16).hex()
        key = load_node_key(self._node)
        return sign_request(request, key, sender=self._sender, now=self._node.clock(), nonce=nonce)


def _refusal(answer: PeerResponse) -> InkgroveError:
    """The error of an old node, if it is one about moves; else that it answers something else."""
    try:
        content: Any = json.loads(answer.body)
        code, detail = content["code"], str(content["detail"])[:300]
        if code.startswith("move.") and code in CODES:
            return make_error(code, f"the old node says: {detail}")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        detail = ""
    text = f"the old node answers with status {answer.status}: {detail}"
    return BadAnswer(text, status=answer.status, retry_after=answer.retry_after)


async def find_offer(
    node: Node, transport: Transport, discovery: Discovery, *, lives_at: str, grant: str, fqdn: str
) -> MoveOffer:
    """Ask the old node about a grant before an arrival begins; raises unless this node may take the identity over.

    Raises an error of the old node (`move.unknown-grant`), `move.wrong-node` if the grant is for another node or name,
    or a `FederationError` if the identity does not live there, as its own document says it: nobody else's word counts.
    """
    offer = await OldNode(node, transport, lives_at=lives_at, grant=grant, fqdn=fqdn).describe()
    ours = node.settings.endpoint.format(fqdn=fqdn)
    if (offer.fqdn, offer.endpoint) != (fqdn, ours):
        raise MoveError(
            "move.wrong-node",
            f"the grant is for {offer.fqdn} at {offer.endpoint}, and you ask for {fqdn} at {ours}",
            fqdn=offer.fqdn,
            endpoint=offer.endpoint,
        )
    if offer.state == "failed":
        raise MoveError("move.export-failed", "the old node could not write the file: take the move back there")
    if offer.state != "moved":
        home = await discovery.find_home(offer.key, offer.lives_at)
        if home.endpoint.rstrip("/") != lives_at.rstrip("/"):
            raise MoveError(
                "move.wrong-node",
                f"the identity lives at {home.endpoint}, and not at {lives_at}",
                lives_at=home.endpoint,
            )
    return offer


class HelpedArrivals:
    """Goes on with arrivals that the old node helps with; belongs to one event loop."""

    def __init__(
        self, node: Node, transport: Transport, discovery: Discovery, *, run_blocking: RunBlocking = in_thread
    ) -> None:
        self._node, self._transport, self._discovery = node, transport, discovery
        self._run_blocking = run_blocking
        self._failures: dict[str, tuple[int, int]] = {}
        """By arrival, how often it has failed, and when it is tried again."""

    async def advance(self, arrival: StoredArrival) -> None:
        """Do what can be done now for an arrival that is not `here`; what fails is tried again, less and less often."""
        now = self._node.clock()
        failures, next_try = self._failures.get(arrival.id, (0, 0))
        if arrival.code is not None and 0 <= now - arrival.changed < _RETRY_MICROSECONDS:
            return
        if 0 < next_try - now <= _LONGEST_WAIT_MICROSECONDS:
            return
        try:
            await self._advance(arrival)
            self._failures.pop(arrival.id, None)
        except InkgroveError:
            if len(self._failures) >= _MOST_FAILURES:
                self._failures.clear()
            wait = min(_LONGEST_WAIT_MICROSECONDS, _FIRST_WAIT_MICROSECONDS << min(failures, 20))
            self._failures[arrival.id] = failures + 1, self._node.clock() + wait
            raise

    async def _advance(self, arrival: StoredArrival) -> None:
        try:
            if arrival.state in ("asked", "fetching"):
                await self._fetch(arrival)
            elif arrival.state == "arriving":
                await self._run_blocking(lambda: take_in_file(self._node, arrival))
            elif arrival.state == "committing":
                await self._commit(arrival)
        except (MoveError, ArrivalError) as error:
            await self._stop(arrival, error)

    async def _stop(self, arrival: StoredArrival, error: InkgroveError) -> None:
        """Note why an arrival does not go on; if the move will never be done, the identity has stayed where it was."""

        def note() -> None:
            found = self._node.database.read(lambda connection: find_arrival(connection, arrival.identity))
            if found is not None and found.id == arrival.id and found.state != "here":
                state: ArrivalState = "asked" if error.code in _NONE_OF_IT else found.state
                set_state(self._node, found, state, code=error.code, reason=error.message)

        await self._run_blocking(note)

    def _old_node(self, arrival: StoredArrival) -> OldNode:
        return OldNode(
            self._node,
            self._transport,
            lives_at=json.loads(arrival.request)["lives_at"],
            grant=open_grant(self._node, arrival),
            fqdn=arrival.fqdn,
            run_blocking=self._run_blocking,
        )

    async def _fetch(self, arrival: StoredArrival) -> None:
        old = self._old_node(arrival)
        offer = await old.describe()
        if offer.state == "failed":
            raise MoveError("move.export-failed", "the old node could not write the file: take the move back there")
        if offer.state != "ready":
            return
        begun, received = await self._run_blocking(lambda: begin_part(self._node, arrival, offer))
        if begun is None:
            return
        while received < offer.size:
            part = await old.fetch(offer, received)
            received = await self._run_blocking(lambda: append_part(self._node, begun, received, part))  # noqa: B023
        await self._run_blocking(lambda: set_state(self._node, begun, "arriving"))

    async def _commit(self, arrival: StoredArrival) -> None:
        """Take the name, so that nobody else does, then ask for the end; from that question on there is no way back."""
        fqdn, identity = arrival.fqdn, arrival.identity
        must_lead = await self._run_blocking(lambda: must_lead_here(self._node, fqdn, identity))
        leads = must_lead and await self._discovery.leads_here(fqdn)
        await self._run_blocking(lambda: reserve_name(self._node, arrival, leads_here=leads))
        key_of = arrival.key_of, encode_message(KeyOf(identity))
        digest = bytes.fromhex(json.loads(arrival.facts)["digest"])
        answer = await self._old_node(arrival).commit(MoveCommit(key_of, digest))
        entry, payload = answer.document
        _require_signer(entry)
        signed = SignedMessage(entry, payload or b"")
        # The name is theirs since it was reserved, whoever it leads to now.
        await self._run_blocking(lambda: settle(self._node, identity, [signed], leads_here=True))


def _require_signer(entry: bytes) -> PublicKey:
    try:
        return decode_entry(entry).author
    except InkgroveError as err:
        raise BadAnswer(f"the old node answers something that is no entry: {err.message}") from err

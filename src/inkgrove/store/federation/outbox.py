"""The outbox in SQL: deliveries and moves that are due, in order, and their states (docs/protocol.md sections 7, 8)."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, func, or_, select, update

from inkgrove.core import Hash, IdentityId, PublicKey
from inkgrove.core.limits import MAX_STORED_INTEGER
from inkgrove.store.db.connection import Compiled, CompiledList, RetryTransaction, in_lists, insert_new, put_row
from inkgrove.store.db.log_tables import entries, logs
from inkgrove.store.db.node_tables import deliveries, notices, targets
from inkgrove.store.node.departures import LEAVING

DeliveryStatus = Literal["waiting", "delivered", "held", "refused", "given-up"]
_AT_ONCE: Final = 500
OF_ERASED: Final = "instance.erased"
"""The code of a delivery of a delete whose receiver says that the content is gone."""
LOCAL_DELIVERY: Final = MAX_STORED_INTEGER
"""The `wanted` of a recipient of this very node, to whom nothing is sent: they see whatever is newest."""


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A recipient who lacks something of an instance."""

    queue_position: int
    instance: Hash
    recipient: IdentityId
    via: IdentityId
    wanted: int
    delivered: int
    queued: int


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """How far an instance has come with one recipient."""

    recipient: IdentityId
    via: IdentityId
    state: DeliveryStatus
    wanted: int
    delivered: int
    code: str | None
    changed: int


def queue_deliveries(
    connection: Connection,
    instance: Hash,
    via: IdentityId,
    recipients: Collection[IdentityId],
    *,
    wanted: int,
    now: int,
    again: Collection[IdentityId] = (),
) -> None:
    """Queue an instance up to the message `wanted` for recipients.

    To those in `again` it is sent anew: what they refused or put aside before goes to them once more.
    """
    is_it = and_(deliveries.c.instance == instance, deliveries.c.via == via)
    # Locked, and always in the same order: else what another process asks for meanwhile would be overwritten.
    asked = select(deliveries).where(is_it, deliveries.c.recipient.in_(list(recipients)))
    rows = connection.execute(asked.order_by(deliveries.c.place).with_for_update())
    known = {IdentityId(row.recipient): row for row in rows}
    # A recipient who refused what waited in the request box did not say so: nothing of it counts as delivered.
    aside = [recipient for recipient, row in known.items() if row.state == "held"]
    if aside:
        connection.execute(update(deliveries).where(is_it, deliveries.c.recipient.in_(aside)).values(delivered=0))
    stale = [
        recipient
        for recipient, row in known.items()
        if row.wanted < wanted
        or row.wanted == LOCAL_DELIVERY  # they have moved to another node since
        or row.state == "given-up"
        or (recipient in again and row.state != "delivered")
    ]
    # What waits already keeps its age: else something that changes often enough would never be given up.
    waiting = [recipient for recipient in stale if known[recipient].state == "waiting" and recipient not in again]
    if waiting:
        longer = {"wanted": wanted, "changed": now}
        connection.execute(update(deliveries).where(is_it, deliveries.c.recipient.in_(waiting)).values(longer))
    if moved := [recipient for recipient, row in known.items() if row.wanted == LOCAL_DELIVERY]:
        connection.execute(update(deliveries).where(is_it, deliveries.c.recipient.in_(moved)).values(delivered=0))
    if anew := set(stale) - set(waiting):
        values = {"wanted": wanted, "state": "waiting", "code": None, "queued": now, "changed": now}
        connection.execute(update(deliveries).where(is_it, deliveries.c.recipient.in_(anew)).values(values))
    new = [
        {
            "instance": instance,
            "recipient": recipient,
            "via": via,
            "wanted": wanted,
            "delivered": 0,
            "state": "waiting",
            "queued": now,
            "changed": now,
        }
        for recipient in sorted(set(recipients) - known.keys())
    ]
    if new:
        made = connection.execute(insert_new(connection, deliveries).returning(deliveries.c.place), new).all()
        if len(made) < len(new):
            raise RetryTransaction  # another process has queued the same meanwhile


def record_local_delivery(
    connection: Connection,
    instance: Hash,
    via: IdentityId,
    recipient: IdentityId,
    state: DeliveryStatus,
    code: str | None,
    now: int,
) -> None:
    """Record the state of an instance that an identity of this node sent to another one of it."""
    is_it = and_(deliveries.c.instance == instance, deliveries.c.via == via, deliveries.c.recipient == recipient)
    reached = LOCAL_DELIVERY if state == "delivered" else 0
    values = {
        "wanted": LOCAL_DELIVERY,
        "delivered": reached,
        "state": state,
        "code": code,
        "queued": now,
        "changed": now,
    }
    if connection.execute(update(deliveries).where(is_it).values(values)).rowcount == 0:
        row = {"instance": instance, "via": via, "recipient": recipient, **values}
        if connection.execute(insert_new(connection, deliveries).returning(deliveries.c.place), row).first() is None:
            raise RetryTransaction  # another process has sent the same meanwhile


def recipients_of(connection: Connection, instance: Hash, via: IdentityId) -> list[IdentityId]:
    """Whom an identity of this node has sent an instance to elsewhere."""
    return [IdentityId(recipient) for (recipient,) in _sent_to.rows(connection, instance=instance, via=via)]


def senders_of(connection: Connection, instance: Hash) -> list[IdentityId]:
    """The identities of this node that sent an instance to somebody elsewhere."""
    return [IdentityId(via) for (via,) in _senders.rows(connection, instance=instance)]


_IS_OF_INSTANCE: Final = deliveries.c.instance == bindparam("instance")
_IS_ELSEWHERE: Final = deliveries.c.wanted < LOCAL_DELIVERY
_sent_to: Final = Compiled(
    lambda _: (
        select(deliveries.c.recipient)
        .where(_IS_OF_INSTANCE, deliveries.c.via == bindparam("via"), _IS_ELSEWHERE)
        .order_by(deliveries.c.place)
    )
)
_senders: Final = Compiled(
    lambda _: select(deliveries.c.via).where(_IS_OF_INSTANCE, _IS_ELSEWHERE).distinct().order_by(deliveries.c.via)
)


_MAY_SEND: Final = deliveries.c.via.not_in(LEAVING)


def waiting_recipients(connection: Connection) -> list[IdentityId]:
    """Everyone to whom something is due, those aside whose senders are about to leave for another node."""
    return [IdentityId(recipient) for (recipient,) in _recipients.rows(connection)]


_recipients: Final = Compiled(
    lambda _: (
        select(deliveries.c.recipient)
        .where(deliveries.c.state == "waiting", _MAY_SEND)
        .distinct()
        .order_by(deliveries.c.recipient)
    )
)


def list_due_deliveries(
    connection: Connection, recipients: Iterable[IdentityId], limit: int = _AT_ONCE
) -> list[DueDelivery]:
    """What is due to these recipients, oldest first, all on behalf of the sender of the oldest.

    The deliveries of a sender who is about to leave for another node rest.
    """
    wanted_by = list(recipients)
    first = _first_sender.rows(connection, wanted_by)
    if not first:
        return []
    return [
        DueDelivery(position, Hash(instance), IdentityId(recipient), IdentityId(via), *rest)
        for position, instance, recipient, via, *rest in _dues.rows(connection, wanted_by, via=first[0][0], most=limit)
    ]


_IS_WAITING: Final = deliveries.c.state == "waiting"
_OLDEST_FIRST: Final = (deliveries.c.queued, deliveries.c.place)
_first_sender: Final = CompiledList(
    lambda recipients: (
        select(deliveries.c.via)
        .where(_IS_WAITING, deliveries.c.recipient.in_(recipients), _MAY_SEND)
        .order_by(*_OLDEST_FIRST)
        .limit(1)
    )
)
_dues: Final = CompiledList(
    lambda recipients: (
        select(deliveries.c.place, *(deliveries.c[name] for name in DueDelivery.__slots__[1:]))
        .where(_IS_WAITING, deliveries.c.recipient.in_(recipients), deliveries.c.via == bindparam("via"))
        .order_by(*_OLDEST_FIRST)
        .limit(bindparam("most"))
    )
)


def record_delivery(
    connection: Connection,
    due: DueDelivery,
    state: DeliveryStatus,
    *,
    delivered: int | None = None,
    code: str | None = None,
    now: int,
) -> None:
    """Record the state of a delivery; what was queued meanwhile stays waiting, behind what others wait for."""
    reached = due.delivered if delivered is None else max(due.delivered, delivered)
    values = {"of_position": due.queue_position, "reached": reached, "new_code": code, "now": now}
    _finish.run(connection, **values, asked=due.wanted, asked_at=due.queued, new_state=state)
    if state == "held":  # what was put aside may be gone by the time it is sent again
        _wait_again.run(connection, of_position=due.queue_position, now=now)
    else:
        _put_progress.run(connection, **values)


_IS_AT: Final = deliveries.c.place == bindparam("of_position")
_PROGRESS: Final[dict[str, Any]] = {
    "delivered": bindparam("reached"),
    "code": bindparam("new_code"),
    "changed": bindparam("now"),
}
_finish: Final = Compiled(
    lambda _: (
        update(deliveries)
        .where(
            _IS_AT,
            or_(deliveries.c.wanted <= bindparam("asked"), deliveries.c.wanted <= bindparam("reached")),
            deliveries.c.queued == bindparam("asked_at"),
        )
        .values(_PROGRESS | {"state": bindparam("new_state")})
    )
)
_put_progress: Final = Compiled(
    lambda _: update(deliveries).where(_IS_AT, _IS_WAITING).values(_PROGRESS | {"queued": bindparam("now")})
)
_wait_again: Final = Compiled(lambda _: update(deliveries).where(_IS_AT, _IS_WAITING).values(queued=bindparam("now")))


_OF_BRANCHES: Final = ("log.forked", "log.other-branch", "log.key-revoked")
"""Why a receiver refuses what another end of the author's key lets count."""


def send_ended_again(connection: Connection, author: PublicKey, now: int) -> None:
    """Send again what other nodes need to see how far the logs of a key count, since that has changed.

    Of each log the newest instance goes once more to everybody elsewhere who has one of it, for the pool of the pin
    travels with it; and so does whatever they have refused because of another branch or end.
    """
    of_author = and_(logs.c.author == author, logs.c.log_id > 0, deliveries.c.wanted < LOCAL_DELIVERY)
    joined = deliveries.join(entries, entries.c.hash == deliveries.c.instance).join(logs, logs.c.id == entries.c.log)
    newest = (
        select(func.max(deliveries.c.place))
        .select_from(joined)
        .where(of_author, deliveries.c.state == "delivered")
        .group_by(deliveries.c.via, deliveries.c.recipient, logs.c.id)
    )
    is_refused = and_(deliveries.c.state == "refused", deliveries.c.code.in_(_OF_BRANCHES))
    refused = select(deliveries.c.place).select_from(joined).where(of_author, is_refused)
    again = {"state": "waiting", "delivered": 0, "queued": now}
    for some in in_lists([*connection.scalars(newest), *connection.scalars(refused)]):
        connection.execute(update(deliveries).where(deliveries.c.place.in_(some)).values(again))


def retry_unapproved(connection: Connection, via: IdentityId, recipient: IdentityId, now: int) -> None:
    """Send again what waits for the approval of a recipient elsewhere: they have accepted the sender."""
    _retry(connection, via, recipient, deliveries.c.state == "held", {"delivered": 0}, now)


def list_unapproved_here(connection: Connection, via: IdentityId, recipient: IdentityId) -> list[Hash]:
    """What a recipient of this node was sent by another one of it and, as far as the sender knows, waits."""
    is_theirs = and_(
        deliveries.c.via == via, deliveries.c.recipient == recipient, deliveries.c.wanted == LOCAL_DELIVERY
    )
    query = select(deliveries.c.instance).where(is_theirs, deliveries.c.state == "held").order_by(deliveries.c.place)
    return [Hash(instance) for instance in connection.scalars(query)]


def retry_refused(connection: Connection, via: IdentityId, recipient: IdentityId, code: str, now: int) -> None:
    """Send again what a recipient's node refused for a reason that has gone."""
    is_refused = and_(deliveries.c.state == "refused", deliveries.c.code == code)
    _retry(connection, via, recipient, is_refused, {"code": None}, now)


def _retry(
    connection: Connection,
    via: IdentityId,
    recipient: IdentityId,
    is_stopped: ColumnElement[bool],
    values: dict[str, Any],
    now: int,
) -> None:
    is_theirs = and_(deliveries.c.via == via, deliveries.c.recipient == recipient, _IS_ELSEWHERE)
    # What is under way may have been put aside or refused before: a receipt that says so is out of date.
    connection.execute(update(deliveries).where(is_theirs, _IS_WAITING).values(queued=now))
    values |= {"state": "waiting", "queued": now, "changed": now}
    connection.execute(update(deliveries).where(is_theirs, is_stopped).values(values))


def forget_progress(connection: Connection, due: DueDelivery) -> None:
    """Send all of an instance at the next try: the recipient lacks the create."""
    connection.execute(update(deliveries).where(deliveries.c.place == due.queue_position).values(delivered=0))


def states_of(connection: Connection, instance: Hash) -> list[DeliveryState]:
    """How far an instance has come, recipient by recipient."""
    query = select(deliveries).where(deliveries.c.instance == instance).order_by(deliveries.c.place)
    return [_state(row) for row in connection.execute(query)]


def newest_states_via(connection: Connection, via: IdentityId, limit: int) -> list[tuple[Hash, DeliveryState]]:
    """What an identity of this node has sent, what changed last first."""
    query = select(deliveries).where(deliveries.c.via == via)
    newest = query.order_by(deliveries.c.changed.desc(), deliveries.c.place).limit(limit)
    return [(Hash(row.instance), _state(row)) for row in connection.execute(newest)]


def _state(row: Any) -> DeliveryState:
    identities = IdentityId(row.recipient), IdentityId(row.via)
    return DeliveryState(*identities, row.state, row.wanted, row.delivered, row.code, row.changed)


# Queues


@dataclass(frozen=True, slots=True)
class QueueBackoff:
    """Why the queue of a target waits, and until when."""

    failures: int
    next_try: int
    failing_since: int
    error: str


def read_backoffs(connection: Connection) -> dict[str, QueueBackoff]:
    """The queues that failed last time."""
    return {target: QueueBackoff(*values) for target, *values in _backoffs.rows(connection)}


_backoffs: Final = Compiled(lambda _: select(targets.c.target, *(targets.c[name] for name in QueueBackoff.__slots__)))


def put_backoff(connection: Connection, target: str, backoff: QueueBackoff) -> None:
    """Let the queue of a target wait."""
    put_row(connection, targets, {"target": target, **asdict(backoff)})


def clear_backoff(connection: Connection, target: str) -> None:
    """Let the queue of a target go on."""
    _clear.run(connection, queue=target)


_clear: Final = Compiled(lambda _: delete(targets).where(targets.c.target == bindparam("queue")))


def forget_old_backoffs(connection: Connection, due_before: int) -> None:
    """Forget the failures of queues that should have been tried long ago: nothing waits in them any more."""
    connection.execute(delete(targets).where(targets.c.next_try < due_before))


def give_up_deliveries(
    connection: Connection, recipients: Collection[IdentityId], queued_before: int, code: str, now: int
) -> None:
    """Give up deliveries that have waited since before a time; their author sees it, and may send them again."""
    values = {"state": "given-up", "code": code, "changed": now}
    for some in in_lists(recipients):
        is_old = deliveries.c.recipient.in_(some) & (deliveries.c.queued < queued_before)
        connection.execute(update(deliveries).where(_IS_WAITING, is_old).values(values))


def count_waiting_deliveries(connection: Connection) -> int:
    """How many deliveries are under way."""
    query = select(func.count()).select_from(deliveries).where(deliveries.c.state == "waiting")
    return connection.scalar(query) or 0


# Moves in relations that the other side has not received yet: the newest of each side (docs/protocol.md section 7).


class QueuedMove(NamedTuple):
    """A move to be sent."""

    id: int
    me: IdentityId
    other: IdentityId
    move: str


def queue_move(
    connection: Connection, me: IdentityId, other: IdentityId, move: str, *, as_follower: bool, now: int
) -> None:
    """Queue a move of ours for the other side, instead of an earlier one on this side of the relation."""
    is_it = and_(notices.c.me == me, notices.c.other == other, notices.c.as_follower.is_(as_follower))
    connection.execute(delete(notices).where(is_it))
    row = {"me": me, "other": other, "as_follower": as_follower, "move": move, "queued": now}
    # With a number of its own: a worker that is sending the earlier one must not remove this one with it.
    if connection.execute(insert_new(connection, notices).returning(notices.c.id), row).first() is None:
        raise RetryTransaction  # another process has queued one meanwhile


def list_move_recipients(connection: Connection) -> list[IdentityId]:
    """Everyone for whom a move is queued that may be sent."""
    return [IdentityId(other) for (other,) in _others.rows(connection)]


def list_due_moves(connection: Connection, others: Collection[IdentityId]) -> list[QueuedMove]:
    """The moves that are queued for these identities, in order; of those who are about to leave, none."""
    rows = _due.rows(connection, list(others))
    return [QueuedMove(number, IdentityId(me), IdentityId(other), move) for number, me, other, move in rows]


# The outbox asks for these in every round, and most of the time there are none.
_others: Final = Compiled(lambda _: select(notices.c.other).where(notices.c.me.not_in(LEAVING)).distinct())
_due: Final = CompiledList(
    lambda others: (
        select(notices.c.id, notices.c.me, notices.c.other, notices.c.move)
        .where(notices.c.other.in_(others), notices.c.me.not_in(LEAVING))
        .order_by(notices.c.id)
    )
)


def find_queued_moves(connection: Connection, me: IdentityId, other: IdentityId) -> list[QueuedMove]:
    """The moves of an identity of this node that are queued for another identity."""
    return [move for move in list_due_moves(connection, [other]) if move.me == me]


def forget_old_moves(connection: Connection, others: Collection[IdentityId], queued_before: int) -> None:
    """Give up moves that have waited since before a time."""
    for some in in_lists(others):
        connection.execute(delete(notices).where(notices.c.other.in_(some), notices.c.queued < queued_before))


def remove_queued_moves(connection: Connection, sent: Collection[QueuedMove]) -> None:
    """Remove moves that were received; one queued meanwhile has a number of its own and stays."""
    connection.execute(delete(notices).where(notices.c.id.in_([move.id for move in sent])))


def is_queued_for(connection: Connection, instance: Hash, recipient: IdentityId) -> bool:
    """Whether an instance was ever queued for a recipient, delivered or not."""
    return _queued_for.first(connection, instance=instance, recipient=recipient) is not None


_queued_for: Final = Compiled(
    lambda _: (
        select(deliveries.c.place)
        .where(deliveries.c.instance == bindparam("instance"), deliveries.c.recipient == bindparam("recipient"))
        .limit(1)
    )
)


def has_sent_to(connection: Connection, via: IdentityId, recipient: IdentityId) -> bool:
    """Whether an identity has ever sent a recipient anything."""
    return _any_between.first(connection, via=via, recipient=recipient) is not None


_any_between: Final = Compiled(
    lambda _: (
        select(deliveries.c.place)
        .where(deliveries.c.via == bindparam("via"), deliveries.c.recipient == bindparam("recipient"))
        .limit(1)
    )
)


def keep_queued_elsewhere(connection: Connection, instances: Collection[Hash]) -> set[Hash]:
    """Those of the instances that were ever queued for a recipient on another node."""
    return {Hash(found) for some in in_lists(instances) for (found,) in _queued_elsewhere.rows(connection, some)}


_queued_elsewhere: Final = CompiledList(
    lambda instances: (
        select(deliveries.c.instance)
        .where(deliveries.c.instance.in_(instances), deliveries.c.wanted < LOCAL_DELIVERY)
        .distinct()
    )
)

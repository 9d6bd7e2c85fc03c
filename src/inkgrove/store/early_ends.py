"""Ends of instances that were told before their creates arrived.

A delivery whose sender gave it up can arrive minutes later, after the sender has told the end and was answered that
nothing of the kind is here. What ended stays ended, so it is remembered as long as such a request can still be valid.
"""

from sqlalchemy import Connection, and_, delete, or_, select

from inkgrove.core import Hash, PublicKey
from inkgrove.messages import InstanceRef
from inkgrove.store.database import insert_new
from inkgrove.store.federation_tables import early_ends


def note_end(
    connection: Connection, author: PublicKey, log_id: int, instance: InstanceRef, expires: int, now: int
) -> None:
    """Remember that an author has ended an instance of a log; forget what has expired."""
    row = {"author": author, "log_id": log_id, "instance": str(instance)}
    is_it = and_(*(early_ends.c[name] == value for name, value in row.items()))
    connection.execute(delete(early_ends).where(or_(early_ends.c.expires <= now, is_it)))
    connection.execute(insert_new(connection, early_ends).values(**row, expires=expires))  # it may come twice at once


def has_ended(connection: Connection, author: PublicKey, log_id: int, instance: Hash, seq_num: int) -> bool:
    """Whether the end of an instance was told in the very log that it begins in, at this place."""
    query = select(early_ends.c.instance).where(
        early_ends.c.author == author,
        early_ends.c.log_id == log_id,
        early_ends.c.instance.in_([str(instance), str(seq_num)]),
    )
    return connection.execute(query).first() is not None

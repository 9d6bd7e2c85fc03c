"""How far the logs of revoked keys count."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """From logs that did not know that their key was revoked; views hear of it by what happened."""
    op.add_column("logs", sa.Column("revoked_after", sa.BigInteger))
    connection = op.get_bind()
    keys = connection.execute(sa.text("SELECT author, revoked FROM identity_keys WHERE revoked IS NOT NULL")).all()
    for author, revoked in keys:
        ends = dict(json.loads(revoked))
        query = sa.text("SELECT id, log_id, height FROM logs WHERE author = :author AND log_id > 0")
        for log, log_id, height in connection.execute(query, {"author": author}).all():
            last = ends.get(log_id, 0)
            change = sa.text("UPDATE logs SET revoked_after = :last WHERE id = :log")
            connection.execute(change, {"last": last, "log": log})
            if height > last:
                note = sa.text("INSERT INTO ingests (what, log, seq_num) VALUES ('ended', :log, :first)")
                connection.execute(note, {"log": log, "first": last + 1})

"""Runs the steps on the connection that `opening` hands over, inside its transaction."""

from alembic import context

from inkgrove.store import node_tables as _all_tables  # noqa: F401
from inkgrove.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()

"""Runs the steps on the connection that `opening` hands over, inside its transaction."""

from alembic import context

from inkgrove.store import federation_tables as _of_sharing  # noqa: F401
from inkgrove.store import node_tables as _of_the_node  # noqa: F401
from inkgrove.store import rot_tables as _of_rot  # noqa: F401
from inkgrove.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()

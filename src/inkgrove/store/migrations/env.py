"""Runs the steps on the connection that `store/logs/log_store.py` hands over, inside its transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()

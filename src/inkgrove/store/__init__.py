"""Logs in a database, SQLite or PostgreSQL (docs/protocol.md sections 2, 5, 6 and 10)."""

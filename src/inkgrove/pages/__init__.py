"""The pages of a node for people: rendered on the server, over the same use cases as the HTTP API (docs/pages.md)."""

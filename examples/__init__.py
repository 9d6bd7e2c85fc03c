"""Things to run and to learn from."""

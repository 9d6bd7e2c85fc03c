"""The `inkgrove` command: a module for each group of commands or a few small ones."""

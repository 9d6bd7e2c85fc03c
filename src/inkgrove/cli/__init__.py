"""The `inkgrove` command, one file per group."""

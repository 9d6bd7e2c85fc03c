"""The fungi: each lets copies lose their freshness in its own way, one file each."""

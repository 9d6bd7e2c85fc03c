"""HTTP routes over the use cases of the node."""

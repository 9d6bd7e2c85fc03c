"""Between nodes: finding and trusting each other, and the requests that they send."""

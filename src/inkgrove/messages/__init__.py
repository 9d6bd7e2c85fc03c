"""What is inside the entries: the strict CBOR profile and the messages as values."""

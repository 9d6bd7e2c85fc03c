"""Bytes and proofs: no I/O, no clock, no randomness of its own."""

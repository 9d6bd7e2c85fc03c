"""Measurements: `make bench`. Every row is a ratio to a baseline in the same run, for machines are noisy."""

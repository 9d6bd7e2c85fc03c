"""Identities that move from one node to another: `departures` is what the old node does (docs/protocol.md 7.10)."""

from inkgrove.node.moving.departures import Departure, Departures, GivenGrant

__all__ = ["Departure", "Departures", "GivenGrant"]

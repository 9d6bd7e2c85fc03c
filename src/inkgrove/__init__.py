"""Inkgrove: signed logs in, live tables out."""

__version__ = "0.2.0"

"""Inkgrove: signed logs in, live tables out."""

__version__ = "0.1.0"

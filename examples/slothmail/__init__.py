"""Slothmail: a mail client in the browser that knows nothing of Inkgrove but its HTTP API."""

"""Unattended, safe maintenance for Omnigraph graphs: check, recover, optimize, repair, cleanup."""

__version__ = "0.3.5"

"""Freezes: take and end them, list what a cut consists of, and say what of it is gone.

No names are gathered here: `window` asks `refuse` before every effect, and the rest builds on stages above it.
"""

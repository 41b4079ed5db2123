"""Freezes: take and end them, list what a cut consists of, and say what of it is gone."""

"""Backups: copy a frozen cut elsewhere, prove that the copy is whole, and make a graph of it again.

No names are gathered here, as in `freeze`, on which this builds.
"""

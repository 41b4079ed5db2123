"""What a misspelled word may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from omnigraph_ops.errors import UnknownTable

_MOST = 3
_LIKENESS = 0.7
"""Below it `node:Foo` would be taken for `node:Bar`."""


def did_you_mean(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """`; did you mean 'optimize'?` for a word that is nearly a known one, else nothing. Pure.

    Args:
        prefix: what all of them begin with, which makes none of them like another.
    """
    by_folded = {name.removeprefix(prefix).casefold(): name for name in known}
    close = difflib.get_close_matches(word.removeprefix(prefix).casefold(), by_folded, n=_MOST, cutoff=_LIKENESS)
    named = [repr(by_folded[found]) for found in close]
    return f"; did you mean {' or '.join(named)}?" if named else ""


def unknown_table(where: str, table_key: str, known: Iterable[str], untouched: str) -> UnknownTable:
    """The refusal of a table key, with the tables that are there and those that it may mean. Pure."""
    keys = sorted(known)
    return UnknownTable(
        f"{where} has no table {table_key!r}; it has {', '.join(keys) or 'none'}; {untouched}"
        f"{did_you_mean(table_key, keys)}"
    )

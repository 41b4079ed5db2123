"""What a misspelled word may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST = 3


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'optimize'?` for a word that is nearly a known one, else nothing. Pure."""
    by_folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold(), by_folded, n=_MOST)
    named = [repr(by_folded[found]) for found in close]
    return f"; did you mean {' or '.join(named)}?" if named else ""

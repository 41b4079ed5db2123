"""Tables as CSV that no spreadsheet takes for formulas. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from omnigraph_ops.views.view import View

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def tables(view: View) -> str:
    """The tables of a view, each with its header, an empty line between two of them. Pure."""
    return "\n\n".join(table(section.header, section.rows) for section in view.sections if section.header)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """One table with its header, without a newline at the end. Pure."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue().removesuffix("\n")


def _cell(value: object) -> object:
    """A text that a spreadsheet would compute is shown instead. Pure."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value

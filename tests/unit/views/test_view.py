"""Tables as CSV that a spreadsheet does not compute."""

from __future__ import annotations

import csv
import io

from omnigraph_ops.views.view import Section, View, csv_table, csv_tables


def test_formulas_and_separators_are_only_text() -> None:
    written = csv_table(("a", "b"), [("=cmd|x", 1.5), ('x,"y"\nz', None)])
    assert list(csv.reader(io.StringIO(written))) == [["a", "b"], ["'=cmd|x", "1.5"], ['x,"y"\nz', ""]]
    assert not written.endswith("\n")


def test_a_view_is_its_tables_with_all_their_rows() -> None:
    rows = tuple((str(n),) for n in range(3))
    view = View(
        title="t",
        facts=(("Runs", "3"),),
        sections=(
            Section(title="Said", lines=("not in a table",)),
            Section(title="One", header=("n",), rows=rows, most=1),
            Section(title="Two", header=("x", "y"), rows=()),
        ),
    )
    assert csv_tables(view) == "n\n0\n1\n2\n\nx,y"

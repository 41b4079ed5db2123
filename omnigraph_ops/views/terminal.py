"""A view for a terminal."""

from __future__ import annotations

from typing import TextIO

from omnigraph_ops.views.view import View


def show(view: View, stream: TextIO) -> None:
    """Print a view. Writes."""
    from omnigraph_ops.outcomes.history.render_text import text

    print(text(view), file=stream, flush=True)

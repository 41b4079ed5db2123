"""Demo graphs that are written once per spec and copied from then on."""

from __future__ import annotations

import shutil
from pathlib import Path

from omnigraph_ops.demo import DemoSpec, write_demo_graph


class Templates:
    """A folder of finished demo graphs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[DemoSpec, Path] = {}

    def copy(self, spec: DemoSpec, root: Path) -> None:
        """Put a graph of that spec at `root`. Writes."""
        if spec.lazy_branches or spec.written_branches:
            # Lance branches record the absolute root they were made at, so a copy would read its template.
            write_demo_graph(str(root), spec)
            return
        if spec not in self._written:
            template = self._folder / f"graph-{len(self._written)}"
            write_demo_graph(str(template), spec)
            self._written[spec] = template
        shutil.copytree(self._written[spec], root)

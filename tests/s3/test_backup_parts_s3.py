"""A backup whose files are copied in parts, to and within an object store."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.graph import open_graph
from omnigraph_ops.outcomes.backups import backup_of, read_record
from omnigraph_ops.stages.backup import parts
from omnigraph_ops.stages.backup.parts import SubmittedCopy, copy_part, joined, read_order
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.stages.freeze.take import freeze_graph
from tests.support.rows import rows_everywhere

pytestmark = pytest.mark.s3
SPEC = DemoSpec(node_types=1, loads=1, rows=6, written_branches=1)


def in_parts(job: str, arguments: Sequence[str], value: type[Any], check: Callable[[], None]) -> Any:
    """The job `copy`, its parts worked off in this process."""
    storage, backup_id = backup_of(arguments[1])
    order = read_order(storage, backup_id)
    numbers = range(1, order.parts + 1)
    return functools.reduce(joined, (copy_part(storage.root, order, n, None, again=False) for n in numbers))


@pytest.mark.night
@pytest.mark.parametrize("checksum", [False, True], ids=["by the store", "with checksums"])
def test_parts_make_the_backup_that_one_process_makes(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, checksum: bool
) -> None:
    monkeypatch.setattr(parts, "_PART_FILES", 9)
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    on_disk = open_graph(str(tmp_path / "graph"), Settings())
    first = backup_graph(on_disk, f"{bucket}/first", copier=SubmittedCopy(submit=in_parts))
    restore_backup(first.backup, f"{bucket}/graph", settings=Settings())
    graph = open_graph(f"{bucket}/graph", Settings())
    options = BackupOptions(freeze_id=freeze_graph(graph).freeze_id, checksum=checksum)
    here = backup_graph(graph, f"{bucket}/here", options)
    there = backup_graph(graph, f"{bucket}/there", options, copier=SubmittedCopy(submit=in_parts))
    one, other = (read_record(*backup_of(report.backup)) for report in (here, there))
    assert (one.files, one.roots, one.rows) == (other.files, other.roots, other.rows)
    assert all((file.checksum is not None) is checksum for file in other.files)
    assert (verify_backup(there.backup).problems, here.copied) == ((), there.copied)
    assert rows_everywhere(open_graph(f"{bucket}/graph", Settings())) == rows_everywhere(on_disk)

"""A full disk, a read-only file system and missing credentials at the shell: one sentence with what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.sidecars import sidecar_names
from omnigraph_ops.lance.fragment_rows import FragmentRows
from omnigraph_ops.models.health import CheckStatus
from omnigraph_ops.stages.recovery.check import check
from tests.conftest import DemoGraph
from tests.support.edges import raising, when_asked
from tests.support.rows import rows_everywhere, tree_of
from tests.support.shell import runner

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"loads": 4, "rows": 200, "node_types": 1}
MOUNTED = """
mount -t tmpfs -o size={size}k tmpfs "{place}" && cp -r "{graph}" "{place}/g" && {between} && {command}
code=$?; cp -r "{place}/g" "{place}.after" 2>/dev/null; exit $code
"""


def may_mount() -> bool:
    """Whether this account may have mounts of its own, in a namespace that ends with the process."""
    unshare = shutil.which("unshare")
    command = [unshare or "false", "-rm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not may_mount(), reason="mounts need user namespaces")


def shell(*arguments: str, variables: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    return subprocess.run(
        list(arguments),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**env, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **(variables or {})},
    )


def on_small_disk(graph: str, place: Path, verb: str, *, spare: int, between: str = "true") -> tuple[int, str]:
    """Run a verb on a copy of the graph in a file system of its own with so many KiB to spare."""
    place.mkdir()
    used = sum(-(-f.stat().st_size // 4096) * 4 for f in Path(graph).rglob("*"))
    name, *flags = verb.split()
    command = f'"{sys.executable}" -m omnigraph_ops {name} "{place}/g" {" ".join(flags)}'
    script = MOUNTED.format(size=used + spare, place=place, graph=graph, between=between, command=command)
    ran = shell("unshare", "-rm", "sh", "-c", script)
    return ran.returncode, ran.stdout + ran.stderr


def assert_plain(text: str) -> None:
    """No traceback, no source of Lance."""
    assert "Traceback" not in text
    assert "unexpected" not in text
    assert ".rs:" not in text
    assert len([line for line in text.splitlines() if line.startswith("Error: ")]) == 1, text


@needs_mounts
def test_a_full_disk_is_one_sentence_and_costs_no_row(demo_graph: DemoGraph, tmp_path: Path, stamp: int) -> None:
    graph = demo_graph(stamp=stamp, **SMALL)
    rows = rows_everywhere(graph)
    code, text = on_small_disk(graph.uri, tmp_path / "disk", "optimize", spare=60)
    assert code == 1, text
    assert "No space left on device" in text
    assert "free space there, then run again" in text
    assert_plain(text)
    assert rows_everywhere(open_graph(f"{tmp_path}/disk.after")) == rows


@needs_mounts
def test_too_little_space_for_a_publish_is_said_before_the_engine_is_kept_out(
    demo_graph: DemoGraph, tmp_path: Path, stamp: int
) -> None:
    """A sidecar on a full disk would be recovered by nobody, and the engine opens no graph before that."""
    graph = demo_graph(stamp=stamp, **SMALL)
    code, text = on_small_disk(graph.uri, tmp_path / "disk", "optimize", spare=3500)
    assert code == 1, text
    assert "No space left on device for a publish" in text
    assert "nothing was published; free space there, then run again" in text
    assert_plain(text)
    after = open_graph(f"{tmp_path}/disk.after")
    assert (check(after).status, sidecar_names(after.storage)) == (CheckStatus.CLEAN, frozenset())


@needs_mounts
def test_a_full_temporary_folder_fails_its_tables_and_is_named(demo_graph: DemoGraph, tmp_path: Path) -> None:
    graph, place = demo_graph(**SMALL), tmp_path / "small"
    place.mkdir()
    command = f'TMPDIR="{place}" "{sys.executable}" -m omnigraph_ops optimize "{graph.uri}"'
    ran = shell("unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=8k tmpfs "{place}" && {command}')
    assert ran.returncode == 1, ran.stderr
    assert f"cannot write to the temporary folder {place}: " in ran.stdout, ran.stdout
    assert "No space left on device" in ran.stdout
    assert "set TMPDIR to a folder with space" in ran.stdout
    assert_plain(ran.stderr)


def test_a_missing_temporary_folder_is_said_before_an_index_is_built(demo_graph: DemoGraph) -> None:
    graph = demo_graph(**SMALL)
    ran = shell(sys.executable, "-m", "omnigraph_ops", "optimize", graph.uri, variables={"TMPDIR": "/nowhere"})
    assert ran.returncode == 1, ran.stderr
    assert "cannot write to the temporary folder /nowhere: there is no such folder" in ran.stdout
    assert "panicked" not in ran.stderr
    assert_plain(ran.stderr)


@needs_mounts
@pytest.mark.parametrize("verb", ["optimize", "cleanup --keep 1 --confirm", "freeze"])
def test_a_read_only_file_system_is_named(demo_graph: DemoGraph, tmp_path: Path, verb: str) -> None:
    graph = demo_graph(**SMALL)
    place = tmp_path / "disk"
    code, text = on_small_disk(graph.uri, place, verb, spare=4000, between=f'mount -o remount,bind,ro "{place}"')
    assert code == 1, text
    assert "Read-only file system" in text
    assert "mount that file system writable, or name another place" in text
    assert_plain(text)
    assert tree_of(f"{place}.after") == tree_of(graph.uri)


@pytest.mark.night("all but one")
@pytest.mark.parametrize("verb", ["check", "optimize", "cleanup --keep 1 --confirm --yes"])
def test_missing_credentials_are_named_with_the_place(verb: str) -> None:
    name, *flags = verb.split()
    variables = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null"}
    variables |= {"AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    ran = shell(
        sys.executable, "-m", "omnigraph_ops", name, "s3://no-such-bucket-of-ours/g", *flags, variables=variables
    )
    assert ran.returncode == 1
    assert "s3://no-such-bucket-of-ours/g: no credentials for S3 were found; set AWS_ACCESS_KEY_ID" in ran.stderr
    assert_plain(ran.stderr)


def test_a_graph_that_may_not_be_read_is_not_called_damaged(
    demo_graph: DemoGraph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = demo_graph(**SMALL)
    when_asked(monkeypatch, FragmentRows, "of", raising(OSError("Permission denied (os error 13)")), times=None)
    said = runner(capsys)("check", graph.uri).err
    assert "cannot read the graph manifest" in said
    assert "Permission denied (os error 13); no row is lost; give this account the rights" in said
    assert "restore it from a backup" not in said

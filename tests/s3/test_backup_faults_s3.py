"""Backup, verify and restore where a store refuses, cuts short, or claims a copy that it did not make."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.config.terms import BackupOptions
from omnigraph_ops.coordination.environment import refuse_unsafe_store
from omnigraph_ops.coordination.freezes import unfreeze
from omnigraph_ops.coordination.holds import freezes
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import CorruptGraph, StorageError
from omnigraph_ops.graph import open_graph
from omnigraph_ops.graph.graph import Graph
from omnigraph_ops.graph.layout import new_ulid
from omnigraph_ops.models.backup import BackupState
from omnigraph_ops.outcomes.backups import list_backups
from omnigraph_ops.progress import Lines
from omnigraph_ops.stages.backup.claim import own_freeze
from omnigraph_ops.stages.backup.parts import SubmittedCopy
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.stage import restore_view
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.backup.transfer import CopyPace
from omnigraph_ops.stages.backup.verify import verify_backup
from omnigraph_ops.storage import copying
from omnigraph_ops.storage.store import Storage
from tests.s3.test_backup_parts_s3 import in_parts
from tests.support.fault_proxy import Fault, FaultProxy, faulty
from tests.support.rows import rows_everywhere
from tests.support.s3 import s3_client, upload_graph

pytestmark = pytest.mark.s3
SPEC = DemoSpec(node_types=1, loads=1, rows=6)
NODE_DATA = r"/nodes/[^/]*/data/[^/]*\.lance$"


@pytest.fixture
def proxy(s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What every request of the test goes through."""
    with faulty(s3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        yield proxy


@pytest.fixture
def graph(proxy: FaultProxy, tmp_path: Path) -> Graph:
    """A graph in a bucket of its own."""
    write_demo_graph(str(tmp_path / "graph"), SPEC)
    return open_graph(upload_graph(tmp_path / "graph"), Settings())


def bucket_of(graph: Graph) -> str:
    return graph.uri.removesuffix("/graphs/kb.omni")


def test_a_store_that_knows_no_conditional_puts_is_refused(proxy: FaultProxy, graph: Graph) -> None:
    proxy.faults.append(Fault(matches="PUT .*/probe-", status=501, code="NotImplemented"))
    with pytest.raises(
        StorageError, match=r"does not honour conditional puts.*; nothing was written; use a store that"
    ):
        refuse_unsafe_store(graph.storage)


def shorten(request: str) -> None:
    """Cut the object that the store is asked to copy. Writes."""
    bucket, _, key = request.partition(" COPY ")[2].lstrip("/").partition("/")
    whole = s3_client().get_object(Bucket=bucket, Key=key)["Body"].read()
    s3_client().put_object(Bucket=bucket, Key=key, Body=whole[: len(whole) // 2])


@pytest.mark.night("all but one")
@pytest.mark.parametrize("harm", ["claimed", "shortened"])
def test_a_copy_that_the_store_did_not_make_is_no_restore(proxy: FaultProxy, graph: Graph, harm: str) -> None:
    made, rows = backup_graph(graph, f"{bucket_of(graph)}/backups"), rows_everywhere(graph)
    place, copies = f"{bucket_of(graph)}/restored", f"PUT .* COPY .*{NODE_DATA}"
    fault = Fault(matches=copies, status=200) if harm == "claimed" else Fault(matches=copies, before=shorten)
    fault.times = 1
    proxy.faults.append(fault)
    said = {"claimed": r"\.lance is missing", "shortened": r"\.lance has \d+ bytes instead of \d+"}[harm]
    with pytest.raises(CorruptGraph, match=f"restored/nodes/.*{said} after it was copied; there is no graph"):
        restore_backup(made.backup, place, settings=Settings())
    assert fault.hits == 1
    if harm == "claimed":
        assert restore_backup(made.backup, place, settings=Settings()).problems == ()
        assert rows_everywhere(open_graph(place, Settings())) == rows


@pytest.mark.night("all but one")
@pytest.mark.parametrize("in_tasks", [False, True], ids=["threads", "tasks"])
def test_what_the_earlier_backup_does_not_give_is_copied_from_the_graph(
    proxy: FaultProxy, graph: Graph, *, in_tasks: bool
) -> None:
    target, told = f"{bucket_of(graph)}/backups", list[str]()
    first = backup_graph(graph, target)
    archived = Fault(matches=f"PUT .* COPY .*/{first.backup_id}/.*{NODE_DATA}", status=403, code="InvalidObjectState")
    proxy.faults.append(archived)
    options = BackupOptions(incremental_from=first.backup)
    copier = {"copier": SubmittedCopy(submit=in_parts)} if in_tasks else {}
    second = backup_graph(graph, target, options, progress=Lines(told.append), **copier)
    (line,) = [line for line in told if "could not be taken from the earlier backup" in line]
    assert re.search(rf"^1 file .* from the graph: cannot copy s3://.*/{first.backup_id}/files/nodes/", line)
    assert archived.hits == 1
    assert second.linked.files > 0
    assert verify_backup(second.backup).problems == ()


def test_a_body_that_is_always_cut_is_an_error_of_the_store(proxy: FaultProxy, graph: Graph, tmp_path: Path) -> None:
    made = backup_graph(graph, f"{bucket_of(graph)}/backups")
    proxy.faults.append(Fault(matches=f"GET .*{NODE_DATA}", cut=100))
    with pytest.raises(StorageError, match=r"cannot (copy|read) s3://.*/nodes/.*\.lance"):
        backup_graph(graph, str(tmp_path / "backups"))
    (problem,) = verify_backup(made.backup).problems
    assert "/data/" in problem.file
    assert "cannot be read" in problem.reason


def test_where_nobody_may_delete_backups_and_restores_end_well(proxy: FaultProxy, graph: Graph, bucket: str) -> None:
    name, told = bucket.removeprefix("s3://"), list[str]()
    no_record = Fault(matches="PUT .*/backup.json", status=403, code="AccessDenied")
    proxy.faults += [
        no_record,
        Fault(matches=f"DELETE /{name}/", status=403, code="AccessDenied"),
        Fault(matches=f"POST /{name}/?[?]delete", status=403, code="AccessDenied"),
    ]
    with pytest.raises(StorageError, match=r"backup\.json"):
        backup_graph(graph, f"{bucket}/backups")
    no_record.times = no_record.hits
    made = backup_graph(graph, f"{bucket}/backups", progress=Lines(told.append))
    assert made.resumed
    assert [line for line in told if re.match(rf"the backup is finished; {made.backup}/journal is of no use", line)]
    assert [b.state for b in list_backups(f"{bucket}/backups").backups] == [BackupState.FINISHED]
    assert freezes(graph.storage) == ()
    report = restore_backup(made.backup, f"{bucket}/restored", settings=Settings())
    assert (report.problems, report.exit_code) == ((), 0)
    assert f"cannot delete {bucket}/restored/__maintenance/restoring.json" in str(report.note_stays)
    assert ("Note that stays", report.note_stays) in restore_view(report).facts
    assert rows_everywhere(open_graph(f"{bucket}/restored", Settings())) == rows_everywhere(graph)


@pytest.mark.night("all but one")
@pytest.mark.parametrize("target", ["s3", "disk"])
def test_a_file_that_went_is_named(proxy: FaultProxy, graph: Graph, tmp_path: Path, target: str) -> None:
    destination = f"{bucket_of(graph)}/backups" if target == "s3" else str(tmp_path / "backups")
    proxy.faults.append(Fault(matches=f"(GET .*|PUT .* COPY .*){NODE_DATA}", status=404, code="NoSuchKey"))
    with pytest.raises(CorruptGraph, match=rf"^{graph.uri}/nodes/\S*\.lance of the cut is gone; the backup"):
        backup_graph(graph, destination)


def test_a_record_that_the_store_does_not_give_is_not_called_damaged(proxy: FaultProxy, graph: Graph) -> None:
    backup_graph(graph, f"{bucket_of(graph)}/backups")
    proxy.faults.append(Fault(matches="GET .*/backup.json", status=403, code="AccessDenied"))
    (listed,) = list_backups(f"{bucket_of(graph)}/backups").backups
    assert listed.state is BackupState.UNREADABLE
    assert "AccessDenied" in listed.detail


def test_a_freeze_that_had_ended_is_not_said_to_end_by_itself(graph: Graph) -> None:
    told = list[str]()
    with own_freeze(graph, new_ulid(), None, Lines(told.append)) as freeze:
        unfreeze(graph, freeze.freeze_id)
    assert told[-1] == f"freeze {freeze.freeze_id} had ended already"


def test_a_create_that_met_another_matchesis_sent_again(proxy: FaultProxy, bucket: str) -> None:
    conflict = Fault(matches="PUT .*/key", status=409, code="ConditionalRequestConflict", times=3)
    proxy.faults.append(conflict)
    storage = Storage(bucket)
    assert [storage.create("key", b"mine"), storage.create("key", b"theirs")] == [True, False]
    assert (conflict.hits, storage.read("key")) == (3, b"mine")
    conflict.times = None
    with pytest.raises(StorageError, match=f"cannot create {bucket}/key-2: .*Conflict"):
        storage.create("key-2", b"mine")


@pytest.mark.night("all but one")
@pytest.mark.parametrize("matches", [r"PUT .*partNumber=2", r"POST .*uploadId="], ids=["last part", "completion"])
def test_an_upload_in_parts_that_fails_at_its_end_is_given_up(
    proxy: FaultProxy, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, matches: str
) -> None:
    monkeypatch.setattr(copying, "_PART", 5 * 1024 * 1024)
    (tmp_path / "large").write_bytes(os.urandom(7 * 1024 * 1024))
    fault = Fault(matches=matches, status=403, code="AccessDenied")
    proxy.faults.append(fault)
    source, target = (Storage(str(tmp_path)), "large"), (Storage(bucket), "copy")
    with pytest.raises(StorageError, match="AccessDenied"):
        copying.copy_file(source, target, copying.Expected(size=7 * 1024 * 1024), pacing=CopyPace(None))
    assert fault.hits == 1
    uploads = s3_client().list_multipart_uploads(Bucket=bucket.removeprefix("s3://")).get("Uploads")
    assert (uploads, target[0].exists("copy")) == (None, False)

"""For every accepted `s3://` address Lance and s3fs see the same keys, and the store has exactly those."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings

from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.graph import open_graph
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph
from omnigraph_ops.stages.freeze.roots import relocation
from omnigraph_ops.storage.location import locate
from omnigraph_ops.storage.store import Storage
from tests.support.addresses import KEYS, assert_one_place
from tests.support.s3 import s3_client

pytestmark = pytest.mark.s3


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=KEYS)
@example(key="")
@example(key="/")
@example(key="a[b]*{c}")
@example(key="a b/é")
def test_an_s3_address_is_one_place(bucket: str, key: str) -> None:
    try:
        place = locate(f"{bucket}/{key}")
    except InvalidInput:
        return
    assert place.root == f"{bucket}/{key}".rstrip("/"), "the key is taken as it is"
    assert_one_place(place)


@pytest.mark.night("all but one")
@pytest.mark.parametrize("segment", ["a b", 'a"b', "a{b}", "é", "a<b", "a`b"])
def test_a_graph_is_refused_under_a_key_that_engines_spell_otherwise(
    bucket: str, s3_graph: Callable[[DemoSpec], str], segment: str
) -> None:
    source, place = s3_graph(DemoSpec(node_types=1, loads=1, rows=3)), f"{bucket}/{segment}/g.omni"
    client, (bucket_of, _, prefix) = s3_client(), source.removeprefix("s3://").partition("/")
    with pytest.raises(InvalidInput, match="which engines encode"):
        open_graph(place)  # nothing is where this tool looks: 0.7.2 has its graph elsewhere
    for file in client.list_objects_v2(Bucket=bucket_of)["Contents"]:
        key = f"{segment}/g.omni/{file['Key'].removeprefix(f'{prefix}/')}"
        client.copy({"Bucket": bucket_of, "Key": file["Key"]}, bucket.removeprefix("s3://"), key)
    with pytest.raises(InvalidInput, match="cannot be maintained where it is"):
        open_graph(place)


def test_a_backup_may_lie_under_such_a_key_and_plain_lance_may_be_restored_to_one(bucket: str, tmp_path: Path) -> None:
    write_demo_graph(str(tmp_path / "g"), DemoSpec(node_types=1, loads=1, rows=3))
    graph = backup_graph(open_graph(str(tmp_path / "g")), f"{bucket}/my backups").backup
    with pytest.raises(InvalidInput, match="which engines encode"):
        restore_backup(graph, f"{bucket}/a b/g.omni")
    assert not Storage(bucket).exists("a b")
    with pytest.raises(InvalidInput, match="which engines encode"):
        list(relocation(open_graph(str(tmp_path / "g")), (), f"{bucket}/a b/g.omni"))
    assert restore_backup(graph, f"{bucket}/ab/g.omni").problems == ()
    lance.write_dataset(pa.table({"n": [1]}), str(tmp_path / "db" / "t.lance"))
    plain = backup_graph(open_graph(str(tmp_path / "db")), f"{bucket}/my backups").backup
    restore_backup(plain, f"{bucket}/é/my db")
    assert [e.table_key for e in open_graph(f"{bucket}/é/my db").state().entries] == ["table:t"]

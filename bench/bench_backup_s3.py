"""Claim: a backup to an S3 store, and its restore, take about as long as `aws s3 sync` of the same files.

The same two subjects as `bench_backup.py`, alternately by `aws s3 sync` where there is an `aws` on the PATH, by the
library beneath it (s3transfer, with its ten files at a time) and by `backup`, three times; then the same back. A
backup also sums every file and proves the cut, a restore also checks every sum and every count of rows. The store is
what `AWS_ENDPOINT_URL` and the other variables name; everything goes below the prefix that is given, and stays there.

    python bench/bench_backup_s3.py s3://bucket/prefix
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from bench_backup import large, seconds, small

from omnigraph_ops.config.settings import Settings
from omnigraph_ops.graph import Graph
from omnigraph_ops.quantities import human_bytes
from omnigraph_ops.stages.backup.restore import restore_backup
from omnigraph_ops.stages.backup.take import backup_graph

ROUNDS = 3
AT_A_TIME = 10
"""`max_concurrent_requests` of `aws s3`, as it comes."""


def files_below(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


def upload(graph: Graph, target: str) -> None:
    """Every file by s3transfer. Writes."""
    root, (bucket, prefix) = Path(graph.uri), bucket_and_key(target)
    client = boto3.client("s3")

    def one(path: Path) -> None:
        client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(root)}")

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(one, files_below(root)))


def download(graph: Graph, source: str, target: Path) -> None:
    """Every file back by s3transfer. Writes."""
    root, (bucket, prefix) = Path(graph.uri), bucket_and_key(source)
    client = boto3.client("s3")

    def one(path: Path) -> None:
        place = target / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(bucket, f"{prefix}/{path.relative_to(root)}", str(place))

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(one, files_below(root)))


def bucket_and_key(uri: str) -> tuple[str, str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return bucket, key


def aws_sync(source: str, target: str) -> None:
    """`aws s3 sync` itself. Writes."""
    subprocess.run(["aws", "s3", "sync", "--only-show-errors", source, target], check=True)


def measure(name: str, graph: Graph, folder: Path, store: str) -> None:
    """Print the ratios for one graph."""
    there: dict[str, float] = {}
    back: dict[str, float] = {}
    made: list[str] = []

    def run(best: dict[str, float], way: str, work: Callable[[], object]) -> None:
        best[way] = min(best.get(way, 1e9), seconds(work))
        subprocess.run(["sync"], check=True)

    for number in range(ROUNDS):
        key = f"{store}/{os.urandom(4).hex()}"
        if shutil.which("aws"):
            run(there, "aws s3 sync", lambda k=key: aws_sync(graph.uri, f"{k}/aws"))
            run(back, "aws s3 sync", lambda k=key, n=number: aws_sync(f"{k}/aws", str(folder / f"aws-{n}")))
        run(there, "s3transfer", lambda k=key: upload(graph, f"{k}/transfer"))
        run(back, "s3transfer", lambda k=key, n=number: download(graph, f"{k}/transfer", folder / f"transfer-{n}"))
        run(there, "backup", lambda k=key: made.append(backup_graph(graph, f"{k}/ours").backup))
        place = str(folder / f"ours-{number}")
        run(back, "restore", lambda p=place: restore_backup(made[-1], p, settings=Settings()))
    files = files_below(Path(graph.uri))
    size = sum(p.stat().st_size for p in files)
    print(f"{name}: {len(files):,} files, {human_bytes(size)}")
    for best in (there, back):
        by = best.get("aws s3 sync", best["s3transfer"])
        for way, spent in best.items():
            print(f"  {way:<12} {spent:6.2f} s, {spent / by:5.2f}, {human_bytes(int(size / spent))}/s")


def main() -> None:
    if len(sys.argv) != 2 or not sys.argv[1].startswith("s3://"):
        print("give the store: python bench/bench_backup_s3.py s3://bucket/prefix")
        return
    folder = Path(tempfile.mkdtemp())
    try:
        for name, make in (("large files", large), ("small files", small)):
            measure(name, make(folder / name.partition(" ")[0]), folder / f"{name} back", sys.argv[1].rstrip("/"))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

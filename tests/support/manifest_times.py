"""Lance manifests that say another time: what no library offers, and what a clock or a time zone can do to a table."""

from __future__ import annotations

from pathlib import Path

from omnigraph_ops.graph.lance_manifest import manifest_message, with_message


def set_commit_times(dataset: Path, seconds: int) -> int:
    """Let every version of the main chain have been committed at that moment; how many there are. Writes."""
    manifests = sorted((dataset / "_versions").glob("*.manifest"))
    for manifest in manifests:
        message = manifest_message(manifest.read_bytes())
        message.timestamp.FromSeconds(seconds)
        manifest.write_bytes(with_message(manifest.read_bytes(), message))
    return len(manifests)

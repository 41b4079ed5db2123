"""Where a graph is: one spelling of its root, used for everything this tool writes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from omnigraph_ops.errors import CorruptGraph, InvalidInput, NotAGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLocation:
    """A graph as the caller gave it and as this tool opens it."""

    given: str
    root: str
    """Absolute plain path, or `s3://bucket/prefix`; never a trailing slash."""

    @property
    def is_local(self) -> bool:
        return not self.root.startswith("s3://")

    def object_key(self, path: str) -> str:
        """The object key of a graph-relative path on S3: without the bucket. Pure."""
        _, _, prefix = self.root.removeprefix("s3://").partition("/")
        return f"{prefix}/{path}" if prefix else path

    def uri(self, path: str) -> str:
        """The dataset URI of a graph-relative path: always the plain spelling. Pure.

        Lance compares URIs as strings when it decides which files a branch protects, so no
        `file://` form and no relative path may ever reach it.
        """
        return f"{self.root}/{path}"


def below_graph(key: str, table_path: str) -> str:
    """The graph-relative path of a file that Lance names by its key in the store. Pure.

    The key's beginning is the root as the store escapes it, so only what follows the table counts.
    """
    _, found, rest = f"/{key}".rpartition(f"/{table_path}/")
    if not found:
        raise CorruptGraph(f"Lance names the file {key!r} outside of {table_path}; nothing was deleted")
    return f"{table_path}/{rest}"


def locate(target: str) -> GraphLocation:
    """Resolve a path, `file://` or `s3://` URI; `InvalidInput` for anything else. Reads the working directory."""
    text = target.strip()
    if not text:
        raise InvalidInput("no graph addressed: give a path or an s3:// URI")
    scheme = text.split("://", 1)[0].lower() if "://" in text else ""
    if scheme in {"http", "https"}:
        raise InvalidInput(
            f"{text} is a server address; maintenance needs direct storage access, give the graph's file or s3:// URI"
        )
    if scheme == "s3":
        return GraphLocation(given=target, root=text.rstrip("/"))
    if scheme == "file":
        text = unquote(urlsplit(text).path)
    elif scheme:
        raise InvalidInput(f"{text} has an unsupported scheme {scheme!r}; use a path or an s3:// URI")
    return GraphLocation(given=target, root=os.path.abspath(text))


def graph_root(cluster_root: str, graph_id: str) -> str:
    """Where a cluster keeps one of its graphs. Pure."""
    return f"{cluster_root}/graphs/{graph_id}.omni"


_TABLE_PATH = re.compile(r"(?:nodes|edges)/[0-9a-f]{16}(?:-[0-9a-f]{16})?")


def is_table_path(path: str) -> bool:
    """Whether an engine would put a table's dataset there. Pure."""
    return _TABLE_PATH.fullmatch(path) is not None


def checked_table_path(location: GraphLocation, path: str) -> str:
    """A table path from the graph manifest, refused when it leaves the graph. Reads links.

    The graph manifest is foreign input: an absolute, climbing or linked path would let it point
    our deletes at somebody else's files.
    """
    parts = path.split("/")
    if len(parts) != 2 or parts[0] not in {"nodes", "edges"} or parts[1] in {"", ".", ".."} or "\\" in path:
        raise NotAGraph(f"the graph manifest of {location.root} places a table at {path!r}, outside the graph")
    if location.is_local:
        for place in (os.path.join(location.root, parts[0]), os.path.join(location.root, path)):
            if os.path.islink(place):
                raise NotAGraph(f"{place} is a link that leads out of the graph; it is not touched")
    return path

"""Shallow clones: datasets that read files of another one, which Lance's own cleanup does not know about."""

from __future__ import annotations

import os

from omnigraph_ops.errors import InvalidInput
from omnigraph_ops.lance.errors import LanceFailure
from omnigraph_ops.lance.gateway import LanceGateway, base_roots
from omnigraph_ops.storage.location import is_elsewhere, locate


def reads_files_of(lance: LanceGateway, uri: str, other: str) -> str | None:
    """Why the dataset at `uri` must be taken for a reader of `other`'s files, None when it is none. Reads."""
    try:
        bases = base_roots(lance.open(uri))
    except LanceFailure as error:
        return f"{uri} cannot be opened, so whether it is a shallow clone of this is unknown: {error}"
    if any(_is_at(base, other) for base in bases):
        return f"the shallow clone {uri} reads files of its versions"
    return None


def _is_at(base: str, other: str) -> bool:
    """Whether a recorded root is the dataset or one of its branches, however it is spelled. Reads links."""
    try:
        place = locate(base)
    except InvalidInput:
        # Lance may resolve to this dataset what `locate` refuses to read in one way.
        return not is_elsewhere(base)
    root, whole = place.root, other
    if place.is_local and locate(other).is_local:
        root, whole = os.path.realpath(root), os.path.realpath(other)
    return root == whole or root.startswith(f"{whole}/tree/")

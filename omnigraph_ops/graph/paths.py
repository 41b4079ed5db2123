"""Which part of a graph a path is: pure names, nothing is read. What is not recognised is unknown. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from omnigraph_ops.graph.layout import INTERNAL_DATASETS, ROOT_FILES
from omnigraph_ops.storage.location import is_table_path

_PROBE = re.compile(r"__create_if_absent_probe_[0-9A-Z]{26}")
_BRANCH_SEGMENT = re.compile(r"[\w.-]+")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class Part(StrEnum):
    """What a file is within the chain (main or a branch) of a Lance dataset."""

    MANIFEST = "manifest"
    HINT = "hint"
    REF = "ref"
    DATA = "data"
    BLOB = "blob"
    DELETION = "deletion"
    INDEX = "index"
    TRANSACTION = "transaction"
    TEMPORARY = "temporary"


# In this order: a temporary name may look like the start of a final one. `.tmp…` are Lance's, `…#1` those of
# its object-store library; both are renamed before anything refers to them.
_PARTS: tuple[tuple[Part, re.Pattern[str]], ...] = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        (Part.TEMPORARY, r"(?:_versions|_transactions|_deletions|data|data/[^/]+|_refs/(?:branches|tags))/\.tmp[^/]*"),
        (Part.TEMPORARY, r"(?:_versions|_transactions|_deletions|data|data/[^/]+|_refs/(?:branches|tags))/[^/]+#\d+"),
        (Part.MANIFEST, r"_versions/(?:\d{1,20}|d\d{1,20})\.manifest"),
        (Part.HINT, r"_versions/latest_version_hint\.json"),
        (Part.REF, r"_refs/(?:branches|tags)/[^/]+\.json"),
        (Part.TRANSACTION, r"_transactions/[^/]+\.txn"),
        (Part.DELETION, r"_deletions/[^/]+\.(?:arrow|bin)"),
        (Part.BLOB, r"data/[^/]+/[^/]+\.blob"),
        (Part.DATA, r"data/[^/]+\.lance"),
        (Part.INDEX, rf"_indices/{_UUID}/.+"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceFile:
    """A file of a Lance dataset in the graph."""

    dataset: str
    branch: str | None
    """The Lance branch whose folder it is in, None for the main chain."""
    tail: str
    """Its path below that chain's folder."""
    part: Part

    @property
    def chain(self) -> str:
        return chain_folder(self.dataset, self.branch)


def chain_folder(dataset: str, branch: str | None) -> str:
    """The folder of a chain of a dataset, relative to the graph. Pure."""
    return dataset if branch is None else f"{dataset}/tree/{branch}"


def dataset_of(path: str) -> str | None:
    """The dataset folder that a path is below (or is), None for any other place. Pure."""
    first, _, rest = path.partition("/")
    if first in INTERNAL_DATASETS:
        return first
    second = rest.partition("/")[0]
    folder = f"{first}/{second}"
    return folder if is_table_path(folder) else None


def lance_file(path: str, live_branches: Collection[str], dataset: str | None = None) -> LanceFile | None:
    """What a path is in its dataset, None where no Lance layout has such a file. Pure.

    A path that two branch names could explain belongs to the live one, else to the shorter one.

    Args:
        dataset: the folder it is below, where names do not tell: plain Lance.
    """
    dataset = dataset or dataset_of(path)
    if dataset is None or not is_plain(path) or path == dataset:
        return None
    rest = path[len(dataset) + 1 :]
    if not rest.startswith("tree/"):
        return _file(dataset, None, rest)
    segments = rest.split("/")[1:]
    found = []
    for end in range(1, len(segments)):
        if _BRANCH_SEGMENT.fullmatch(segments[end - 1]) is None:
            break
        file = _file(dataset, "/".join(segments[:end]), "/".join(segments[end:]))
        # References belong to the dataset, not to one of its chains.
        if file is not None and file.part is not Part.REF:
            found.append(file)
    return next((f for f in found if f.branch in live_branches), found[0] if found else None)


def is_root_file(path: str) -> bool:
    """Whether an engine keeps a file of that name at the root of a graph. Pure."""
    return path in ROOT_FILES or _PROBE.fullmatch(path) is not None


def is_plain(path: str) -> bool:
    """Whether a path stays below the graph as it is spelled. Pure."""
    return all(segment not in {"", ".", ".."} for segment in path.split("/")) and "\\" not in path


def index_id(tail: str) -> str:
    """The uuid in the path of an index file. Pure."""
    return tail.split("/")[1]


def data_file_of_blob(tail: str) -> str:
    """The data file that a blob side file belongs to: the folder is named after it. Pure."""
    return f"data/{tail.split('/')[1]}.lance"


def _file(dataset: str, branch: str | None, tail: str) -> LanceFile | None:
    part = next((part for part, pattern in _PARTS if pattern.fullmatch(tail)), None)
    return None if part is None else LanceFile(dataset=dataset, branch=branch, tail=tail, part=part)

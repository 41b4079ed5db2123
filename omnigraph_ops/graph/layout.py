"""Names, paths and ids of a graph, the same on a file system and on S3. Pure."""

from __future__ import annotations

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from omnigraph_ops.storage.half_written import HALF_WRITTEN_END
from omnigraph_ops.storage.location import is_table_path

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def now_us() -> int:
    """Microseconds since the epoch. Reads the clock."""
    return time.time_ns() // 1000


class _Ulids:
    """Makes ULIDs; those of one millisecond sort as they were made, in whatever thread."""

    def __init__(self) -> None:
        self.begin()
        # A forked process must not go on from the same place, nor wait for a thread that it does not have.
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self._turn = threading.Lock()
        self._millis, self._randomness = 0, 0

    def fresh(self, millis: int) -> str:
        with self._turn:
            # Half of the numbers are left to count on.
            self._randomness = self._randomness + 1 if millis == self._millis else secrets.randbits(79)
            self._millis = millis
            return encode_ulid(millis, self._randomness)


_ULIDS = _Ulids()


def new_ulid(at_us: int | None = None) -> str:
    """A fresh ULID: 48 bits of milliseconds, 80 random bits, upper-case Crockford. Reads the clock.

    Those that this process makes for one millisecond sort as they were made: the entries of the audit log do.
    """
    return _ULIDS.fresh((now_us() if at_us is None else at_us) // 1000)


def encode_ulid(millis: int, randomness: int) -> str:
    """The text of a ULID from its two parts. Pure."""
    value = (millis << 80) | randomness
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(125, -1, -5))


def made_at_us(ulid: str) -> int:
    """When a ULID was made, in microseconds since the epoch, to the millisecond. Pure."""
    millis = 0
    for letter in ulid[:10]:
        millis = millis * 32 + _ALPHABET.index(letter)
    return millis * 1000


def is_ulid(text: str) -> bool:
    """Whether `text` is a canonical ULID. Pure."""
    return _ULID.fullmatch(text) is not None


MANIFEST_DIR = "__manifest"
RECOVERY_DIR = "__recovery"
MAINTENANCE_DIR = "__maintenance"
RESTORING_PATH = f"{MAINTENANCE_DIR}/restoring.json"
"""The note of a restore that has not ended."""
BACKUP_RECORD = "backup.json"
BACKUP_START = "started.json"
"""By one of these two a folder named by a ULID is a backup, finished or not."""
COMMITS_DIR = "_graph_commits.lance"
ACTORS_DIR = "_graph_commit_actors.lance"
RECOVERIES_DIR = "_graph_commit_recoveries.lance"

SCHEMA_SOURCE_FILE = "_schema.pg"
SCHEMA_IR_FILE = "_schema.ir.json"
SCHEMA_STATE_FILE = "__schema_state.json"
SCHEMA_FILES = (SCHEMA_SOURCE_FILE, SCHEMA_IR_FILE, SCHEMA_STATE_FILE)
STAGING_SUFFIX = ".staging"
ROOT_FILES = frozenset({*SCHEMA_FILES, *(name + STAGING_SUFFIX for name in SCHEMA_FILES), "__init_claim.json"})
# The last two are left over from engines before 0.4.0 and inert since.
INTERNAL_DATASETS = (
    MANIFEST_DIR,
    COMMITS_DIR,
    ACTORS_DIR,
    RECOVERIES_DIR,
    "_graph_runs.lance",
    "_graph_run_actors.lance",
)
GRAPH_FOLDERS = (*INTERNAL_DATASETS, RECOVERY_DIR)
"""Folders directly below a root that only a graph has."""

STAMP_KEY = "omnigraph:internal_schema_version"
SCHEMA_APPLY_LOCK = "__schema_apply_lock__"
EXPIRY_BRANCH_PREFIX = "omnigraph-ops-expire-"

_MAX_U64 = 2**64 - 1
_MANIFEST_NAME = re.compile(r"(\d{20})\.manifest")
_OLD_MANIFEST_NAME = re.compile(r"(\d{1,19})\.manifest")


def fnv1a64(name: str) -> str:
    """The 16 hex digits that stamp 3 derives a table folder from. Pure."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & _MAX_U64
    return f"{value:016x}"


def fnv1a32(name: str) -> int:
    """The stable type and property ids of stamp 3; never zero. Pure."""
    value = 2_166_136_261
    for byte in name.encode():
        value = ((value ^ byte) * 16_777_619) & 0xFFFFFFFF
    return value or 1


def manifest_file_name(version: int) -> str:
    """The file name of a Lance manifest in V2 naming: newest first in lexical order. Pure."""
    return f"{_MAX_U64 - version:020d}.manifest"


def version_of_manifest_file(name: str) -> int | None:
    """The version of a V2 manifest file name, None for any other name. Pure."""
    match = _MANIFEST_NAME.fullmatch(name)
    return _MAX_U64 - int(match.group(1)) if match else None


def old_manifest_file_name(version: int) -> str:
    """The file name of a Lance manifest in V1 naming, which no engine writes but older Lance did. Pure."""
    return f"{version}.manifest"


def any_version_of(name: str) -> int | None:
    """The version of a manifest file name of either naming, None for any other name. Pure."""
    old = _OLD_MANIFEST_NAME.fullmatch(name)
    return int(old.group(1)) if old else version_of_manifest_file(name)


def version_path(table_path: str, version: int, branch: str | None) -> str:
    """The Lance manifest file of a table version, relative to the graph. Pure."""
    return f"{chain_folder(table_path, branch)}/_versions/{manifest_file_name(version)}"


_PROBE = re.compile(r"__create_if_absent_probe_[0-9A-Z]{26}")
# Rust counts vowel signs and circled letters as letters, Python does not.
_BRANCH_SEGMENT = re.compile(r"[\w.\x80-\U0010ffff-]+")
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


# `.tmp…` and `….tmp.…` are Lance's, `…#1` those of its object-store library, the last is ours; all are renamed before
# anything refers to them.
_TEMPORARY_NAME = re.compile(rf"\.tmp[^/]*|[^/]+#\d+|[^/]+\.tmp\.[0-9a-f]{{32}}|[^/]+{HALF_WRITTEN_END}")
# In this order: a temporary name may look like the start of a final one.
_PARTS: tuple[tuple[Part, re.Pattern[str]], ...] = tuple(
    (part, re.compile(pattern))
    for part, pattern in (
        (
            Part.TEMPORARY,
            r"(?:_versions|_transactions|_deletions|data|data/[^/]+|_refs/(?:branches|tags))/"
            rf"(?:{_TEMPORARY_NAME.pattern})",
        ),
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


def is_temporary(name: str) -> bool:
    """Whether a file of a Lance dataset, by its name without folders, was not given its final one. Pure."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


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


def is_schema_apply_lock(branch: str) -> bool:
    """Whether a Lance branch is the engine's lock and no branch of a graph, in every spelling. Pure."""
    return branch.lstrip("/") == SCHEMA_APPLY_LOCK


def branch_reference(dataset: str, branch: str) -> str:
    """The file that makes a Lance branch of a dataset, relative to the graph. Pure."""
    return f"{dataset}/_refs/branches/{quote(branch, safe='')}.json"


def branch_contents(
    *, parent_branch: str | None, identifier: Sequence[tuple[int, str]], created_at: float, manifest_size: int
) -> bytes:
    """What that file holds, as Lance writes it. Pure.

    Args:
        identifier: of the parent, then the version of it that the branch was made of and a unique text.
        created_at: in seconds since the epoch.
        manifest_size: in bytes, of the first manifest of the branch; 0: it has no data.
    """
    branch = {
        "parentBranch": parent_branch,
        "identifier": {"version_mapping": [list(part) for part in identifier]},
        "parentVersion": identifier[-1][0],
        "createAt": int(created_at),
        "manifestSize": manifest_size,
        "metadata": {},
    }
    return json.dumps(branch).encode()


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

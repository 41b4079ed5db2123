"""Names and paths of a graph directory, the same on a file system and on S3. Pure."""

from __future__ import annotations

import re

MANIFEST_DIR = "__manifest"
RECOVERY_DIR = "__recovery"
MAINTENANCE_DIR = "__maintenance"
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
    folder = table_path if branch is None else f"{table_path}/tree/{branch}"
    return f"{folder}/_versions/{manifest_file_name(version)}"

"""Text search over a vocabulary: documents of one word each, read by the Lance that an engine has."""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph_ops.demo.writer import TEXT_RELEASES
from omnigraph_ops.graph import Graph
from omnigraph_ops.lance.text_indexer import home_of, is_installed, process_of
from omnigraph_ops.progress import SILENT
from tests.support.writers import entry_of

DOC, COLUMN, INDEX = "node:Doc", "title", "title_idx"
_READER = Path(__file__).with_name("text_reader.py")
_ENDINGS = ("", "s", "ed", "ing", "ity", "ation", "ism", "ness", "ful", "ize", "al", "ous", "ive", "ment", "er")
KNOWN = ("organism", "other", "univers", "university", "universe", "would", "should", "about", "because", "himself")
"""Words that one analyser treats unlike another: three stems, and stop words since Lance 9."""


def vocabulary(count: int) -> list[str]:
    """Words of English prose and made ones with English endings; the same for the same Python."""
    prose = " ".join(pydoc_data.topics.topics.values()).lower()
    words = dict.fromkeys([*KNOWN, *sorted(set(re.findall(r"\b[a-z]{3,18}\b", prose)))])
    draw = random.Random(7)
    while len(words) < count:
        syllables = (draw.choice("bcdfglmnprstv") + draw.choice("aeiou") for _ in range(3))
        words["".join(syllables) + draw.choice(_ENDINGS)] = None
    return list(words)[:count]


def text_release(stamp: int) -> str:
    """The installed pylance of a stamp, or a visible skip."""
    return installed_release(TEXT_RELEASES[stamp])


def installed_release(release: str) -> str:
    """The same release, or a visible skip."""
    if not is_installed(home_of(None), release):
        pytest.skip(f"pylance {release} is not installed; run omnigraph-ops install-text-indexer")
    return release


def documents(words: Iterable[tuple[int, str]]) -> Callable[[lance.LanceDataset], object]:
    """Appends a document per word, whose id has the word's number."""
    listed = list(words)

    def change(dataset: lance.LanceDataset) -> None:
        lance.write_dataset(rows_like(dataset, listed), dataset, mode="append")

    return change


def rows_like(dataset: lance.LanceDataset, words: list[tuple[int, str]]) -> pa.Table:
    """Rows with the columns of the dataset's first, but for id, slug and title."""
    first = dataset.to_table(limit=1)
    rows = first.take(pa.array([0] * len(words)))
    for name, values in (
        ("id", [f"d{n}" for n, _ in words]),
        ("slug", [f"d{n}" for n, _ in words]),
        (COLUMN, [word for _, word in words]),
    ):
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(name), pa.array(values, pa.string()))
    return rows


def built_by(release: str) -> Callable[[lance.LanceDataset], object]:
    """Builds the text index as an engine with that Lance does."""

    def change(dataset: lance.LanceDataset) -> None:
        request = {"kind": "build", "uri": dataset.uri, "version": None, "storage_options": None}
        whole = {**request, "column": COLUMN, "name": INDEX}
        process_of(home_of(None) / release).ask("build", whole, SILENT)

    return change


def found_by(release: str, graph: Graph, words: Iterable[str]) -> dict[str, list[str]]:
    """The ids of documents that a reader of that pylance finds for each word, at the published version."""
    entry = entry_of(graph, DOC)
    request = {"uri": graph.table_uri(entry), "version": entry.version, "column": COLUMN, "words": list(words)}
    done = subprocess.run(
        [sys.executable, "-P", str(_READER)],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(home_of(None) / release)},
    )
    said = json.loads(done.stdout)
    assert said["release"] == release
    found: dict[str, list[str]] = said["found"]
    return found


def lost(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """Words for which a document is not found any more, with those documents."""
    missing = {word: sorted(set(ids) - set(after[word])) for word, ids in before.items()}
    return {word: ids for word, ids in missing.items() if ids}

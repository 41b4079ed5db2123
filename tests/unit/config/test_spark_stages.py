"""Entries of `OMNIGRAPH_OPS_SPARK_STAGES`: with and without a size, and what is said about one that makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph_ops.config.graphs_file import load_graphs, read_graphs
from omnigraph_ops.config.settings import Settings, SparkStage, settings_report
from omnigraph_ops.errors import InvalidInput

VARIABLE = "OMNIGRAPH_OPS_SPARK_STAGES"
SAID = "repair=4GiB,orphans=2000000,expire-rows"
PROBLEMS = [
    ("orphans=4GiB", "must give orphans a number of files of at most 18 digits, as in orphans=2000000"),
    ("orphans=-3", "must give orphans a number of files of at most 18 digits, as in orphans=2000000"),
    ("orphans=" + "9" * 5_000, "must give orphans a number of files of at most 18 digits, as in orphans=2000000"),
    ("repair=-1", "must give repair a size in bytes, as in repair=4GiB"),
    ("repair=2000000 files", "must give repair a size in bytes, as in repair=4GiB"),
    ("repair=", "must give repair a size in bytes, as in repair=4GiB"),
    ("expire-rows=4GiB", "must give expire-rows a number of rows of at most 18 digits, as in expire-rows=500000000"),
    ("cleanup=4GiB", "must be repair, orphans or expire-rows"),
    ("repair=4G\u0131b", "must give repair a size in bytes, as in repair=4GiB"),
    ("repair=9999999999TiB", "must give repair less than 8 EiB"),
]


def graphs_file(folder: Path, *entries: str) -> Path:
    """A file whose entries stand on lines 7, 8, and so on."""
    place = folder / "graphs.yaml"
    lines = ["version: 1", "graphs:", "  people:", "    target: /g", "    settings:", "      spark_stages:"]
    place.write_text("\n".join([*lines, *(f"        - {entry}" for entry in entries), ""]), encoding="utf-8")
    return place


def test_a_size_is_from_where_on_a_stage_is_submitted() -> None:
    settings = Settings.from_env({VARIABLE: "repair = 4GiB, orphans=2000000, expire-rows=50"})
    found = {stage.value: settings.spark_from(stage) for stage in SparkStage}
    assert found == {"repair": 4 * 1024**3, "orphans": 2_000_000, "expire-rows": 50}
    assert Settings.from_env({VARIABLE: "orphans"}).spark_from("repair") is None


def test_the_report_of_the_settings_shows_what_was_said() -> None:
    assert [s.value for s in settings_report({VARIABLE: SAID}).settings if s.is_set] == [SAID]


def test_a_long_value_is_cut_in_the_sentence() -> None:
    with pytest.raises(InvalidInput) as caught:
        Settings.from_env({VARIABLE: "x" * 10_000})
    assert len(str(caught.value)) < 200


def test_a_graphs_file_names_its_own_key(tmp_path: Path) -> None:
    (problem,) = read_graphs(graphs_file(tmp_path, "repair", "repair=4GiB")).problems
    assert problem.message.startswith("spark_stages must name repair once")
    assert "'repair,repair=4GiB'" in problem.message


def test_a_number_with_commas_is_told_apart_from_a_stage() -> None:
    with pytest.raises(InvalidInput, match=f"{VARIABLE} must have no commas in its numbers"):
        Settings.from_env({VARIABLE: "orphans=2,000,000"})


def test_a_stage_twice_needs_one_size() -> None:
    assert Settings.from_env({VARIABLE: "repair,repair"}).spark_from("repair") == 0
    with pytest.raises(InvalidInput, match=f"{VARIABLE} must name repair once, or with one size"):
        Settings.from_env({VARIABLE: "repair,orphans,repair=4GiB"})


@pytest.mark.parametrize(("said", "sentence"), PROBLEMS, ids=lambda text: text[:20])
def test_an_entry_that_makes_no_sense_is_one_sentence(said: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Settings.from_env({VARIABLE: f"repair,{said}" if said[0] != "r" else said})
    whole = f"{VARIABLE} {sentence}, it is '{said}'"
    assert str(caught.value) == whole if len(said) < 58 else whole.startswith(str(caught.value))


@pytest.mark.parametrize(("said", "sentence"), PROBLEMS, ids=lambda text: text[:20])
def test_a_graphs_file_names_the_line_of_such_an_entry(tmp_path: Path, said: str, sentence: str) -> None:
    place = graphs_file(tmp_path, "expire-rows", said)
    (problem,) = read_graphs(place).problems
    assert (problem.line, problem.message) == (8, sentence)


def test_a_graph_has_sizes_of_its_own(tmp_path: Path) -> None:
    (graph,) = load_graphs(graphs_file(tmp_path, *SAID.split(",")))
    assert graph.settings.variables() == {VARIABLE: SAID}
    assert Settings.from_env({VARIABLE: "repair", **graph.settings.variables()}).spark_from("repair") == 4 * 1024**3

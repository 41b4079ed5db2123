"""Damaged graphs: every verb ends with a sentence that names the place, or with a correct result."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph_ops.cli.main import main
from omnigraph_ops.demo import DemoSpec, write_demo_graph
from omnigraph_ops.lance.gateway import LanceFailure, LanceGateway
from tests.crash.harness_corpus import corpus
from tests.crash.harness_damage import GRAPH, HARMLESS, VERBS, Case, person
from tests.support.rows import tree_of

pytestmark = pytest.mark.slow
CORPUS = corpus()
CASES = [(case, stamp) for case in CORPUS for stamp in case.stamps]
_OPTIONS = {"cleanup": ("--keep", "3")}
_SECONDS = 300


class Hung(BaseException):
    """A verb did not come back."""


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A small graph of a stamp, written once."""
    made: dict[int, Path] = {}

    def get(stamp: int) -> Path:
        if stamp not in made:
            made[stamp] = tmp_path_factory.mktemp("pristine") / "graph"
            spec = DemoSpec(stamp=stamp, node_types=1, loads=2, rows=5, lazy_branches=1)
            write_demo_graph(str(made[stamp]), spec)
        return made[stamp]

    return get


@pytest.fixture(autouse=True)
def watchdog(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody waits for a lease here, and nothing may hang."""

    def bark(_signal: int, _frame: object) -> None:
        raise Hung

    monkeypatch.setenv("OMNIGRAPH_OPS_LEASE_WAIT_SECONDS", "0.1")
    # Nor do the tables of one run wait for each other, which takes longer than that on a busy machine.
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_the_corpus_is_large_and_its_names_differ() -> None:
    names = [c.name for c in CORPUS]
    assert len(names) >= 60
    assert len(set(names)) == len(names)


@pytest.mark.night("combinations")
@pytest.mark.parametrize(("case", "stamp"), CASES, ids=[f"{c.name[:60]}-{s}" for c, s in CASES])
def test_damage_is_named_and_nothing_is_written(
    case: Case,
    stamp: int,
    pristine: Callable[[int], Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "graph"
    shutil.copytree(pristine(stamp), root)
    table = person(root)
    case.damage(root)
    # A sentence may name the table by its folder.
    place, before = table.relative_to(root).as_posix(), _contents(root)
    for verb in VERBS:
        capfd.readouterr()
        code = main([verb, str(root), "--quiet", *_OPTIONS.get(verb, ())])
        printed = capfd.readouterr()
        _check_answer(case, verb, code, (printed.out + printed.err).replace(place, "node:Person"))
        if verb != "optimize":
            assert _contents(root) == before, f"{verb} wrote"
    _check_untouched(case, before, _contents(root), place)


@pytest.mark.parametrize("place", ["", "_versions"])
def test_a_file_in_the_place_of_a_dataset_is_named_at_once(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "people.lance" / place
    target.parent.mkdir(exist_ok=True)
    target.write_text("not a folder")
    # Lance itself asks for two seconds.
    monkeypatch.setattr("lance.dataset", lambda *_, **__: pytest.fail("Lance was asked"))
    with pytest.raises(LanceFailure, match=r"cannot open .*people\.lance: Not a directory"):
        LanceGateway(None).open(str(tmp_path / "people.lance"))


def _check_answer(case: Case, verb: str, code: int, text: str) -> None:
    for word in ("Traceback", "PanicException", "panicked", "Error: unexpected"):
        assert word not in text, f"{verb}: {text}"
    assert code != 0 or verb not in case.must_fail, f"{verb} did not notice:\n{text}"
    if code != 0:
        assert case.names in text, f"{verb} does not name {case.names!r}:\n{text}"


def _check_untouched(case: Case, before: dict[str, str], after: dict[str, str], table: str) -> None:
    if case.scope == GRAPH:
        assert after == before
    elif case.scope != HARMLESS:
        changed = {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
        gone = {k for k in changed if k not in after and not k.startswith("__recovery")}
        assert not gone, f"files of a damaged graph were deleted: {gone}"
        # Where the damage stops the table, its newest version stays what it was.
        if case.must_fail:
            assert not {k for k in changed if k.startswith(f"{table}/_versions")}


def _contents(root: Path) -> dict[str, str]:
    """Everything but our own folder; a link that leads nowhere is listed, not followed."""
    try:
        tree = tree_of(root)
    except OSError:
        names = [p.relative_to(root).as_posix() for p in root.rglob("*") if not p.name.startswith("__recovery")]
        tree = dict.fromkeys(names, "file")
    return {k: v for k, v in tree.items() if not k.startswith("__maintenance")}

"""The site builds without a warning, its generated parts are current, and every page says what it is for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph_ops.cli.main import main
from tools import reference
from tools.source import classes

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
KINDS = ("tutorial", "how-to", "reference", "explanation")
PAGES = sorted(page for kind in KINDS for page in (DOCS / kind).glob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A dead link, a dead anchor, a page outside the navigation: strict mode fails on each."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page(site: Path) -> None:
    built = {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")} | {Path("404")} == built


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = r"<(?:script|img|link)[^>]*(?:src|href)=\"?https?://[^>]*"
    assert [found for page in site.rglob("*.html") for found in re.findall(loads, page.read_text("utf-8"))] == []


def test_what_is_generated_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert (reference.main(["--check"]), capsys.readouterr().err) == (0, "")


def test_only_what_is_between_the_markers_changes() -> None:
    page = f"before\n{reference.BEGIN}\n| stale |\n{reference.END}\nafter\n"
    assert reference.replaced(page, "| new |") == (f"before\n{reference.BEGIN}\n\n| new |\n\n{reference.END}\nafter\n")
    with pytest.raises(ValueError, match="needs the lines"):
        reference.replaced("no marker", "| new |")


def test_a_stale_page_is_named_and_then_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "metrics.md"
    page.write_text(f"{reference.BEGIN}\n{reference.END}\n", "utf-8")
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setattr(reference, "made", lambda: iter([(page, "new\n")]))
    assert reference.main(["--check"]) == 1
    assert capsys.readouterr().err == "metrics.md is not current: run make docs\n"
    assert reference.main([]) == 0
    assert page.read_text("utf-8") == "new\n"
    assert reference.main(["--check"]) == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_page_opens_with_its_readers_and_what_they_get(page: Path) -> None:
    title, blank, *rest = page.read_text("utf-8").split("\n")
    assert title.startswith("# ") and blank == ""
    assert " ".join(rest[:2]).startswith("For ") and re.search(r"[Aa]fter|Here you find", " ".join(rest[:2]))


def test_every_image_is_shown_somewhere() -> None:
    texts = "".join(page.read_text("utf-8") for page in [*PAGES, ROOT / "README.md"])
    assert [image.name for image in (DOCS / "img").iterdir() if f"img/{image.name})" not in texts] == []


def test_the_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 60


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["check", "health", "plan", "history", "audit", "holds", "cleanup", "repair"])
def test_a_verb_prints_the_fields_of_the_reference(
    verb: str, small_graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = ["--keep", "1"] if verb == "cleanup" else []
    assert main([verb, str(small_graph), "--json", *policy]) == 0
    printed = json.loads(capsys.readouterr().out)
    ((_, name), *_) = reference.OUTPUTS[verb]
    assert list(printed) == [field.name for field in classes(ROOT / "omnigraph_ops")[name].fields]


@pytest.fixture(scope="module")
def small_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from omnigraph_ops.demo import DemoSpec, write_demo_graph

    root = tmp_path_factory.mktemp("graph") / "small.omni"
    write_demo_graph(root, DemoSpec(node_types=1, loads=2, rows=10))
    return root

"""The tutorial in a real Chromium, beside the demo that it starts with; its pictures are made on the way."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from omnigraph_airflow.demo_airflow import PASSWORD, USER

from omnigraph_ops.config.graph_entries import NIGHTLY
from tests.ui.conftest import PAGES, in_frame, sign_in

pytestmark = pytest.mark.ui
TUTORIAL = " ".join(Path("docs/tutorial/first-cleanup.md").read_text().split())
GRAPH = f"{PAGES}/graphs/deployment"
SCALE = 0.8
"""At this scale a picture of 1240 pixels shows a whole question, and the columns of its tables do not wrap."""
WAIT_SECONDS = 600


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[str]:
    """The address of an Airflow as `make demo` leaves it. Writes."""
    log = tmp_path / "demo.log"
    command = [sys.executable, "-m", "omnigraph_airflow.demo", "--home", str(tmp_path), "--port", "8095"]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + WAIT_SECONDS
        while not (found := re.search(r"still running: (\S+)/dags/", log.read_text())):
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(1)
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)


def trigger(page: Any, url: str, button: str, **fields: str) -> None:
    """Start a run from the page of the graph, with these fields of the form. Writes."""
    frame = in_frame(page, url)
    frame.get_by_role("link", name="graph", exact=True).click()
    frame.get_by_role("link", name=button).click()
    page.get_by_role("button", name="Trigger").first.click()
    form = page.get_by_role("dialog")
    for name, value in fields.items():
        form.locator(f"[name=element_{name}]").fill(value)
    form.get_by_role("button", name="Trigger").click()
    page.wait_for_url("**/runs/**")


def reload_until(page: Any, url: str, text: str) -> None:
    """Load a page, which does not refresh itself, until it has a text."""
    end = time.monotonic() + WAIT_SECONDS
    while text not in page.goto(url).text():
        assert time.monotonic() < end, f"{url} did not show {text}"
        time.sleep(2)


def test_the_tutorial_leads_to_an_approved_cleanup(browser: Any, demo: str, pictures: Path) -> None:
    size = {"width": int(1240 / SCALE), "height": int(1000 / SCALE)}
    with browser.new_context(viewport=size, device_scale_factor=SCALE) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        sign_in(page, demo, USER, PASSWORD)
        page.goto(f"{demo}/dags/{NIGHTLY}")
        page.get_by_role("link", name=re.compile(r"^\d{4}-")).click()
        page.get_by_text("23 Task Instances").wait_for()
        page.wait_for_load_state("networkidle")
        page.screenshot(path=pictures / "tour-run.png")

        trigger(page, demo, "Clean up versions", keep="1", older_than="")
        page.get_by_role("row", name="cleanup_table").get_by_text("Skipped").wait_for()

        trigger(page, demo, "Run a night now", keep="1", older_than="", quiet_seconds="1")
        reload_until(page, f"{demo}{GRAPH}", "Answer in Airflow")
        assert page.locator("#approvals article h3").inner_text() in TUTORIAL
        page.get_by_role("link", name="Answer in Airflow").click()
        # Airflow repeats a task that is answered before its executor has reported that it waits.
        page.wait_for_timeout(10_000)
        approve = page.get_by_role("button", name="Approve")
        approve.scroll_into_view_if_needed()
        page.screenshot(path=pictures / "tour-question.png")
        approve.click()

        night = re.search(r"/runs/([^/]+)/", page.url)
        assert night
        reload_until(page, f"{demo}{GRAPH}", f"{GRAPH}/runs/{NIGHTLY}%2F{night[1]}")
        page.locator(f"a[href*='{night[1]}']").first.click()
        assert "Versions removed\n8\n" in page.locator("main").inner_text()
        page.screenshot(path=pictures / "tour-report.png")

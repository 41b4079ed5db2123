"""The page "Graph maintenance" in a real Chromium, inside a real Airflow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ui.conftest import DESK, PAGES, PHONE, in_frame

if TYPE_CHECKING:
    from tests.ui.site import Site

pytestmark = pytest.mark.ui

VISITED = {
    "graphs": "/",
    "graph": "/graphs/people",
    "hostile": "/graphs/uploads",
    "unreadable": "/graphs/archive",
    "table": "/graphs/people/table?key=node:Person",
    "report": "/graphs/people/runs/omnigraph_maintenance__people%2Fscheduled__5",
}
Open = Callable[..., Any]


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page_renders(look: str, open_page: Open, site: Site, screenshots: Path) -> None:
    size, scheme = PHONE if look == "phone" else DESK, "dark" if look == "dark" else "light"
    page = open_page(size=size, scheme=scheme)
    for name, path in VISITED.items():
        answer = page.goto(f"{site.url}{PAGES}{path}")
        assert answer.status == 200, path
        page.screenshot(path=screenshots / f"{look}-{name}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0], f"{name} scrolls sideways"
        assert page.locator("h1").count() == 1
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(9, 9, 11)"
    assert dark is (scheme == "dark")


def test_pictures_of_the_documentation(open_page: Open, site: Site, pictures: Path) -> None:
    page = open_page(size=(1240, 620))
    page.goto(f"{site.url}{PAGES}/")
    page.screenshot(path=pictures / "page-graphs.png")
    page.set_viewport_size({"width": 1240, "height": 1180})
    page.goto(f"{site.url}{PAGES}/graphs/people")
    page.screenshot(path=pictures / "page-graph.png")


def test_the_tab_leads_to_the_page_and_the_address_follows(open_page: Open, site: Site, screenshots: Path) -> None:
    page = open_page()
    frame = in_frame(page, site.url)
    frame.get_by_role("link", name="people").click()
    frame.locator("#h-tables").wait_for()
    page.wait_for_url(f"**/plugin{PAGES}{PAGES}/graphs/people")
    page.screenshot(path=screenshots / "tab.png")


def test_a_score_stands_beside_its_bar_above_any_words(open_page: Open, site: Site) -> None:
    page = open_page()
    page.goto(f"{site.url}{PAGES}/")
    script = """words => {
        const score = document.querySelector(".score");
        score.querySelector(".score-word").textContent = words;
        return score.querySelector("meter").getBoundingClientRect().left - score.getBoundingClientRect().left;
    }"""
    assert page.evaluate(script, "good") == page.evaluate(script, "good, less than a minute ago")


def test_the_page_follows_the_theme_of_airflow(open_page: Open, site: Site) -> None:
    page = open_page(scheme="light")
    page.goto(f"{site.url}{PAGES}/")
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(9, 9, 11)"


@pytest.mark.parametrize(
    ("button", "dag_id"),
    [("Run a night now", "omnigraph_maintenance__people"), ("Repair drift", "omnigraph_repair")],
)
def test_buttons_lead_out_of_the_frame_to_the_trigger_form(
    button: str, dag_id: str, open_page: Open, site: Site
) -> None:
    page = open_page()
    frame = in_frame(page, site.url)
    frame.get_by_role("link", name="people").click()
    frame.get_by_role("link", name=button).click()
    page.wait_for_url(f"{site.url}/dags/{dag_id}**")
    page.get_by_role("button", name="Trigger").first.click()
    page.get_by_role("dialog").get_by_text("Trigger").first.wait_for()


def test_an_open_approval_shows_its_plan_and_leads_to_the_answer(
    open_page: Open, site: Site, screenshots: Path
) -> None:
    page = open_page()
    page.goto(f"{site.url}{PAGES}/graphs/people")
    card = page.locator("#approvals article")
    assert card.count() == 1 and "suspicious" in card.inner_text()
    page.get_by_role("link", name="The whole plan").click()
    assert "Rows that differ: node:Person" in page.locator("main").inner_text()
    page.screenshot(path=screenshots / "light-plan.png", full_page=True)
    page.go_back()
    page.get_by_role("link", name="Answer in Airflow").click()
    page.wait_for_url("**/required_actions")
    page.get_by_role("button", name="Approve").wait_for()
    page.screenshot(path=screenshots / "answer.png")


def test_who_may_only_look_gets_no_buttons(open_page: Open, site: Site) -> None:
    page = open_page("viewer")
    page.goto(f"{site.url}{PAGES}/graphs/people")
    assert page.get_by_role("link", name="Repair drift").count() == 0
    assert page.locator("#h-tables").count() == 1


def test_everything_can_be_reached_by_keyboard(open_page: Open, site: Site) -> None:
    page = open_page()
    page.goto(f"{site.url}{PAGES}/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent"))
    assert {"people", "orders", "uploads", "archive"} <= reached


def test_nobody_gets_nothing(open_page: Open, site: Site) -> None:
    page = open_page(None)
    for path in (*VISITED.values(), "/static/page.css", "/nothing"):
        answer = page.goto(f"{site.url}{PAGES}{path}")
        assert answer.status == 401 and "Sign in" in page.content(), path
    # Each 401 is an error of the console, and rightly so.
    open_page.complaints[:] = [text for text in open_page.complaints if "401" not in text]  # type: ignore[attr-defined]


def test_every_table_and_chart_has_a_name(open_page: Open, site: Site) -> None:
    page = open_page()
    for path in VISITED.values():
        page.goto(f"{site.url}{PAGES}{path}")
        unnamed = page.evaluate(
            """[...document.querySelectorAll("table, svg[role=img], [role=region]")].filter(element =>
                 !element.getAttribute("aria-label") && !element.getAttribute("aria-labelledby")
                 && !element.querySelector("caption") && !element.closest("[aria-label], [aria-labelledby]")).length"""
        )
        assert unnamed == 0, path

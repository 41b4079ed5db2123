"""A browser and a site for these tests; without `make test-ui`, which names the browser, they are skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.ui.live import Live
    from tests.ui.site import Site

CHROMIUM = "OMNIGRAPH_TEST_CHROMIUM"
PICTURES = "OMNIGRAPH_TEST_PICTURES"
PHONE = (390, 844)
DESK = (1360, 900)
PAGES = "/omnigraph-maintenance"


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where screenshots go, for a person to look at."""
    folder = Path("artifacts/ui")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def pictures(screenshots: Path) -> Path:
    """Where the pictures of the documentation go."""
    folder = Path(os.environ.get(PICTURES, screenshots))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real Chromium, the one that is installed."""
    executable = os.environ.get(CHROMIUM)
    if not executable:
        pytest.skip(f"needs a browser: make test-ui, or {CHROMIUM}=/path/to/chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        # Debian's sandbox does not start as root, and nothing foreign is opened here.
        chromium = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running Airflow; it starts only where there is a browser."""
    from tests.ui import site as sites

    running = sites.start(tmp_path_factory.mktemp("site"))
    yield running
    running.airflow.stop()


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A running Airflow of its own, for what users try over the REST API; no browser is needed."""
    if not os.environ.get(CHROMIUM):
        pytest.skip("starts a whole Airflow: make test-ui")
    from tests.ui.live import airflow

    with airflow(tmp_path_factory.mktemp("live")) as started:
        yield started


@pytest.fixture(scope="session")
def signed_in(browser: Any, site: Site) -> Callable[[str], Any]:
    """The cookies of a user who signed in through Airflow's form."""
    from tests.ui import site as sites

    known: dict[str, Any] = {}

    def state(user: str) -> Any:
        if user not in known:
            context = browser.new_context()
            sign_in(context.new_page(), site.url, user, sites.password(site, user))
            known[user] = context.storage_state()
            context.close()
        return known[user]

    return state


def sign_in(page: Any, url: str, user: str, password: str) -> None:
    """Through Airflow's form."""
    page.goto(f"{url}/auth/login/")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", password)
    page.click("button[type=submit]")
    page.wait_for_url(lambda now: "login" not in now)
    page.wait_for_load_state()


def in_frame(page: Any, url: str) -> Any:
    """The page of the graphs inside Airflow, reached through its tab."""
    page.goto(url)
    page.get_by_role("link", name="Graph maintenance").or_(page.get_by_role("button", name="Graph m")).first.click()
    page.wait_for_url(f"**/plugin{PAGES}**")
    return page.frame_locator("iframe")


@pytest.fixture
def open_page(browser: Any, signed_in: Callable[[str], Any]) -> Iterator[Callable[..., Any]]:
    """Opens a tab as a user (or as nobody); what its console complains about fails the test."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def make(user: str | None = "admin", *, size: tuple[int, int] = DESK, scheme: str = "light") -> Any:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,
            storage_state=signed_in(user) if user else None,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        return page

    make.complaints = complaints  # type: ignore[attr-defined]
    yield make
    for context in contexts:
        context.close()
    assert not complaints

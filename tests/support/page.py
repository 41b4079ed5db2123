"""What tests of the page share: routes, requests, the tags of an answer."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from omnigraph_airflow import PAGES

ROLES = ("viewer", "user", "op", "admin")
DIGEST = "sha256:" + "0" * 64
ROUTES = (
    "/",
    "/graphs/people",
    "/graphs/people/table?key=node:Person",
    "/graphs/people/runs/dag/run",
    f"/graphs/people/plans/repair/{DIGEST}",
    "/static/page.css",
    "/static/page.js",
    "/static/icon.svg",
    "/static/nothing",
    "/graphs/people/",
    "/nothing/here",
    "//example.com/",
    "/docs",
    "/openapi.json",
)
Client = Any


class Tags(HTMLParser):
    """Every tag of a page with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def get(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(PAGES + path, follow_redirects=False)
    assert answer.status_code == status, answer.text
    return str(answer.text)

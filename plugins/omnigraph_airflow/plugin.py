"""The plugin that Airflow lists: the DAGs import the operators, the API server the page when it is asked for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from omnigraph_airflow import PAGES


class LazyApp:
    """An ASGI application that becomes the page with its first request."""

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Serve one request. Reads."""
        await self._page(scope, receive, send)

    @cached_property
    def _page(self) -> Any:
        from omnigraph_airflow.page.app import create_page

        return create_page()


class OmnigraphPlugin(AirflowPlugin):
    """Found through the `airflow.plugins` entry point, by every component: nothing heavy may be imported here."""

    name = "omnigraph"
    fastapi_apps = [{"name": "Graph maintenance", "app": LazyApp(), "url_prefix": PAGES}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        {
            "name": "Graph maintenance",
            # Relative to the base of Airflow's own page, wherever that is served.
            "href": f"{PAGES.removeprefix('/')}/",
            "destination": "nav",
            "url_route": PAGES.removeprefix("/"),
            "icon": f"{PAGES.removeprefix('/')}/static/icon.svg",
            "icon_dark_mode": f"{PAGES.removeprefix('/')}/static/icon-dark.svg",
        }
    ]

"""The plugin that Airflow lists: the DAGs import the operators, the API server the page when it is asked for it."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from omnigraph_airflow.addresses import PAGES
from omnigraph_airflow.page.shim import LazyApp


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

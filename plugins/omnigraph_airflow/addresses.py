"""Where the pages are, below Airflow's own address."""

from __future__ import annotations

from urllib.parse import urlsplit

PAGES = "/omnigraph-maintenance"
"""Where the pages are served."""


def base_path() -> str:
    """The path that Airflow is served under, empty at the top of a host. Reads the config."""
    # Every component of Airflow loads the plugin, and with it this module.
    from airflow.sdk.configuration import conf

    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")

"""What `airflow providers` shows about this package."""

from __future__ import annotations

from typing import Any

from omnigraph_airflow import __version__


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, found through the `apache_airflow_provider` entry point. Pure."""
    return {
        "package-name": "omnigraph-ops",
        "name": "Omnigraph",
        "description": "Maintenance of Omnigraph graphs: optimize, repair, cleanup.",
        "versions": [__version__],
    }

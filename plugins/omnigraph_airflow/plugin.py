"""The plugin that Airflow lists: it names the package, the operators are imported by the DAGs."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class OmnigraphPlugin(AirflowPlugin):
    """Found through the `airflow.plugins` entry point."""

    name = "omnigraph"

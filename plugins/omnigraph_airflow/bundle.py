"""The DAG files of this package as a DAG bundle, for an Airflow that is configured by bundles."""

from __future__ import annotations

from typing import Any

from airflow.dag_processing.bundles.local import LocalDagBundle

from omnigraph_airflow import DAGS_FOLDER


class OmnigraphDagBundle(LocalDagBundle):
    """A local bundle that needs no path: it finds the DAG files wherever the package is installed."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(path=str(DAGS_FOLDER), **kwargs)

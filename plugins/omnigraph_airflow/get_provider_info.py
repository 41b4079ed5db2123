"""What `airflow providers` shows about this package; the connection form is described here, so that no hook is
imported to draw it."""

from __future__ import annotations

from typing import Any

from omnigraph_airflow import __version__

_FIELDS: dict[str, Any] = {
    "graph_id": {
        "label": "Graph of the cluster",
        "description": "With the root of a cluster as the target: which of its graphs.",
        "schema": {"type": ["string", "null"]},
    },
    "endpoint_url": {
        "label": "S3 endpoint",
        "description": "Empty: AWS. An address with http:// allows plain http.",
        "schema": {"type": ["string", "null"], "format": "url"},
    },
    "region_name": {"label": "Region", "schema": {"type": ["string", "null"]}},
    "session_token": {"label": "Session token", "schema": {"type": ["string", "null"], "format": "password"}},
    "path_style": {"label": "Path-style addressing", "schema": {"type": ["boolean", "null"], "default": False}},
    "settings": {
        "label": "Settings",
        "description": 'Deployment settings that are otherwise for this graph, as in {"exclusive": true}.',
        "schema": {"type": ["object", "null"]},
    },
}
_CONNECTION: dict[str, Any] = {
    "connection-type": "omnigraph",
    "hook-class-name": "omnigraph_airflow.hooks.omnigraph.OmnigraphHook",
    "hook-name": "Omnigraph",
    "ui-field-behaviour": {
        "hidden-fields": ["port", "schema"],
        "relabeling": {"host": "Target", "login": "Access key id", "password": "Secret access key"},
        "placeholders": {"host": "s3://bucket/people.omni", "login": "empty: the environment's credentials"},
    },
    "conn-fields": _FIELDS,
}


def get_provider_info() -> dict[str, Any]:
    """The provider's metadata, found through the `apache_airflow_provider` entry point. Pure."""
    return {
        "package-name": "omnigraph-ops",
        "name": "Omnigraph",
        "description": "Maintenance of Omnigraph graphs: optimize, repair, cleanup.",
        "versions": [__version__],
        "connection-types": [_CONNECTION],
        "extra-links": [
            "omnigraph_airflow.links.GraphPageLink",
            "omnigraph_airflow.links.ApprovalLink",
        ],
    }

"""From an Airflow connection of type `omnigraph` to variables: pure, no Airflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from omnigraph_ops.config.graphs_file.overrides import SettingsOverrides
from omnigraph_ops.errors import InvalidInput

_EXTRA = {
    "endpoint_url": "AWS_ENDPOINT_URL_S3",
    "region_name": "AWS_REGION",
    "session_token": "AWS_SESSION_TOKEN",
}
SECRETS = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
"""What may be a value of a process's environment and of nothing else: no argument, no field, no log."""
FIELDS = frozenset({*_EXTRA, "graph_id", "path_style", "settings"})


class Connected(Protocol):
    """The fields of an Airflow connection that count here."""

    conn_id: str
    host: str | None
    login: str | None
    password: str | None

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def store_variables(connection: Connected) -> dict[str, str]:
    """How its store is reached, as the clients' environment variables; `InvalidInput` for an unknown field. Pure."""
    extra = connection.extra_dejson
    if unknown := sorted(set(extra) - FIELDS):
        raise InvalidInput(f"connection {connection.conn_id}: unknown extra field {', '.join(unknown)}")
    named: dict[str, Any] = {
        "AWS_ACCESS_KEY_ID": connection.login,
        "AWS_SECRET_ACCESS_KEY": connection.password,
        **{variable: extra.get(name) for name, variable in _EXTRA.items()},
        "AWS_S3_FORCE_PATH_STYLE": "true" if extra.get("path_style") else None,
    }
    if (connection.login is None) != (connection.password is None):
        raise InvalidInput(f"connection {connection.conn_id}: an access key needs its secret, and the other way round")
    return {name: str(value) for name, value in named.items() if value}


def settings_variables(connection: Connected) -> dict[str, str]:
    """The deployment settings that the connection says otherwise, as their variables. Pure."""
    said = connection.extra_dejson.get("settings") or {}
    if not isinstance(said, Mapping):
        raise InvalidInput(f"connection {connection.conn_id}: settings must be a JSON object")
    try:
        return SettingsOverrides.model_validate_json(json.dumps(said)).variables()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"connection {connection.conn_id}: settings {where}: {first['msg']}") from None

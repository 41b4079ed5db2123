"""From an Airflow connection to the graph that a task works on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret
from pydantic import ValidationError

from omnigraph_airflow.graphs import entry_named
from omnigraph_ops.config.graph_entries import ClusterTarget, GraphEntry, SettingsOverrides
from omnigraph_ops.config.settings import Settings
from omnigraph_ops.errors import InvalidInput, OpsError, did_you_mean
from omnigraph_ops.quantities import count
from omnigraph_ops.storage.location import StoreAccess

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from omnigraph_ops.graph import Graph


_EXTRA = {
    "endpoint_url": "AWS_ENDPOINT_URL_S3",
    "region_name": "AWS_REGION",
    "session_token": "AWS_SESSION_TOKEN",
}
SECRETS = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})
"""What may be a value of a process's environment and of nothing else: no argument, no field, no log."""
FIELDS = frozenset({*_EXTRA, "graph_id", "path_style", "settings"})


def store_variables(connection: Connection) -> dict[str, str]:
    """How its store is reached, as the clients' environment variables; `InvalidInput` for an unknown field. Pure."""
    extra = connection.extra_dejson
    if unknown := sorted(set(extra) - FIELDS):
        raise _refused(
            connection,
            f"unknown extra field {', '.join(unknown)}",
            f"remove it: there are {', '.join(sorted(FIELDS))}{did_you_mean(unknown[0], FIELDS)}",
        )
    named: dict[str, Any] = {
        "AWS_ACCESS_KEY_ID": connection.login,
        "AWS_SECRET_ACCESS_KEY": connection.password,
        **{variable: extra.get(name) for name, variable in _EXTRA.items()},
        # A connection that is a URI has it as a text.
        "AWS_S3_FORCE_PATH_STYLE": str(extra.get("path_style") or "").lower(),
    }
    if (connection.login is None) != (connection.password is None):
        raise _refused(connection, "an access key needs its secret, and the other way round", "name both, or none")
    return {name: str(value) for name, value in named.items() if value}


def settings_variables(connection: Connection) -> dict[str, str]:
    """The deployment settings that the connection says otherwise, as their variables. Pure."""
    said = connection.extra_dejson.get("settings") or {}
    if not isinstance(said, Mapping):
        raise _refused(connection, "settings must be a JSON object", 'write it as in {"exclusive": true}')
    try:
        return SettingsOverrides.model_validate_json(json.dumps(said)).variables()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _refused(connection, f"settings {where}: {first['msg']}", "mend that setting") from None


def _refused(connection: Connection, why: str, mend: str) -> InvalidInput:
    return InvalidInput(
        f"connection {connection.conn_id}: {why}; the graph was not opened; under Admin, Connections, {mend}"
    )


GRAPH = "{{ params.graph or var.value.get('omnigraph_graph', '') }}"
"""Default of every operator's `graph`: the run's param, else the Airflow Variable `omnigraph_graph`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A graph and how it is reached."""

    place: str
    """Path or URI of the graph, or of the cluster."""
    graph_id: str | None = None
    """Which graph of the cluster; None: the place is the graph."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the object store's clients, credentials among them: never printed, never in an XCom."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Deployment settings that are otherwise for this graph, as variables."""


class OmnigraphHook(BaseHook):
    """From a rendered `graph` field to an open graph.

    Settings and credentials come from the environment, then the connection, then the graphs file.

    :param graph: a name in the graphs file, a path or a URI; empty means the connection's, else the
        environment variable `OMNIGRAPH_GRAPH`.
    :param omnigraph_conn_id: connection of type `omnigraph`; a graph of the graphs file names its own.
    """

    conn_name_attr = "omnigraph_conn_id"
    default_conn_name = "omnigraph_default"
    conn_type = "omnigraph"
    hook_name = "Omnigraph"

    def __init__(self, graph: str | None = None, omnigraph_conn_id: str | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.omnigraph_conn_id = omnigraph_conn_id

    def target(self) -> str:
        """The graph to work on, for people; `InvalidInput` when nobody named one. Reads."""
        found = self.address()
        return found.place if found.graph_id is None else f"{found.place} graph {found.graph_id}"

    def get_conn(self) -> Graph:
        """Open the graph. Reads."""
        from omnigraph_ops.graph import open_graph
        from omnigraph_ops.graph.opening import resolve_cluster

        address = self.address()
        access = StoreAccess(variables=address.store)
        place = address.place
        if address.graph_id is not None:
            place = resolve_cluster(place, address.graph_id, access)
        return open_graph(place, _settings(address), access)

    def settings(self) -> Settings:
        """The deployment's settings as they are for this graph. Reads."""
        return _settings(self.address())

    def address(self) -> Address:
        """Where the graph is and how it is reached. Reads."""
        named = self.graph or (None if self.omnigraph_conn_id else os.environ.get("OMNIGRAPH_GRAPH"))
        entry = entry_named(named) if named else None
        if entry is not None:
            return self._listed(entry)
        connection = self._connection(self.omnigraph_conn_id)
        place = named or (connection.host if connection is not None else None)
        if not place and connection is not None:
            raise InvalidInput(
                "the connection names no graph, so none was opened; to test it, fill in its field Target; in a task, "
                "set the param graph or the Airflow Variable omnigraph_graph"
            )
        if not place:
            raise InvalidInput(
                "no graph named: set the param graph, the Airflow Variable omnigraph_graph "
                "or the environment variable OMNIGRAPH_GRAPH"
            )
        graph_id = connection.extra_dejson.get("graph_id") if connection is not None and not named else None
        return self._address(place, graph_id or None, connection, {})

    def test_connection(self) -> tuple[bool, str]:
        """Open the graph and say what it is, or why it cannot be opened. Reads."""
        try:
            graph = self.get_conn()
            tables = len(graph.state().entries)
        except OpsError as error:
            return False, str(error)
        what = "plain Lance" if not graph.format.publishes else f"a graph of stamp {graph.stamp}"
        return True, f"{graph.uri} is {what} with {count(tables, 'table')}"

    def _listed(self, entry: GraphEntry) -> Address:
        target = entry.target
        place, graph_id = (target.cluster, target.id) if isinstance(target, ClusterTarget) else (target, None)
        mend = f", or mend `connection` of graphs.{entry.name} in the graphs file" if entry.connection else ""
        connection = self._connection(entry.connection or self.omnigraph_conn_id, otherwise=mend)
        return self._address(place, graph_id, connection, entry.settings.variables())

    @staticmethod
    def _address(
        place: str, graph_id: str | None, connection: Connection | None, settings: Mapping[str, str]
    ) -> Address:
        store = {} if connection is None else store_variables(connection)
        below = {} if connection is None else settings_variables(connection)
        for name in SECRETS & store.keys():
            mask_secret(store[name])  # Airflow itself masks passwords; errors of a store may name the id of a key
        return Address(place=place, graph_id=graph_id, store=store, settings={**below, **settings})

    def _connection(self, conn_id: str | None, *, otherwise: str = "") -> Connection | None:
        """The connection of that name; `otherwise` ends what to do where Airflow has none. Reads."""
        try:
            return None if conn_id is None else self.get_connection(conn_id)
        except AirflowNotFoundException:
            named = f"graph {self.graph}: " if self.graph else ""
            raise InvalidInput(
                f"{named}Airflow has no connection {conn_id!r}, so the graph was not opened and nothing was done; "
                f"define the connection under Admin, Connections (type Omnigraph){otherwise}"
            ) from None


def _settings(address: Address) -> Settings:
    return Settings.from_env({**os.environ, **address.settings})

"""Opens the graph a task works on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from omnigraph_airflow.graphs import entry_named
from omnigraph_airflow.hooks.store_variables import settings_variables, store_variables
from omnigraph_ops.errors import InvalidInput, OpsError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from omnigraph_ops.config.graphs_file import GraphEntry
    from omnigraph_ops.config.settings import Settings
    from omnigraph_ops.graph import Graph

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
        from omnigraph_ops.graph.cluster import resolve_cluster
        from omnigraph_ops.storage.options import StoreAccess

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
        return True, f"{graph.uri} is {what} with {tables} table{'s' * (tables != 1)}"

    def _listed(self, entry: GraphEntry) -> Address:
        from omnigraph_ops.config.graphs_file import ClusterTarget

        target = entry.target
        place, graph_id = (target.cluster, target.id) if isinstance(target, ClusterTarget) else (target, None)
        connection = self._connection(entry.connection or self.omnigraph_conn_id)
        return self._address(place, graph_id, connection, entry.settings.variables())

    @staticmethod
    def _address(
        place: str, graph_id: str | None, connection: Connection | None, settings: Mapping[str, str]
    ) -> Address:
        store = {} if connection is None else store_variables(connection)
        below = {} if connection is None else settings_variables(connection)
        return Address(place=place, graph_id=graph_id, store=store, settings={**below, **settings})

    def _connection(self, conn_id: str | None) -> Connection | None:
        return None if conn_id is None else self.get_connection(conn_id)


def _settings(address: Address) -> Settings:
    from omnigraph_ops.config.settings import Settings

    return Settings.from_env({**os.environ, **address.settings})

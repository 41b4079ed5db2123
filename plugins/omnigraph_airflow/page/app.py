"""The application behind the page: only GET, only for people whom Airflow's auth manager lets, nothing cached."""

from __future__ import annotations

from functools import partial
from importlib import resources
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from omnigraph_airflow import base_path
from omnigraph_airflow.page import reads
from omnigraph_airflow.page.listing import SIGNED_IN, Access, AccessDep, ListedGraph, listed_graphs
from omnigraph_airflow.page.pages import MOST_TABLES, PAGE_SECONDS, graph_page, overview, table_page
from omnigraph_airflow.page.reads import Deadline, Look, Looks
from omnigraph_airflow.page.rendering import render
from omnigraph_ops.outcomes.history_views import run_view

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}
KEPT_SECONDS = 15.0
"""How long what was read of a graph is shown again."""
_ANY = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]


def create_page() -> FastAPI:
    """The application, mounted by Airflow below its own address. Pure."""
    app = FastAPI(title="Graph maintenance", dependencies=[SIGNED_IN], openapi_url=None, docs_url=None, redoc_url=None)
    app.state.looks = Looks(keep_seconds=KEPT_SECONDS)
    app.add_exception_handler(StarletteHTTPException, _http_error)
    app.add_exception_handler(Exception, _surprise)
    for path, endpoint in (
        ("/", show_graphs),
        ("/graphs/{name}", show_graph),
        ("/graphs/{name}/table", show_table),
        ("/graphs/{name}/runs/{run_id:path}", show_run),
        ("/graphs/{name}/plans/{stage}/{digest}", show_plan),
        ("/static/{file}", show_static),
    ):
        app.add_api_route(path, endpoint, methods=["GET"], response_class=HTMLResponse)
    # Last, so that nothing is answered without the dependency above: no redirect, no 404, no 405.
    app.add_api_route("/{rest:path}", show_nothing, methods=_ANY)
    return app


def show_graphs(request: Request, access: AccessDep) -> Response:
    """All graphs. Reads."""
    return _page("graphs.html.j2", page=overview(access, _looks(request)))


def show_graph(request: Request, access: AccessDep, name: str, tables: str = "") -> Response:
    """One graph; `tables=all` lists them all. Reads."""
    most = None if tables == "all" else MOST_TABLES
    page = graph_page(access, _looks(request), _seen(access, name), most=most)
    return _page("graph.html.j2", page=page, graph=page.graph)


def show_table(request: Request, access: AccessDep, name: str, key: str = "") -> Response:
    """One table of a graph. Reads."""
    graph = _seen(access, name)
    page = table_page(_looks(request), graph, key)
    if page.unknown:
        raise HTTPException(404, "This graph has no such table, or cannot be read.")
    return _page("table.html.j2", page=page, graph=graph)


def show_run(request: Request, access: AccessDep, name: str, run_id: str) -> Response:
    """The report of one run. Reads."""
    graph = _seen(access, name)
    look = _look(request, graph, ("run", run_id), partial(reads.run_of, graph, run_id))
    if look.value is None and not look.pending and look.problem is None:
        raise HTTPException(404, "The history of this graph has no such run.")
    view = None if look.value is None else run_view(look.value)
    return _page("run.html.j2", look=look, run=look.value, view=view, graph=graph)


def show_plan(request: Request, access: AccessDep, name: str, stage: str, digest: str) -> Response:
    """A kept plan, in full. Reads."""
    graph = _seen(access, name)
    look = _look(request, graph, ("plan", stage, digest), partial(reads.plan_of, graph, stage, digest))
    return _page("plan.html.j2", status=404 if look.problem else 200, look=look, view=look.value, graph=graph)


def show_static(file: str) -> Response:
    """Style, script and icons of the pages. Reads."""
    if file not in STATIC:
        raise HTTPException(404, "There is no such file.")
    content = resources.files("omnigraph_airflow.page").joinpath("static", file).read_bytes()
    return Response(content, media_type=STATIC[file], headers=HEADERS)


def show_nothing(request: Request) -> Response:
    """Whatever else is asked for. Pure."""
    if request.method != "GET":
        raise HTTPException(405, "These pages can only be read.")
    raise HTTPException(404, "There is no such page.")


def _looks(request: Request) -> Looks:
    looks: Looks = request.app.state.looks
    return looks


def _look(request: Request, graph: ListedGraph, what: tuple[str, ...], read: Any) -> Look[Any]:
    future = _looks(request).begin(graph, what, read)
    return Deadline(PAGE_SECONDS).wait(future, partial(reads.sentence, graph))


def _seen(access: Access, name: str) -> ListedGraph:
    """The graph of that name; one that this person may not see is not there. Asks the auth manager."""
    graph = next((graph for graph in listed_graphs().graphs if graph.name == name), None)
    if graph is None or not access.sees(graph.dag_id):
        raise HTTPException(404, "There is no such graph, or you may not see it.")
    return graph


def _page(template: str, *, status: int = 200, **values: Any) -> Response:
    return HTMLResponse(render(template, airflow=base_path(), **values), status_code=status, headers=HEADERS)


def _http_error(request: Request, error: Exception) -> Response:
    """A refusal as a page that says what to do. Pure."""
    assert isinstance(error, StarletteHTTPException)
    login = get_auth_manager().get_url_login() if error.status_code == 401 else None
    text = {401: "Sign in to Airflow first.", 403: "You may not see this."}.get(error.status_code, str(error.detail))
    return _page("error.html.j2", status=error.status_code, code=error.status_code, text=text, login=login)


def _surprise(request: Request, error: Exception) -> Response:
    """A fault of ours: its name, without a traceback. The server logs the rest. Pure."""
    text = f"The page could not be made: {type(error).__name__}. The log of the API server says more."
    return _page("error.html.j2", status=500, code=500, text=text, login=None)

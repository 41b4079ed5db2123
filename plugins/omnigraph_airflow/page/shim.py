"""The page as Airflow's plugin manager wants it, without importing it: every component loads the plugin."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any


class LazyApp:
    """An ASGI application that becomes the page with its first request."""

    def __init__(self) -> None:
        self._app: Any = None
        self._lock = threading.Lock()

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Serve one request. Reads."""
        await self._page()(scope, receive, send)

    def _page(self) -> Any:
        with self._lock:
            if self._app is None:
                from omnigraph_airflow.page.app import create_page

                self._app = create_page()
        return self._app

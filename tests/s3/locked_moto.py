"""An S3 server for tests, as its own process: `python locked_moto.py PORT_FILE`.

moto checks If-None-Match and writes without a lock; one lock around the whole application makes its
conditional puts atomic, which Lance commits rely on. uvicorn keeps connections open, which moto's own server does not.
"""

from __future__ import annotations

import functools
import io
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from a2wsgi import WSGIMiddleware
from moto.core import serialize
from moto.moto_server.werkzeug_app import create_backend_app


class Locked:
    """The application of moto, served one request at a time, with the body read before the lock is taken."""

    def __init__(self, application: Any) -> None:
        self.application, self.lock = application, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        # moto takes the key from the path as it was sent, which a2wsgi leaves to ASGI.
        sent = environ["asgi.scope"]
        environ["RAW_URI"] = (sent["raw_path"] + b"?" + sent["query_string"]).decode("ascii")
        if length := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with self.lock:
            return list(self.application(environ, start_response))


class ForgetfulStore:
    """A store that ignores If-None-Match: the negative control."""

    def __init__(self, application: Any) -> None:
        self.application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return self.application(environ, start_response)


def main() -> None:
    # Two fifths of a listing: the times of its objects, which are of a few seconds, read as any text that may be one.
    serialize.parse_to_aware_datetime = functools.lru_cache(serialize.parse_to_aware_datetime)
    # Not moto's dispatcher of services, which lists the folders of all of them for every request.
    application: Any = Locked(create_backend_app("s3"))
    if "--forgetful" in sys.argv:
        application = ForgetfulStore(application)
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    Path(sys.argv[1]).write_text(str(listener.getsockname()[1]))
    config = uvicorn.Config(WSGIMiddleware(application), log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()

"""A proxy before an S3 server that serves one request and then loses its reply, or says that it failed."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# Of this hop only; the body is read whole and its length is sent anew.
_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}


class FaultProxy(ThreadingHTTPServer):
    """Forwards everything; the reply to the `nth` request that matches `METHOD path` is lost, once.

    With a status the client gets that in place of the reply.
    """

    daemon_threads = True

    def __init__(self, upstream: str, lose: str, nth: int = 1, status: int | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.lost: list[str] = []
        self.status = status
        self._lose, self._left, self._guard = re.compile(lose), nth, threading.Lock()

    def loses(self, request: str) -> bool:
        """Whether the reply to this request is the one to lose. Counts it."""
        with self._guard:
            if not self._lose.search(request):
                return False
            self._left -= 1
            if self._left != 0:
                return False
            self.lost.append(request)
            return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up when they like; that is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet: apart, each reply would wait for a delayed acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: FaultProxy

    def handle_expect_100(self) -> bool:
        """The client waits for this one before it sends its body."""
        answered = super().handle_expect_100()
        self.wfile.flush()
        return answered

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # Host stays what the client signed.
        sent = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_HEADERS}
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in (sent | {"Content-Length": str(len(body))}).items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            reply = upstream.getresponse()
            content = reply.read()
        finally:
            upstream.close()
        if reply.status < 300 and self.server.loses(f"{self.command} {urlsplit(self.path).path}"):
            self._lose()
        else:
            self._answer(reply, content)

    def _answer(self, reply: http.client.HTTPResponse, content: bytes) -> None:
        self.send_response_only(reply.status, reply.reason)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        for name, value in reply.getheaders():
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _lose(self) -> None:
        if self.server.status is None:
            self._reset()
            return
        self.send_response_only(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _reset(self) -> None:
        """Close with a reset instead of an end: the client cannot tell what happened."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward


@contextmanager
def losing_one_reply(upstream: str, lose: str, nth: int = 1, status: int | None = None) -> Iterator[FaultProxy]:
    """A running proxy. Writes nothing itself."""
    proxy = FaultProxy(upstream, lose, nth, status)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()

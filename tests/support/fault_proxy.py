"""A proxy before an S3 server that loses one reply, refuses requests, cuts bodies, or claims what was not done."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

# Of this hop only; the body is read whole and its length is sent anew.
_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}


@dataclass(kw_only=True)
class Fault:
    """What happens to requests that match `METHOD path?query COPY source`."""

    matches: str
    status: int | None = None
    """Answered in place of the store, which never hears of the request; None: it is forwarded."""
    code: str = ""
    cut: int | None = None
    """How many bytes of the body the client gets before the connection is reset."""
    before: Callable[[str], None] | None = None
    """Called with the request before it is forwarded."""
    times: int | None = None
    """How many requests it is about; None: all."""
    hits: int = 0


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
        self.faults: list[Fault] = []
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

    def fault_of(self, request: str) -> Fault | None:
        """The first fault that is about this request. Counts it."""
        with self._guard:
            for fault in self.faults:
                if re.search(fault.matches, request) and fault.hits != fault.times:
                    fault.hits += 1
                    return fault
        return None

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
        fault = self.server.fault_of(self._request())
        if fault is not None and fault.before is not None:
            fault.before(self._request())
        if fault is not None and fault.status is not None:
            self._refuse(fault.status, fault.code)
            return
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
        elif fault is not None and fault.cut is not None:
            self._answer(reply, content, fault.cut)
            self._reset()
        else:
            self._answer(reply, content)

    def _request(self) -> str:
        source = self.headers.get("x-amz-copy-source")
        return f"{self.command} {unquote(self.path)}" + (f" COPY {unquote(source)}" if source else "")

    def _refuse(self, status: int, code: str) -> None:
        # The client tries again after a 200 with an error in its body.
        said = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        said = "<CopyObjectResult><ETag>x</ETag></CopyObjectResult>" if status == 200 else said
        content = b"" if self.command == "HEAD" else f"<?xml version='1.0'?>{said}".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, reply: http.client.HTTPResponse, content: bytes, most: int | None = None) -> None:
        self.send_response_only(reply.status, reply.reason)
        length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        for name, value in reply.getheaders():
            if name.lower() not in _HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:most])
            self.wfile.flush()

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
    with _running(FaultProxy(upstream, lose, nth, status)) as proxy:
        yield proxy


@contextmanager
def faulty(upstream: str) -> Iterator[FaultProxy]:
    """A running proxy, for whoever puts `faults` into it. Writes nothing itself."""
    with _running(FaultProxy(upstream, "(?!)")) as proxy:
        yield proxy


@contextmanager
def _running(proxy: FaultProxy) -> Iterator[FaultProxy]:
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()

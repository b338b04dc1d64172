"""A page served to browsers of this machine only."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["page_server"]

_LOOPBACK = "127.0.0.1"


def page_server(content: bytes) -> ThreadingHTTPServer:
    """Return a server of one page on the loopback address, on a free port; it does not run yet.

    It answers ``GET /`` and nothing else, and only if it is asked by its own address, so that
    pages of other hosts cannot read it.

    Parameters
    ----------
    content
        The page, as HTML in UTF-8.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hosts = [f"{name}:{server.server_port}" for name in (_LOOPBACK, "localhost")]
            if self.headers.get("Host") not in hosts:
                self.send_error(403)
            elif self.path != "/":
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer((_LOOPBACK, 0), Handler)
    return server

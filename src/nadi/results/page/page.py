"""A page served to browsers of this machine only."""

import hmac
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_LOOPBACK = "127.0.0.1"
_LONGEST = 10.0  # seconds that a request may take to arrive
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # which would tell the address to links
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def page_server(content: bytes) -> tuple[ThreadingHTTPServer, str]:
    """Return a server of one page on the loopback address, and its address; it does not run yet.

    It answers one path, which has 128 random bits, and only if it is asked by its own address: so
    neither other users of the machine nor pages of other hosts can read it.

    - ``content``: The page, as HTML in UTF-8.
    """
    secret = f"/{secrets.token_urlsafe(16)}/"

    class Handler(BaseHTTPRequestHandler):
        timeout = _LONGEST

        def do_GET(self) -> None:
            hosts = [f"{name}:{server.server_port}" for name in (_LOOPBACK, "localhost")]
            if self.headers.get("Host") not in hosts:
                self.send_error(403)
            elif not hmac.compare_digest(self.path.encode(errors="replace"), secret.encode()):
                self.send_error(404)
            else:
                self.send_response(200)
                for name, value in _HEADERS.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer((_LOOPBACK, 0), Handler)
    return server, f"http://{_LOOPBACK}:{server.server_port}{secret}"

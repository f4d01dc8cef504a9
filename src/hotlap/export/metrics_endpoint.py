"""The metrics of a watched run over HTTP, on loopback only."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from hotlap.errors import UsageError
from hotlap.export.openmetrics import CONTENT_TYPE

HOST = "127.0.0.1"
_PATH = "/metrics"
_TIMEOUT_SECONDS = 5.0


class MetricsEndpoint:
    """Serves the last ``text`` that was set, at ``url``. Raises :class:`UsageError` where the port is taken."""

    def __init__(self, port: int) -> None:
        self.text = "# EOF\n"
        try:
            self._server = _Server((HOST, port), self._handler())
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"Metrics are not served: port {port} of {HOST} cannot be used"
                f" ({getattr(error, 'strerror', None) or error}).",
                remedy="Name another port by --metrics-port; 0 takes a free one.",
            ) from error
        self.url = f"http://{HOST}:{self._server.server_port}{_PATH}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="hotlap-metrics", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *of: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _TIMEOUT_SECONDS

            def do_GET(self) -> None:
                name = self.headers.get("Host", "").rpartition(":")[0]
                if name not in (HOST, "localhost"):  # a page elsewhere whose name points here must not read it
                    self.send_error(403)
                elif self.path.partition("?")[0] != _PATH:
                    self.send_error(404)
                else:
                    body = endpoint.text.encode("utf-8")
                    self.send_response(200)
                    self.send_header("Content-Type", CONTENT_TYPE)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *of: object) -> None:
                """The script's terminal is not ours."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *of: object) -> None:
        """A client that went away is no news for the script's terminal."""

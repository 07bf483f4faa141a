"""An outside watcher on loopback, as a dead man's switch pings one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class OutsideWatcher:
    """Counts `pings` to its `url`."""

    url: str = ""
    pings: int = 0


@contextmanager
def outside_watcher() -> Iterator[OutsideWatcher]:
    """A watcher that lasts as long as the block."""
    watcher = OutsideWatcher()

    class Watch(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            watcher.pings += 1
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Watch)
    watcher.url = f"http://127.0.0.1:{server.server_port}/ping"
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield watcher
    finally:
        server.shutdown()
        serving.join()
        server.server_close()

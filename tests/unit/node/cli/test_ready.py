"""Docker's health check: `python -m node.cli.ready`."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from node.app.data_dir import DataDir
from node.cli.ready import DEFAULT_PORT, port, ready
from node.state.entries import Seed

NOT_READY = {"type": "urn:rota:problem:not-ready", "status": 503, "detail": "it knows no leader; it has no lease"}


class Node(BaseHTTPRequestHandler):
    """Answers GET /readyz with what is put into `answers`."""

    answers: tuple[int, bytes] = (200, b'{"status": "ready"}')

    def do_GET(self) -> None:
        assert self.path == "/readyz"
        status, body = self.answers
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def node() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Node) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_ready_and_not_ready_nodes_have_different_exit_codes(node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ready("127.0.0.1", node) == (True, "ready")
    monkeypatch.setattr(Node, "answers", (503, json.dumps(NOT_READY).encode()))
    assert ready("127.0.0.1", node) == (False, "not ready: it knows no leader; it has no lease")
    monkeypatch.setattr(Node, "answers", (500, b"<html>"))
    assert ready("127.0.0.1", node) == (False, "not ready: GET /readyz returned status 500")


def test_it_asks_the_port_in_the_data_folder(node: int, tmp_path: Path) -> None:
    assert port(tmp_path / "none") == DEFAULT_PORT
    folder = DataDir(tmp_path, "node-1", 1)
    folder.keep_place(Seed("node-1", "127.0.0.1", 1, node))
    folder.close()
    assert port(tmp_path) == node
    command, env = [sys.executable, "-I", "-m", "node.cli.ready"], {"ROTA_DATA": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ready\n")


def test_without_an_answer_it_says_which_address_it_asked() -> None:
    found, sentence = ready("127.0.0.1", 1)
    assert not found
    assert sentence.startswith("not ready: no answer from 127.0.0.1:1 (")

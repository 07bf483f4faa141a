"""Docker's health check: `python -m node.cli.ready`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.app.data_dir import DataDir
from node.cli.ready import DEFAULT_PORT, port, ready
from node.state.entries import Seed
from testkit.servers.api_server import Request, Response, api_server, as_json

NOT_READY = {"type": "urn:rota:problem:not-ready", "status": 503, "detail": "it knows no leader; it has no lease"}


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.fixture
def node() -> Iterator[int]:
    """The port of a node that is ready."""
    with api_server(lambda _: as_json({"status": "ready"})) as url:
        yield port_of(url)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (200, b'{"status": "ready"}', (True, "ready")),
        (503, json.dumps(NOT_READY).encode(), (False, "not ready: it knows no leader; it has no lease")),
        (500, b"<html>", (False, "not ready: GET /readyz returned status 500")),
    ],
)
def test_ready_and_not_ready_nodes_have_different_exit_codes(
    status: int, body: bytes, expected: tuple[bool, str]
) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Response:
        asked.append(request.target)
        return Response(status, iter([body]))

    with api_server(answer) as url:
        assert ready("127.0.0.1", port_of(url)) == expected
    assert asked == ["/readyz"]


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

"""`rota log --json` prints the API's answer, which is text, as JSON strings."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from node.cli.main import rota
from node.client import Client

LOG = 'one "line"\ncafé\n\udcff'.encode(errors="surrogateescape")
CUT = LOG.index("é".encode()) + 1


@pytest.mark.parametrize(
    ("words", "printed"),
    [([], ['one "line"\ncafé\n�']), (["-f"], ['one "line"\ncaf', "é\n", "�"])],
    ids=["whole", "as it comes"],
)
def test_a_log_is_printed_as_json(monkeypatch: pytest.MonkeyPatch, words: list[str], printed: list[str]) -> None:
    def stream(*_: Any, **__: Any) -> Iterator[bytes]:
        yield LOG[:CUT]
        yield LOG[CUT:-1]
        yield LOG[-1:]

    over = {"state": "succeeded", "attempt": 1, "attempts": [{"attempt": 1, "node": "a"}]}
    monkeypatch.setattr(Client, "get", lambda *_, **__: over)
    monkeypatch.setattr(Client, "stream", stream)
    ended = CliRunner().invoke(rota, ["log", "run", "--json", *words])
    assert [json.loads(line) for line in ended.stdout.splitlines()] == printed
    plain = CliRunner().invoke(rota, ["log", "run", *words])
    assert plain.stdout_bytes == LOG

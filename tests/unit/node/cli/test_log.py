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


class CutClient(Client):
    """A client that reads this run, and its log in pieces that are cut within a character."""

    def __init__(self, urls: list[str], run: dict[str, Any]) -> None:
        super().__init__(urls)
        self._run = run

    def get(self, path: str, **query: Any) -> Any:
        return self._run

    def stream(self, path: str, *, endless: bool = False, **query: Any) -> Iterator[bytes]:
        yield LOG[:CUT]
        yield LOG[CUT:-1]
        yield LOG[-1:]


@pytest.mark.parametrize(
    ("words", "printed"),
    [([], ['one "line"\ncafé\n�']), (["-f"], ['one "line"\ncaf', "é\n", "�"])],
    ids=["whole", "as it comes"],
)
def test_a_log_is_printed_as_json(words: list[str], printed: list[str]) -> None:
    run = {"state": "succeeded", "attempt": 1, "attempts": [{"attempt": 1, "node": "a"}]}
    client = CutClient(["http://127.0.0.1:1"], run)
    ended = CliRunner().invoke(rota, ["log", "run", "--json", *words], obj=client)
    assert [json.loads(line) for line in ended.stdout.splitlines()] == printed
    plain = CliRunner().invoke(rota, ["log", "run", *words], obj=client)
    assert plain.stdout_bytes == LOG

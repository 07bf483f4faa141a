"""An error that keeps a node from starting is printed in the format of its log."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.main import main
from node.runtime.logs import flush

WELL = {"ROTA_NODE": "a", "ROTA_MEMBERS": "a=127.0.0.1:7001:8101", "ROTA_SECRET": "s" * 32, "ROTA_CAPACTIY": "2"}


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """The command sets up the whole process's logging."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in set(root.handlers) - set(handlers):
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


def ended(monkeypatch: pytest.MonkeyPatch, log_format: str, **environ: str) -> int:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exited:
        main(["node", "--log-format", log_format])
    flush()
    assert isinstance(exited.value.code, int)
    return exited.value.code


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"ROTA_CAPACITY": "0", "ROTA_BIND": "0.0.0.0"}, 2, ["ROTA_CAPACITY='0'", "ROTA_BIND=0.0.0.0"]),
        ({}, 1, ["ROTA_CAPACTIY is not a setting", "as ROTA_DATA"]),
    ],
    ids=["wrong settings", "cannot start"],
)
def test_an_error_at_the_start_is_printed_in_the_format_of_the_log(
    changes: dict[str, str],
    code: int,
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    environ = {**WELL, "ROTA_DATA": str(tmp_path / "file"), **changes}
    assert ended(monkeypatch, "json", **environ) == code
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [sentence in line["message"] for line, sentence in zip(lines, said, strict=True)] == [True] * len(said)
    assert lines[-1]["level"] == "critical"
    assert ended(monkeypatch, "text", **environ) == code
    plain = capfd.readouterr().err.splitlines()
    assert plain == [f"rota: {line['message']}" for line in lines]

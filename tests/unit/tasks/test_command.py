"""Stopping a command."""

import logging
import os

import pytest

from tasks.command import _terminate


@pytest.mark.parametrize(
    ("refusal", "said"),
    [(ProcessLookupError(), "the command had already ended"), (PermissionError(), "it runs as another user")],
)
def test_a_command_that_cannot_be_signalled_is_waited_for(
    refusal: OSError, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, __: int) -> None:
        raise refusal

    monkeypatch.setattr(os, "killpg", refuse)
    with caplog.at_level(logging.INFO):
        _terminate(7, logging.getLogger("rota.run"))
    assert said in caplog.text

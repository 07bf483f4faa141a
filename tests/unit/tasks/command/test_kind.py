"""Stopping a command."""

import logging

import pytest

from tasks.command.kind import _terminate


@pytest.mark.parametrize(
    ("refusal", "said"),
    [(ProcessLookupError(), "the command had already ended"), (PermissionError(), "it runs as another user")],
)
def test_a_command_that_cannot_be_signalled_is_waited_for(
    refusal: OSError, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, __: int) -> None:
        raise refusal

    with caplog.at_level(logging.INFO):
        _terminate(7, logging.getLogger("rota.run"), refuse)
    assert said in caplog.text

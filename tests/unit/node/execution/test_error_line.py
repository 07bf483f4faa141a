"""The one line that is replicated of an attempt's error: short, and without secrets."""

import pytest

from node.execution.worker import ERROR_CHARS_MAX, _line
from tasks.secret import Redactor


def line(text: str, *secrets: str) -> str:
    redactor = Redactor()
    for secret in secrets:
        redactor.learn(secret)
    return _line(ValueError(text), redactor)


@pytest.mark.parametrize("secret", ["two  blanks", "a\ttab in it", "KEY\nof\nlines", " at the edges\n "])
@pytest.mark.parametrize("around", ["refused: {}", "refused: {} by\n\n host", "{}"])
def test_a_secret_with_whitespace_is_redacted(secret: str, around: str) -> None:
    shown = line(around.format(secret), secret)
    assert "[secret]" in shown
    assert not set(secret.split()) & set(shown.split())


def test_a_secret_folded_over_lines_is_redacted() -> None:
    assert line("refused: correct\n    horse", "correct horse") == "ValueError: refused: [secret]"


def test_an_error_becomes_one_short_line() -> None:
    assert line("a\n  b\tc") == "ValueError: a b c"
    assert len(line("x" * 5000)) == ERROR_CHARS_MAX

"""What tests with attempts share."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kinds_for_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts find the kinds of `kinds_for_tests` and of the example, which are not installed."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'examples/rota-hello'}")

"""A cluster of three in one thread, which has agreed on something."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wired import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three members that have a leader, and have agreed on one entry."""
    made = World(tmp_path, "abc")
    with made.clock():
        made.start()
        made.connect_all()
        made.agree(b"before")
        made.run(0.2)
        yield made

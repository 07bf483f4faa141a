"""Clusters in one thread, which have committed an entry."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testkit.raft.wired import World


@contextmanager
def agreed(folder: Path, names: str) -> Iterator[World]:
    """These members have a leader, and have committed one entry."""
    made = World(folder, names)
    with made.clock():
        made.start()
        made.connect_all()
        made.agree(b"before")
        made.run(0.2)
        yield made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Three members."""
    with agreed(tmp_path, "abc") as made:
        yield made


@pytest.fixture
def five(tmp_path: Path) -> Iterator[World]:
    """Five members."""
    with agreed(tmp_path, "abcde") as made:
        yield made

"""Where an attempt's log is truncated, and what is written there."""

import os
from pathlib import Path

import pytest

from node.execution.log_pump import LogPump


def logged(path: Path, limit_bytes: int, *pieces: bytes) -> LogPump:
    """The pump that has written `pieces` to `path`, and is closed."""
    pump = LogPump(path, limit_bytes)
    read, write = os.pipe()
    pump.start(read, lambda: None)
    for piece in pieces:
        os.write(write, piece)
    os.close(write)
    pump.close()
    return pump


@pytest.mark.parametrize("pieces", [(b"12345678",), (b"1234", b"5678"), (b"1234",), ()])
def test_a_log_of_exactly_the_limit_is_complete(tmp_path: Path, pieces: tuple[bytes, ...]) -> None:
    pump = logged(tmp_path / "1.log", 8, *pieces)
    assert pump.error is None
    assert (tmp_path / "1.log").read_bytes() == b"".join(pieces)


@pytest.mark.parametrize("pieces", [(b"123456789",), (b"12345678", b"9", b"10"), (b"1234", b"5678910")])
def test_a_log_over_the_limit_says_where_and_why_it_is_truncated(tmp_path: Path, pieces: tuple[bytes, ...]) -> None:
    pump = logged(tmp_path / "1.log", 8, *pieces)
    assert pump.error == "the log is truncated at 8 B, this node's limit (ROTA_LOG_BYTES)"
    assert (tmp_path / "1.log").read_text() == (
        "12345678\n[the log is truncated here, at 8 B, this node's limit (ROTA_LOG_BYTES)]\n"
    )

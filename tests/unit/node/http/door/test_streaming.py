"""How many streams may be open: one address leaves some for others."""

from contextlib import ExitStack

import pytest

from node.http.door.problems import Problem
from node.http.door.streaming import StreamLimit


def test_one_address_has_half_of_the_streams_and_gets_them_back() -> None:
    limit = StreamLimit(4)
    with ExitStack() as opened:
        for _ in range(2):
            opened.enter_context(limit.one("10.0.0.7"))
        with pytest.raises(Problem, match="2 streams are open from this address"), limit.one("10.0.0.7"):
            pass
        for _ in range(2):
            opened.enter_context(limit.one("10.0.0.8"))
        with pytest.raises(Problem, match="4 streams are open here"), limit.one("127.0.0.1"):
            pass
    with ExitStack() as opened:
        for _ in range(4):
            opened.enter_context(limit.one("127.0.0.1"))

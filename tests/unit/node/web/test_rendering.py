"""Where a redirect may lead, and that examples in the modules hold."""

import doctest

import pytest

from node.web import rendering, words
from node.web.rendering import local_target


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "", "tasks", "/a b", "/\r\nX: y", "/é"]
)
def test_signing_in_leads_to_no_other_site(path: str) -> None:
    assert local_target(path) == ""


def test_examples() -> None:
    for module in (rendering, words):
        assert doctest.testmod(module).failed == 0

"""Strict JSON: documents that parsers read in different ways are refused."""

import json
from typing import Any

from pydantic_core import from_json


def read_json(body: bytes) -> Any:
    """A body, parsed. Raises `ValueError`: not JSON, NaN or Infinity, a duplicate key, nested too deep.

    >>> read_json(b'{"a": 1}')
    {'a': 1}
    >>> read_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' occurs twice
    """
    read = from_json(body, allow_inf_nan=False)
    # Of duplicate keys the parser above uses the last, others use the first. It has checked the depth.
    json.loads(body, object_pairs_hook=_unique_keys)
    return read


def _unique_keys(pairs: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f"the key {name[:100]!r} occurs twice")
        names.add(name)

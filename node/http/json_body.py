"""JSON that means one thing: what parsers read in different ways is refused."""

import json
from typing import Any

from pydantic_core import from_json


def read_json(body: bytes) -> Any:
    """What a body says. Raises `ValueError`: no JSON, NaN or Infinity (which are none), a key given twice, too deep.

    >>> read_json(b'{"a": 1}')
    {'a': 1}
    >>> read_json(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the key 'a' is given twice
    """
    read = from_json(body, allow_inf_nan=False)
    # The parser above takes the last of two, others the first. It has seen to the depth.
    json.loads(body, object_pairs_hook=_each_once)
    return read


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise ValueError(f"the key {name[:100]!r} is given twice")
        names.add(name)

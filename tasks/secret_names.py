"""Whether a task names secrets, as its definition says without its kind. Pure."""

from typing import Any


def names_secrets(params: Any) -> bool:
    """Whether params hold what looks like a reference, of whatever kind they are.

    >>> names_secrets({"source": [{"password": {"secret": "pg"}}]}), names_secrets({"env": {"A": "b"}, "secret": 1})
    (True, False)
    """
    match params:
        case {"secret": str(), **rest} | {"env": str(), **rest} if not rest:
            return True
        case dict():
            return any(map(names_secrets, params.values()))
        case list():
            return any(map(names_secrets, params))
    return False

"""What an account may read, by its grants (pure): mariadb-dump leaves out, without a word, what it may not see."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

READING: Final = ("SELECT", "SHOW VIEW", "TRIGGER", "EVENT")
"""The privileges on a database without which a dump of it fails or is incomplete."""

_NAME: Final = "`(?:[^`]|``)+`"
_GRANT: Final = re.compile(rf"GRANT (?P<what>.+?) ON (?P<on>\*\.\*|{_NAME}\.(?:\*|{_NAME})) TO ", re.DOTALL)


def lacks(grants: Sequence[str], database: str) -> list[str]:
    r"""Return the privileges of `READING` that rows of SHOW GRANTS do not give on a database.

    >>> lacks(["GRANT SELECT, TRIGGER ON *.* TO `b`@`%`", "GRANT SHOW VIEW ON `shop\\_%`.* TO `b`@`%`"], "shop_a")
    ['EVENT']
    >>> lacks(["GRANT ALL PRIVILEGES ON `shop`.* TO `b`@`%`"], "shops")
    ['SELECT', 'SHOW VIEW', 'TRIGGER', 'EVENT']
    """
    given: set[str] = set()
    for what, on in _parsed(grants):
        if on == "*.*" or (on.endswith(".*") and _is_like(_unquoted(on.removesuffix(".*")), database)):
            given.update(READING if what[0] == "ALL PRIVILEGES" else what)
    return [privilege for privilege in READING if privilege not in given]


def sees_all_routines(grants: Sequence[str]) -> bool:
    """Whether the account sees the procedures and functions that other accounts have made.

    >>> sees_all_routines(["GRANT SELECT ON `mysql`.`proc` TO `b`@`%`"]), sees_all_routines(["GRANT EVENT ON *.* TO b"])
    (True, False)
    """
    return any(
        on in ("*.*", "`mysql`.*", "`mysql`.`proc`") and not {"ALL PRIVILEGES", "SELECT"}.isdisjoint(what)
        for what, on in _parsed(grants)
    )


def _parsed(grants: Iterable[str]) -> list[tuple[list[str], str]]:
    return [(found["what"].split(", "), found["on"]) for text in grants if (found := _GRANT.match(text))]


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`")


def _is_like(pattern: str, name: str) -> bool:
    r"""Whether a name matches a pattern of SQL's LIKE, in which a backslash escapes `%` and `_`."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part.removeprefix("\\")) for part in parts)
    return re.fullmatch(regex, name, re.DOTALL) is not None

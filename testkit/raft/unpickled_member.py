"""A Raft member that says what it unpickles, from its first line of Python on: see `test_raft_pickles`."""

import sys
from typing import Any

FOUND: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class":
        FOUND.append(".".join(map(str, arguments)))


if __name__ == "__main__":
    sys.addaudithook(_note)
    from testkit.raft import raft_member

    raft_member.Member.unpickled = lambda _self: {"found": FOUND}  # type: ignore[attr-defined]
    raft_member.main()

"""What holds once a cluster is at rest: all members tell the same, and each token was given once."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from node.cli.local import LocalCluster

SHOWN: Final = 5
"""So many differences of one kind are told."""


def disagreements(cluster: LocalCluster) -> list[str]:
    """Where two members tell different things of tasks and runs."""
    found = []
    for what, key in (("/v1/tasks", "name"), ("/v1/runs", "run_id")):
        told = {name: {item[key]: item for item in cluster.client_of(name).items(what)} for name in cluster.names}
        found += differences(told)
    return found


def differences(told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Where two members tell different things. `told`: by member, what each tells of each thing, by its name."""
    found = []
    (first, there), *others = told.items()
    for name, here in others:
        differing = [item for item in there.keys() | here.keys() if there.get(item) != here.get(item)]
        found += [
            f"of {item} {first} tells {there.get(item)}, and {name} {here.get(item)}"
            for item in sorted(differing)[:SHOWN]
        ]
    return found


def tokens(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Tokens are given once, and grow from attempt to attempt."""
    found = []
    holders: dict[int, str] = {}
    for run in runs:
        given = [attempt["token"] for attempt in run["attempts"]]
        if given != sorted(set(given)):
            found.append(f"{run['run_id']}: its attempts have the tokens {given}")
        found += [
            f"token {token} was given to {holders[token]} and to {run['run_id']}"
            for token in given
            if holders.setdefault(token, run["run_id"]) != run["run_id"]
        ]
    return found

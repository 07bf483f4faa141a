"""What the members tell when all is over: all the same, nothing still active, and no log line that nobody expects."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_ALARM: Final = re.compile(r" (WARNING|ERROR|CRITICAL) |^Traceback ")


def stuck(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The runs that have not ended."""
    return [
        f"stuck: {told['run_id']} {told['state']} on {told['node']} token {told['token']} "
        f"cancelling {told['cancelling']}"
        for told in runs
        if told["finished_at"] is None
    ]


def alarms(log: str, lines: Sequence[str], patterns: Mapping[str, int]) -> tuple[Counter[str], list[str]]:
    """How often each expected warning was given in a log, and all its warnings that nothing explains. `patterns`: each
    with the number of lines after which it is expected.
    """
    compiled = {re.compile(pattern): after for pattern, after in patterns.items()}
    expected: Counter[str] = Counter()
    unexplained = []
    explained = 0
    for number, line in enumerate(lines, 1):
        if not _ALARM.search(line):
            continue
        known = next(
            (pattern.pattern for pattern, after in compiled.items() if number > after and pattern.search(line)), None
        )
        if known is not None:
            expected[known] += 1
            explained = number
        elif not (line.startswith("Traceback") and explained == number - 1):
            unexplained.append(f"unexplained: {log}:{number}: {line}")
    return expected, unexplained

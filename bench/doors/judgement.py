"""What is wrong with a trial: with what the nodes promised, or with the attack, which may not have been there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from bench.doors.conversation import Tally

P99_MAX_MS: Final = 2_000.0
"""The slowest of a hundred answers of the API under attack."""

PASSED_OVER_MAX: Final = 0.15
"""The part of what was due that may be skipped or missed, beyond that of the quiet spans around it."""

QUIET_MAX: Final = 0.1
"""The part of what was due that may be skipped or missed before and after an attack, for what it does to be seen."""

LOG_MAX_BYTES: Final = 128 << 10
"""What all nodes may write into their logs during an attack."""

GROWTH_MAX_MIB: Final = 128.0
"""How much a node's memory may grow during an attack."""

HISTORY_MAX_BYTES_PER_HOUR: Final = 1 << 20
"""What finished runs may grow by while each occurrence is skipped."""


class Span(NamedTuple):
    """What was seen in a span of time.

    `answers_ms` are the well-behaved client's; `failures`: what it was told instead. `due`, `passed_over`: occurrences,
    and how many of them were skipped or missed. `log_bytes`: written by all nodes. `memory_mib`: the attacked node's.
    """

    answers_ms: Sequence[float]
    failures: Sequence[str]
    due: float
    passed_over: int
    log_bytes: int
    memory_mib: float


@dataclass(frozen=True)
class Trial:
    """One attack, and the quiet spans before and after it.

    `least` is how many connections it must have opened, or how many of its requests must have been answered where
    `asks`; `down`: the members that ended, or were marked down.
    """

    before: Span
    during: Span
    after: Span
    tally: Tally
    least: int
    asks: bool = False
    down: Sequence[str] = ()

    @property
    def at_rest(self) -> float:
        """The part of what was due that is skipped or missed without an attack: where others keep the machine busy."""
        return max(span.passed_over / span.due if span.due else 1.0 for span in (self.before, self.after))

    @property
    def shows(self) -> bool:
        """Whether the machine was quiet enough for what the attack does to be seen."""
        return self.at_rest <= QUIET_MAX


def wrong(trial: Trial) -> list[str]:
    """What does not hold; nothing where the attack was there, and everything else went on.

    >>> quiet = Span([2.0] * 99, [], 80, 0, 0, 90.0)
    >>> wrong(Trial(quiet, quiet, quiet, Tally(opened=500), least=500))
    []
    >>> wrong(Trial(quiet, quiet, quiet, Tally(opened=499), least=500))
    ['the attack was not there: 499 connections, not 500']
    """
    before, during, tally = trial.before, trial.during, trial.tally
    found = [f"down: {name}" for name in trial.down]
    if (there := tally.answered if trial.asks else tally.opened) < trial.least:
        found.append(
            f"the attack was not there: {there} {'answers' if trial.asks else 'connections'}, not {trial.least}"
        )
    if during.failures:
        found.append(f"{len(during.failures)} requests were not answered, the first: {during.failures[0]}")
    if not during.answers_ms:
        found.append("the API answered nothing")
    elif (p99_ms := p(during.answers_ms, 99)) > P99_MAX_MS:
        found.append(f"the API's p99 was {p99_ms:.0f} ms, over {P99_MAX_MS:.0f} ms")
    if not during.due:
        found.append("nothing was due: nothing is shown")
    elif not trial.shows:
        found.append(f"the machine was busy without an attack: {trial.at_rest:.0%} skipped or missed; nothing is shown")
    elif (more := during.passed_over / during.due - trial.at_rest) > PASSED_OVER_MAX:
        found.append(f"{more:.0%} more of what was due was skipped or missed, over {PASSED_OVER_MAX:.0%}")
    if during.log_bytes > LOG_MAX_BYTES:
        found.append(f"{during.log_bytes} bytes of log, over {LOG_MAX_BYTES}")
    if (grown_mib := during.memory_mib - before.memory_mib) > GROWTH_MAX_MIB:
        found.append(f"a node grew by {grown_mib:.0f} MiB, over {GROWTH_MAX_MIB:.0f} MiB")
    if tally.leaked:
        found.append(f"{tally.leaked} strangers were told more than a greeting and a refusal")
    return found


def wrong_history(grown_bytes: int, seconds: float, passed_over: int, due: float) -> list[str]:
    """What is wrong with the growth of finished runs while each of `due` occurrences finds another run at work.

    >>> wrong_history(4096, 60, 600, 600), wrong_history(4096, 60, 3, 600)
    ([], ['3 of 600 occurrences were skipped: nothing is shown'])
    """
    found = []
    if passed_over < due / 2:
        found.append(f"{passed_over} of {due:.0f} occurrences were skipped: nothing is shown")
    if (an_hour := per_hour(grown_bytes, seconds)) > HISTORY_MAX_BYTES_PER_HOUR:
        found.append(f"the finished runs grow by {an_hour:.0f} bytes an hour, over {HISTORY_MAX_BYTES_PER_HOUR}")
    return found


def per_hour(grown_bytes: int, seconds: float) -> float:
    """Growth in bytes an hour."""
    return grown_bytes * 3600 / seconds


def p(values: Sequence[float], percent: int) -> float:
    """A percentile: the least of the values that so many percent do not exceed. Raises `ValueError` if there is none.

    >>> p([3.0, 1.0, 2.0], 50), p([3.0, 1.0, 2.0], 99)
    (2.0, 3.0)
    """
    if not values:
        raise ValueError("nothing was measured")
    return sorted(values)[-(-len(values) * percent // 100) - 1]

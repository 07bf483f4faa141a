"""Follows the log of a run from one attempt to the next, on any nodes, even while some are unreachable."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from node.cli.watching import PAUSE_S, patience_s
from node.client import ApiProblem, Unreachable
from tasks.definition.run import FINAL, HELD

NO_LOG: Final = 404


class LogFollower:
    """Follows the log of one run until the run has ended.

    `read_run` reads the run; `pieces` yields the log of an attempt as it grows, from its beginning. `write` receives
    the new bytes. `head` is called with each attempt but the first, before its log. `say` is called with a sentence
    each time when a log or the run becomes unreadable.
    """

    def __init__(
        self,
        read_run: Callable[[], dict[str, Any]],
        pieces: Callable[[int | None], Iterator[bytes]],
        write: Callable[[bytes], None],
        head: Callable[[dict[str, Any]], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_run = read_run
        self._pieces = pieces
        self._write = write
        self._head = head
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._written = 0

    def follow(self) -> None:
        """Follow the log until the run has ended and its last log is written. Raises an `ApiProblem` or `Unreachable`
        that lasts.
        """
        run = self._read_run()
        last = run["attempts"][-1]["attempt"] - 1 if run["attempts"] else 0
        if run["state"] in FINAL and not run["attempts"]:
            self._write(b"".join(self._pieces(None)))  # the API answers with a problem: the run has no log
            return
        first = True
        while True:
            new = [attempt for attempt in run["attempts"] if attempt["attempt"] > last]
            for attempt in new:
                if not first:
                    self._head(attempt)
                first = False
                last = attempt["attempt"]
                run = self._follow_attempt(attempt)
            if not new:
                if run["state"] in FINAL:
                    return
                self._sleep(PAUSE_S)
                run = self._run_when_reachable()

    def _follow_attempt(self, attempt: dict[str, Any]) -> dict[str, Any]:
        """Write the log of an attempt until the attempt has ended. Returns the run as it is then."""
        number, reported = attempt["attempt"], False
        self._written = 0
        while True:
            broken = self._write_new(number)
            run = self._run_when_reachable()
            held = run["state"] in HELD and run["attempt"] == number
            if not held and broken is not None and not reported:
                broken = self._write_new(number)  # to write its last output: the attempt has ended, so this returns
            if broken is not None and not (reported and held):
                then = "retrying" if held else "the rest of it is skipped"
                self._say(f"the log of attempt {number} on {attempt['node']} cannot be read: {broken}; {then}")
                reported = True
            if not held:
                return run
            self._sleep(PAUSE_S)

    def _write_new(self, number: int) -> ApiProblem | Unreachable | None:
        """Write the new part of a log until the log ends. Returns the error that cut it off, if a retry may help."""
        at = 0
        try:
            for piece in self._pieces(number):
                at += len(piece)
                if at > self._written:
                    self._write(piece[-(at - self._written) :])
                    self._written = at
        except Unreachable as error:
            return error
        except ApiProblem as problem:
            if problem.status < 500 and problem.status != NO_LOG:
                raise
            return problem
        return None

    def _run_when_reachable(self) -> dict[str, Any]:
        """Read the run, retrying until a member answers. Raises the error that lasts."""
        since_s: float | None = None
        while True:
            try:
                return self._read_run()
            except (ApiProblem, Unreachable) as error:
                if since_s is None:
                    since_s = self._clock()
                    if patience_s(error) > 0:
                        self._say(f"{error}; retrying for {patience_s(error):.0f} s")
                if self._clock() - since_s >= patience_s(error):
                    raise
            self._sleep(PAUSE_S)

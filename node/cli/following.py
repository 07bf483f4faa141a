"""Following a run's log from one attempt to the next, whichever nodes they are made on, and whichever are away."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from node.cli.watching import PAUSE_S, patience_s
from node.client import ApiProblem, Unreachable
from tasks.run import FINAL, HELD

NO_LOG: Final = 404


class Following:
    """One run's log, followed until the run has ended.

    `look` reads the run; `pieces` gives the log of an attempt as it is written, from its beginning. `write` is given
    what is new of it. `head` is told the attempt whose log follows that of another; `say` is told what keeps the log
    from being seen, once each time.
    """

    def __init__(
        self,
        look: Callable[[], dict[str, Any]],
        pieces: Callable[[int | None], Iterator[bytes]],
        write: Callable[[bytes], None],
        head: Callable[[dict[str, Any]], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._look = look
        self._pieces = pieces
        self._write = write
        self._head = head
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._written = 0

    def follow(self) -> None:
        """Until the run has ended and its last log is told. Raises the `ApiProblem` or `Unreachable` that lasts."""
        run = self._look()
        last = run["attempts"][-1]["attempt"] - 1 if run["attempts"] else 0
        if run["state"] in FINAL and not run["attempts"]:
            self._write(b"".join(self._pieces(None)))  # which says that there is none
            return
        first = True
        while True:
            new = [attempt for attempt in run["attempts"] if attempt["attempt"] > last]
            for attempt in new:
                if not first:
                    self._head(attempt)
                first = False
                last = attempt["attempt"]
                run = self._show(attempt)
            if not new:
                if run["state"] in FINAL:
                    return
                self._sleep(PAUSE_S)
                run = self._seen()

    def _show(self, attempt: dict[str, Any]) -> dict[str, Any]:
        """Tell an attempt's log to its end, and return the run as it is then."""
        number, told = attempt["attempt"], False
        self._written = 0
        while True:
            broken = self._tell(number)
            run = self._seen()
            held = run["state"] in HELD and run["attempt"] == number
            if not held and broken is not None and not told:
                broken = self._tell(number)  # what it wrote last: now that the attempt is over, this ends
            if broken is not None and not (told and held):
                then = "trying again" if held else "what is left of it is not shown, and following goes on"
                self._say(f"the log of attempt {number} on {attempt['node']} cannot be seen: {broken}; {then}")
                told = True
            if not held:
                return run
            self._sleep(PAUSE_S)

    def _tell(self, number: int) -> ApiProblem | Unreachable | None:
        """Write what has not been written of a log, until it ends. What it broke off with, if that may pass."""
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

    def _seen(self) -> dict[str, Any]:
        """The run, once somebody answers."""
        since_s: float | None = None
        while True:
            try:
                return self._look()
            except (ApiProblem, Unreachable) as error:
                if since_s is None:
                    since_s = self._clock()
                    if patience_s(error) > 0:
                        self._say(f"{error}; asking again for {patience_s(error):.0f} s")
                if self._clock() - since_s >= patience_s(error):
                    raise
            self._sleep(PAUSE_S)

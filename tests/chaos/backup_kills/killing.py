"""Kills the owner of a run at a drawn moment, and checks what is left once the run has ended."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from node.cli.local import NotInTime, wait_for
from node.execution import process_tree
from tasks.definition.run import FINAL
from testkit.cluster import Cluster
from testkit.processes import marked
from tests.chaos.backup_kills.jobs import Job, Seen, demand

WAIT_S: Final = 600.0
"""Other work on the machine must not look like a fault."""

_LANDMARKS_SHARE: Final = 0.4
"""The part of the moments that follow a landmark. Of the others, one half is drawn over the length of a run, the other
over the content, since a run takes longer while the machine has other work."""


Victim = Literal["node", "all", "attempt"]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When an attempt is killed, and how."""

    #: What is waited for; None: nothing.
    landmark: str | None
    #: How much of the content is waited for, as a part of 1; 0: nothing.
    content: float
    #: How long afterwards, or after the run was asked for, in seconds.
    after_s: float
    #: What gets SIGKILL: the node, the node and all its processes at once, or the attempt's own process.
    victim: Victim
    #: Whether a node that was killed is started again only when the run has ended.
    back_late: bool


def drawn_moment(draw: random.Random, length_s: float, landmarks: Mapping[str, Any], local: bool) -> Moment:
    """Draw a moment of a run that takes `length_s` if nothing disturbs it."""
    after_s, content, landmark = draw.choice([0.0, draw.uniform(0, 0.1)]), 0.0, None
    if draw.random() < _LANDMARKS_SHARE:
        landmark = draw.choice(sorted(landmarks))
    elif draw.random() < 0.5:
        content = draw.random()
    else:
        after_s = draw.uniform(0, length_s)
    victim: Victim = draw.choice(["node", "all", "attempt"])
    back_late = not local and draw.random() < 0.5
    return Moment(landmark=landmark, content=content, after_s=after_s, victim=victim, back_late=back_late)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What happened at a moment."""

    #: What was killed and when, in words.
    text: str
    #: Whether the run had ended before.
    late: bool
    #: What was whole.
    seen: Seen
    #: The number of attempts at the run.
    attempts: int
    #: What did not hold; "": all held.
    wrong: str
    #: What the run itself had left, and the next run had to remove.
    swept: int


class Killing:
    """A cluster, and a job whose runs are killed there."""

    def __init__(self, cluster: Cluster, job: Job, folder: Path) -> None:
        self._cluster = cluster
        self._job = job
        self._scratch = folder
        self._number = 0
        #: How long a run takes that nothing disturbs, in seconds, and how much it says that it has done.
        self.length_s = 0.0
        self.content = 0.0
        #: How many moments went wrong.
        self.wrong = 0
        self._told: set[str] = set()

    def undisturbed(self) -> None:
        """Run the job, kill nothing, and check. Remembers how long the run took. Raises `AssertionError`."""
        self._job.prepare(self._cluster, self._number)
        self._number += 1
        run_id = self._cluster.run(self._job.task)

        def ended() -> Mapping[str, Any] | None:
            run: Mapping[str, Any] = self._cluster.run_of(run_id)
            self.content = max(self.content, _content(run))
            return run if run["state"] in FINAL else None

        run = wait_for("the end of the run", ended, WAIT_S)
        self.length_s = run["took_s"]
        self._check(run, Seen())
        self._check_nothing_left()

    def kill(self, draw: random.Random) -> Outcome:
        """Start a run, kill its owner at a drawn moment, start it again, wait for the end of the run, and check."""
        cluster, job = self._cluster, self._job
        job.prepare(cluster, self._number)
        self._number += 1
        landmarks = job.landmarks()
        moment = drawn_moment(draw, self.length_s, landmarks, job.local)
        began_s = time.monotonic()
        run_id = cluster.run(job.task)
        run = self._wait(run_id, began_s, moment, landmarks)
        at_s = time.monotonic() - began_s
        owner = run["node"] or cluster.owner_of(job.task)
        dying = self._kill(owner, moment.victim)
        seen = job.seen(run_id)
        where = f"{at_s:.2f} s"
        if moment.landmark or moment.content:
            after = moment.landmark or f"{moment.content:.0%} of the content"
            where = f"{after} + {moment.after_s * 1000:.0f} ms"
        text = f"{moment.victim:7} {owner} at {where}"
        wrong, swept, ended = "", 0, run
        try:
            if moment.victim == "attempt":
                ended = cluster.wait_for_run(run_id, deadline_s=WAIT_S)
            else:
                if not moment.back_late:
                    cluster.start(owner)
                ended = cluster.wait_for_run(run_id, node=cluster.others(owner)[0], deadline_s=WAIT_S)
                if moment.back_late:
                    cluster.start(owner)
            cluster.wait_until_whole(WAIT_S)
            wait_for("the end of what was killed", lambda: not [each for each in dying if _runs(*each)], WAIT_S)
            self._check(ended, seen)
            swept = len(self._leftovers())
            if swept:
                self.undisturbed()
            else:
                self._check_nothing_left()
        except (AssertionError, NotInTime) as error:
            wrong = f"{run_id}: {type(error).__name__}: {error}"
            self.wrong += 1
            for name in cluster.names:
                if name not in cluster.running():
                    cluster.start(name)
            cluster.wait_until_whole(WAIT_S)
        attempts = ended["attempt"] or 0
        if attempts == 1:
            self.length_s = ended["took_s"] or self.length_s
        return Outcome(text=text, late=run["state"] in FINAL, seen=seen, attempts=attempts, wrong=wrong, swept=swept)

    def _wait(
        self, run_id: str, began_s: float, moment: Moment, landmarks: Mapping[str, Callable[[Any], bool]]
    ) -> Mapping[str, Any]:
        """Wait for the moment. Returns the run as it is then."""
        if moment.landmark or moment.content:

            def there() -> bool:
                run = self._cluster.run_of(run_id, fresh=False)
                if run["state"] in FINAL:
                    return True
                if moment.landmark:
                    return landmarks[moment.landmark](run)
                return _content(run) >= moment.content * self.content

            with suppress(NotInTime):
                wait_for(str(moment), there, WAIT_S, pause_s=0.005)
            began_s = time.monotonic()
        wait_for("the moment", lambda: time.monotonic() - began_s >= moment.after_s, WAIT_S, pause_s=0.001)
        found: Mapping[str, Any] = self._cluster.run_of(run_id)
        return found

    def _kill(self, owner: str, victim: Victim) -> list[tuple[int, int]]:
        """Kill. Returns the processes that have to end: their ids, and when they began."""
        cluster = self._cluster
        folder = cluster.folder / owner
        scratch = folder / "scratch"
        if victim == "attempt":
            inside = {pid for pid in marked(folder) if _is_in(pid, scratch)}
            dying = _known(inside)
            for pid in inside:
                one = process_tree.process(pid)
                if one is not None and one.parent not in inside:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            return dying
        pids = marked(folder)
        dying = _known(pids)
        if victim == "all":
            for pid in [cluster.pid(owner), *pids]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        cluster.kill(owner)
        return dying

    def _leftovers(self) -> list[str]:
        """What is left at the destinations and was not told as wrong before."""
        return [each for each in self._job.leftovers() if each not in self._told]

    def _check(self, run: Mapping[str, Any], seen: Seen) -> None:
        into = self._scratch / f"back-{self._number}"
        into.mkdir()
        self._job.check(run, seen, into)
        shutil.rmtree(into)

    def _check_nothing_left(self) -> None:
        """Raise unless destinations, servers, scratch folders and processes hold nothing of attempts that are over."""
        left = self._leftovers()
        self._told.update(left)
        demand(not left, f"left at the destinations: {left[:10]}")
        wait_for("the end of all sessions", lambda: not self._job.sessions(), WAIT_S)
        for name in self._cluster.names:
            scratch = self._cluster.folder / name / "scratch"

            def busy(scratch: Path = scratch, name: str = name) -> list[Any]:
                inside = list(scratch.iterdir()) if scratch.exists() else []
                return [*inside, *(pid for pid in marked(self._cluster.folder / name) if _is_in(pid, scratch))]

            wait_for(f"an empty {scratch}", lambda busy=busy: not busy(), WAIT_S)  # type: ignore[misc]
        temporary = self._cluster.folder / "tmp"
        demand(not list(temporary.iterdir()), f"left in {temporary}: {list(temporary.iterdir())}")


def _content(run: Mapping[str, Any]) -> float:
    """How much of its content a run says that it has done."""
    return float(run["progress"]["done"]) if run["progress"] is not None else 0.0


def _known(pids: Any) -> list[tuple[int, int]]:
    return [(pid, one.started) for pid in pids if (one := process_tree.process(pid)) is not None]


def _runs(pid: int, started: int) -> bool:
    one = process_tree.process(pid)
    return one is not None and one.started == started and one.state != "Z"


def _is_in(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(folder)  # noqa: PTH115
    except OSError:
        return False

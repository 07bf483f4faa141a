"""What befalls the node that archives: it is killed, frozen, or cut off in silence."""

import os
import random
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from bench.wal.site import SERVER, STORE, Site
from bench.wal.watch import Watch
from node.cli.local import wait_for
from testkit.faults.network import SeparateCluster

WAIT_S: Final = 240.0
BASE_S: Final = 100.0
"""How often a physical backup is made: a restore begins at the one before its moment."""

CUT_S: Final = (4.0, 45.0, 8.0)
"""How long a node is cut off from the server or the store: at least, at most, and mostly. A lease takes 3 s, and a
connection is given up after half a minute of silence."""

ANYWHERE: Final = ("killed", "frozen")
SEPARATE: Final = ("cut off from the members", "cut off from the server", "cut off from the store", "cut off from all")
"""Faults that need network namespaces: packets are dropped, so who is cut off is silent."""

_WITHIN_LEASE: Final = ("cut off from the server", "cut off from the store")
"""Nobody takes over: the cluster sees a member that is up. The attempt goes on when the cut is healed."""


class Faults:
    """Strikes the owner of the archive's task `count` times, as `kinds` say."""

    def __init__(self, site: Site, watch: Watch, kinds: Sequence[str], draw: random.Random) -> None:
        self._site = site
        self._watch = watch
        self._kinds = kinds
        self._draw = draw
        self._took_s: dict[str, list[float]] = defaultdict(list)
        self._kept: list[tuple[int, int, str]] = []
        self._bases = 1

    def strike(self, count: int) -> None:
        """Strike so often. Raises `NotInTime` if the archive does not go on."""
        based_s = time.monotonic()
        for number in range(count):
            time.sleep(self._draw.uniform(0, 4))
            owner, how = self._owner(), self._draw.choice(self._kinds)
            began_s, lsn = time.monotonic(), self._watch.server_lsn()
            said = self._within_lease(owner, how) if how in _WITHIN_LEASE else self._taken_over(owner, how)
            wait_for("the log from before the fault", partial(self._watch.has, lsn), WAIT_S)
            self._site.cluster.wait_until_whole(WAIT_S)
            most, written = self._watch.kept_between(began_s, time.monotonic())
            self._kept.append((most, written, how))
            print(
                f"{number + 1}: {owner} {how}, {said}; the server kept at most {most >> 20} MiB, and wrote "
                f"{written >> 20} MiB from the fault until all was well",
                flush=True,
            )
            if time.monotonic() - based_s > BASE_S:
                based_s, self._bases = time.monotonic(), self._bases + 1
                self._site.back_up(self._bases)

    def report(self) -> None:
        """Print how long the archive stood still."""
        for how, times in sorted(self._took_s.items()):
            what = "went on, after it was healed," if how in _WITHIN_LEASE else "claimed by another"
            middle, longest = statistics.median(times), max(times)
            print(f"{how} {len(times)} times: {what} after {middle:.1f} s (median), at most {longest:.1f} s")
        if self._kept:
            most, written, how = max(self._kept)
            print(f"the server kept at most {most >> 20} MiB: {how}, while it wrote {written >> 20} MiB", flush=True)

    def _taken_over(self, owner: str, how: str) -> str:
        """Strike until another member has claimed the archive and added to it."""
        watch = self._watch
        before, began_s = watch.counted.holder, time.monotonic()
        with self._befallen(owner, how):
            wait_for("another claim of the archive", lambda: watch.counted.holder > before, WAIT_S)
            took_s = time.monotonic() - began_s
            pages = watch.counted.number
            wait_for("more log", lambda: watch.counted.number > pages + 1, WAIT_S)
            if how != "killed":
                time.sleep(self._draw.uniform(0, 3))
        self._took_s[how].append(took_s)
        return f"taken over after {took_s:.1f} s"

    def _within_lease(self, owner: str, how: str) -> str:
        """Cut a node off from the server or the store for some time, and wait until it goes on."""
        cut_s = self._draw.triangular(*CUT_S)
        with self._befallen(owner, how):
            time.sleep(cut_s)
        healed_s, lsn = time.monotonic(), self._watch.server_lsn()
        wait_for("the log from before the healing", partial(self._watch.has, lsn), WAIT_S)
        took_s = time.monotonic() - healed_s
        self._took_s[how].append(took_s)
        return f"for {cut_s:.1f} s, and all of that time archived {took_s:.1f} s after"

    @contextmanager
    def _befallen(self, owner: str, how: str) -> Iterator[None]:
        """Strike a node, and undo it after the block."""
        cluster = self._site.cluster
        if how == "killed":
            cluster.kill(owner)
            yield
            cluster.start(owner)
        elif how == "frozen":
            stopped = self._freeze(owner)
            yield
            cluster.resume(owner)
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        else:
            assert isinstance(cluster, SeparateCluster)
            members = cluster.others(owner)
            from_whom = {
                "cut off from the members": members,
                "cut off from the server": [SERVER],
                "cut off from the store": [STORE],
                "cut off from all": [*members, SERVER, STORE],
            }
            cluster.cut_off(owner, *from_whom[how])
            yield
            cluster.heal()

    def _owner(self) -> str:
        def held() -> Any:
            found = [
                run for run in self._site.cluster.get("/v1/runs", task="log")["items"] if run["state"] == "running"
            ]
            return found[0]["node"] if found else None

        return str(wait_for("the run of log", held, WAIT_S))

    def _freeze(self, name: str) -> list[int]:
        """Stop a node, and then all processes of its attempts. Returns these."""
        cluster = self._site.cluster
        cluster.pause(name)
        pids = cluster.workers(name)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return pids

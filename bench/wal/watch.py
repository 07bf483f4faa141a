"""What is seen of the archive and the server while they work."""

import bisect
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from bench.wal.site import Site
from tasks.places.place import Place
from tasks.postgres.wal_position import parse_lsn
from tasks.wal.archive import archived_systems, page_name
from tasks.wal.counted import Counted
from tasks.wal.pages import WalPage

LOOK_S: Final = 0.2
_SLOT: Final = "SELECT pg_current_wal_flush_lsn(), pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots"


class Watch:
    """Looks at the server's slot and reads the archive's pages every `LOOK_S`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._place: Place | None = None
        self._ended = threading.Event()
        self.counted = Counted()
        self.pages: list[tuple[WalPage, bool]] = []
        """All pages, each with whether it counts."""
        self.looks: list[tuple[float, int, int]] = []
        """Of each look: when (monotonic), the server's position, and the bytes that it keeps for the slot."""
        self.archived: list[tuple[float, int]] = []
        """The archive's position, and when it was seen (monotonic), whenever it moved."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look, in a thread, within the block."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            with suppress(Exception):  # the server or the store may be stopping
                self._look()
                self.read()

    def _look(self) -> None:
        said = self._site.server.sql("postgres", _SLOT)
        if said:
            lsn, kept = said.splitlines()[0].split("|")
            self.looks.append((time.monotonic(), parse_lsn(lsn), int(kept or 0)))

    def read(self) -> None:
        """Read the pages that were written since the last call."""
        if self._place is None:
            systems = archived_systems(self._site.log_place())
            if not systems:
                return
            self._place = self._site.log_place(systems[0])
        while (content := self._place.read(page_name(self.counted.number + 1))) is not None:
            page = WalPage.model_validate_json(content)
            self.pages.append((page, self.counted.take(page)))
        position = self.counted.position
        if position is not None and (not self.archived or self.archived[-1][1] != position.lsn):
            self.archived.append((time.monotonic(), position.lsn))

    def server_lsn(self) -> int:
        """The position up to which the server's log is on its disk now."""
        return parse_lsn(self._site.server.sql("postgres", "SELECT pg_current_wal_flush_lsn()"))

    def has(self, lsn: int) -> bool:
        """Whether the log up to a position was seen in the archive."""
        return bool(self.archived) and self.archived[-1][1] >= lsn

    def report(self, name: str, first_s: float, last_s: float) -> None:
        """Print what was written, kept and archived between two times, `name` of which is the heading."""
        looks = [look for look in self.looks if first_s <= look[0] <= last_s]
        if len(looks) < 2:
            return
        written = looks[-1][1] - looks[0][1]
        rate = written / (looks[-1][0] - looks[0][0])
        print(f"{name}: {last_s - first_s:.0f} s; the server wrote {_mib(written)}, {_mib(rate)} a second")
        kept = sorted(kept for _, _, kept in looks)
        print(f"  it kept for the slot: median {_mib(statistics.median(kept))}, at most {_mib(kept[-1])}")
        if lags := self._lags_s(looks):
            shown = ", ".join(f"p{part} {lags[int(len(lags) * part / 100)]:.1f}" for part in (50, 90, 99))
            print(f"  the archive's lag in seconds: {shown}, at most {lags[-1]:.1f}", flush=True)

    def _lags_s(self, looks: Sequence[tuple[float, int, int]]) -> list[float]:
        """How long after each look the position that the server had then was archived."""
        positions = [position for _, position in self.archived]
        lags = []
        for at_s, lsn, _ in looks:
            number = bisect.bisect_left(positions, lsn)
            if number < len(positions):
                lags.append(max(0.0, self.archived[number][0] - at_s))
        return sorted(lags)

    def kept_between(self, first_s: float, last_s: float) -> tuple[int, int]:
        """The most that the server kept for the slot between two times, and how much it wrote then, in bytes."""
        looks = [look for look in self.looks if first_s <= look[0] <= last_s]
        if not looks:
            return 0, 0
        return max(kept for _, _, kept in looks), looks[-1][1] - looks[0][1]


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.1f} MiB"

"""Which backup leads to a moment, and whether the archived log has all between."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tasks.backup.manifest import FileEntry, Manifest, WalRange
from tasks.postgres.wal_position import Fork, lsn_text
from tasks.wal.counted import Counted
from tasks.wal.pages import StoredWal, WalGap, WalPage
from tasks.wal.restore import Moment, NotRestorable, choose_base, log_ends_at

AT = datetime(2026, 11, 26, 14, tzinfo=UTC)
SEGMENT = 100
LATEST = Moment()


def backup(start: int, end: int, timeline: int = 1) -> Manifest:
    wal = WalRange(system="77", timeline=timeline, start=start, end=end, included=True)
    return Manifest.model_construct(url=f"/to/base/{start}", finished=AT, wal=wal)


def archived(*ranges: tuple[int, int, int], gap: WalGap | None = None) -> Counted:
    """What counts if these ranges (timeline, start, end) were archived."""
    found = Counted()
    common: dict[str, Any] = {"token": 1, "node": "a", "at": AT, "segment_bytes": SEGMENT}
    found.take(WalPage(number=1, claim=True, gap=gap, **common))
    for timeline, start, end in ranges:
        entry = FileEntry(name="x", size_bytes=1, stored_bytes=1, sha256="")
        kind: Any = "segment" if end - start == SEGMENT else "piece"
        stored = StoredWal(type=kind, timeline=timeline, start=start, end=end, file=entry)
        found.take(WalPage(number=found.number + 1, objects=(stored,), **common))
    return found


def lack(*ranges: tuple[int, int]) -> str:
    return "the archive lacks " + ", ".join(f"{lsn_text(first)} to {lsn_text(last)}" for first, last in ranges)


@pytest.mark.parametrize(
    ("counted", "forks"),
    [
        (archived((1, 100, 200), (1, 200, 250)), ()),
        # The archive came to the fork, is beyond it, or was behind it and the next timeline has that segment, too.
        (archived((1, 100, 200), (1, 200, 230), (2, 200, 300), (2, 300, 310)), (Fork(1, 230),)),
        (archived((1, 100, 200), (1, 200, 290), (2, 200, 300), (2, 300, 310)), (Fork(1, 230),)),
        (archived((1, 100, 200), (2, 200, 300), (2, 300, 310)), (Fork(1, 230),)),
        (archived((1, 100, 200), (1, 200, 230), (3, 200, 260), (4, 200, 300)), (Fork(1, 230), Fork(3, 260))),
    ],
)
def test_a_log_without_a_hole_leads_to_the_latest_moment(counted: Counted, forks: tuple[Fork, ...]) -> None:
    base = backup(110, 150)
    assert choose_base([base], counted, "77", LATEST, forks) is base


def test_a_hole_behind_a_switch_over_is_told() -> None:
    lost = WalGap(timeline=2, start=210, end=300)
    counted = archived((1, 100, 200), (1, 200, 210), (2, 300, 400), gap=lost)
    base, forks = backup(110, 150), (Fork(1, 230),)
    with pytest.raises(NotRestorable, match=lack((200, 300))):
        choose_base([base], counted, "77", LATEST, forks)
    with pytest.raises(NotRestorable, match="before what is lacking can be restored with --to-lsn"):
        choose_base([base], counted, "77", Moment(time=AT), forks)
    with pytest.raises(NotRestorable, match="the archive lacks"):
        choose_base([base], counted, "77", Moment(lsn=330), forks)
    assert choose_base([base], counted, "77", Moment(lsn=205), forks) is base
    later = backup(310, 320, timeline=2)
    assert choose_base([base, later], counted, "77", LATEST, forks) is later


def test_an_lsn_at_which_the_log_ends_is_known() -> None:
    forks = (Fork(1, 230),)
    # The rest of the first timeline's last segment is in the second one's only.
    counted = archived((1, 100, 200), (1, 200, 210), (2, 200, 300), (2, 300, 310))
    assert [lsn for lsn in range(150, 320) if log_ends_at(lsn, counted, 2, forks)] == list(range(310, 320))
    assert log_ends_at(210, counted, 1, ())
    lost = archived((1, 100, 200), (1, 200, 210), (1, 300, 400), gap=WalGap(timeline=1, start=210, end=300))
    assert [lsn for lsn in (150, 209, 210, 300) if log_ends_at(lsn, lost, 1, ())] == [210]


def test_a_backup_that_the_log_does_not_continue_is_refused() -> None:
    counted = archived((1, 100, 200), (1, 200, 290), (2, 200, 300))
    with pytest.raises(NotRestorable, match=f"timeline 2 does not continue from {lsn_text(230)} on"):
        choose_base([backup(210, 250)], counted, "77", LATEST, (Fork(1, 230),))
    with pytest.raises(NotRestorable, match=lack((300, 350))):
        choose_base([backup(310, 350, timeline=3)], counted, "77", LATEST, (Fork(1, 230),))

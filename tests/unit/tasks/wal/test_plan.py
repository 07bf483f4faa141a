"""Where an attempt goes on in the log."""

import pytest

from tasks.postgres.wal_position import Fork, WalPosition, next_timeline, segment_name, segment_position
from tasks.wal.plan import (
    OtherHistory,
    ServerBehind,
    StreamPart,
    WalServer,
    application_prefix,
    check_history,
    stream_part,
    tokens_up_to,
)

SEGMENT = 100


def server(timeline: int = 1, flushed: int = 1000, *forks: Fork, kept_from: int | None = 430) -> WalServer:
    return WalServer("77", timeline, flushed, SEGMENT, forks, kept_from)


@pytest.mark.parametrize(
    ("archived", "now", "part"),
    [
        (None, server(), StreamPart(1, 400, None)),
        (None, server(kept_from=None), StreamPart(1, 1000, None)),
        (None, server(2, 1000, Fork(1, 450)), StreamPart(1, 400, 450)),
        (WalPosition(1, 650), server(), StreamPart(1, 600, None)),
        (WalPosition(1, 700), server(), StreamPart(1, 700, None)),
        (WalPosition(1, 1000), server(), StreamPart(1, 1000, None)),
        # The archive has not come to the fork yet, is there, or is beyond it: what is beyond was lost by the promotion.
        (WalPosition(1, 650), server(2, 1000, Fork(1, 730)), StreamPart(1, 600, 730)),
        (WalPosition(1, 730), server(2, 1000, Fork(1, 730)), StreamPart(2, 700, None)),
        (WalPosition(1, 790), server(2, 1000, Fork(1, 730)), StreamPart(2, 700, None)),
        # Two promotions at once, one of a timeline that skips a number.
        (WalPosition(1, 730), server(4, 1000, Fork(1, 730), Fork(3, 810)), StreamPart(3, 700, 810)),
        (WalPosition(3, 810), server(4, 1000, Fork(1, 730), Fork(3, 810)), StreamPart(4, 800, None)),
    ],
)
def test_an_attempt_goes_on_at_the_beginning_of_a_segment(
    archived: WalPosition | None, now: WalServer, part: StreamPart
) -> None:
    assert stream_part(archived, now) == part


@pytest.mark.parametrize(
    ("archived", "now", "error", "says"),
    [
        (WalPosition(1, 1001), server(), ServerBehind, "it lags"),
        (WalPosition(2, 10), server(), ServerBehind, "from before a switch-over"),
        (WalPosition(2, 10), server(3, 1000, Fork(1, 730)), OtherHistory, "does not descend from timeline 2"),
    ],
)
def test_a_server_whose_log_is_another_is_refused(
    archived: WalPosition, now: WalServer, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        stream_part(archived, now)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 16 << 20, 64 << 20, 1 << 30])
@pytest.mark.parametrize("lsn", [0, 1 << 30, (5 << 32) + (3 << 30), (1 << 48) - (1 << 30)])
def test_a_segments_name_says_where_it_begins(segment_bytes: int, lsn: int) -> None:
    assert segment_position(segment_name(7, lsn, segment_bytes), segment_bytes) == WalPosition(7, lsn)
    assert segment_position(segment_name(7, lsn + segment_bytes - 1, segment_bytes), segment_bytes).lsn == lsn


def test_the_next_timeline_is_the_one_on_the_way_to_the_newest() -> None:
    forks = (Fork(1, 10), Fork(3, 20))
    assert [next_timeline(forks, timeline, 4) for timeline in (1, 3)] == [3, 4]


def test_a_timeline_of_the_same_number_that_began_elsewhere_is_refused() -> None:
    check_history(2, (Fork(1, 730),), server(2, 1000, Fork(1, 730)))
    check_history(2, (Fork(1, 730),), server(3, 1000, Fork(1, 730), Fork(2, 900)))
    for now in (server(2, 1000, Fork(1, 500)), server(3, 1000, Fork(1, 500), Fork(2, 900))):
        with pytest.raises(OtherHistory, match="began elsewhere"):
            check_history(2, (Fork(1, 730),), now)


def test_the_streams_of_other_slots_tasks_and_clusters_are_told_apart() -> None:
    one, other = ("rota_orders_production_eu_west_archive_" + end for end in ("a_11111111", "b_22222222"))
    names = {7: f"{application_prefix(one, 'log', 'c1')} 41"}
    assert tokens_up_to(names, application_prefix(one, "log", "c1"), 42) == [7]
    for different in (
        application_prefix(other, "log", "c1"),
        application_prefix(one, "log-2", "c1"),
        application_prefix(one, "log", "c2"),
    ):
        assert tokens_up_to(names, different, 42) == []

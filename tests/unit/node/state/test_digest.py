"""Digests in the replicated state: each is made once, whoever proposes it."""

from dataclasses import replace
from typing import Any

from node.state.channel import channel_of
from node.state.codec import from_pieces, snapshot_pieces
from node.state.digest import FIGURES_BYTES_MAX, MakeDigest
from node.state.members import TakeLead
from node.state.outbox import NOTICES_MAX, ChannelRow, notice_bytes
from node.state.telling import PutChannel, Tell, Told
from node.state.value import RULES
from tests.unit.node.state.given import DAY_US, NOW_US, History, cluster, hook
from tests.unit.node.state.test_telling import run_once

FIGURES = {"total": {"ran": 3}, "groups": []}


def daily(**fields: Any) -> History:
    history = cluster("a", "b")
    history.must(TakeLead(NOW_US, "a", 1, RULES))
    put(history, NOW_US, **fields)
    return history


def put(history: History, at_us: int, **fields: Any) -> None:
    history.must(PutChannel(at_us, "ops", hook(**({"digest": {"at": "07:00"}} | fields)).pack()))


def ops(history: History) -> ChannelRow:
    return history.state.channels["ops"]


def made(history: History, day: int = 1, **fields: Any) -> MakeDigest:
    """The digest so many days after the beginning, on top of the last one."""
    entry = MakeDigest(
        NOW_US + day * DAY_US + 5,
        "ops",
        ops(history).digest_us,
        NOW_US + day * DAY_US,
        history.state.index,
        "nothing ran",
        FIGURES,
    )
    return replace(entry, **fields)


def test_a_digest_is_made_once_whoever_proposes_it() -> None:
    history = daily()
    first = made(history)
    history.must(first)
    assert history.do(first).code == "stale"
    assert history.do(replace(first, at_us=first.at_us + 1, through=history.state.index)).code == "stale"
    [notice] = ops(history).notices
    assert (notice.event, notice.severity, notice.text, notice.figures) == ("digest", "info", "nothing ran", FIGURES)
    assert (ops(history).digest_us, ops(history).digest_index) == (first.nominal_us, first.through)
    history.must(made(history, 2))
    assert len({one.key for one in ops(history).notices}) == 2
    assert ops(history).notices_bytes == sum(map(notice_bytes, ops(history).notices)) > 2 * 128
    assert from_pieces(snapshot_pieces(history.state)) == history.state


def test_it_is_told_as_any_notice_is() -> None:
    history = daily(events=["run_failed"])
    history.must(made(history))
    token = history.must(Tell(NOW_US, "ops", (ops(history).notices[0].key,), "a", 1))["token"]
    history.must(Told(NOW_US, "ops", token, "accepted"))
    assert (ops(history).notices, ops(history).told) == ((), 1)


def test_what_is_no_digest_is_refused() -> None:
    history = daily()
    fine = made(history)
    refused = {
        "no-such-channel": replace(fine, channel="other"),
        "too-large": replace(fine, figures={"x": "y" * FIGURES_BYTES_MAX}),
        "stale": replace(fine, nominal_us=fine.since_us),
        "invalid": replace(fine, through=history.state.index + 99),
    }
    for code, entry in refused.items():
        assert history.do(entry).code == code
    for entry in (replace(fine, through=ops(history).digest_index - 1), replace(fine, text="")):
        assert history.do(entry).code == "invalid"
    put(history, NOW_US, digest=None)
    assert history.do(made(history, since_us=0)).code == "stale"
    history.must(PutChannel(NOW_US, "ops", hook(digest={"at": "07:00"}).pack()))
    history.must(made(history))


def test_digests_begin_when_they_are_switched_on_and_go_on_when_their_time_changes() -> None:
    history = daily()
    index = ops(history).digest_index
    put(history, NOW_US + 7, digest={"at": "08:00", "by": "team"})
    assert (ops(history).digest_us, ops(history).digest_index) == (NOW_US, index), "nothing is left out"
    put(history, NOW_US + 8, enabled=False)
    assert ops(history).digest_us == 0
    put(history, NOW_US + 9)
    assert (ops(history).digest_us, ops(history).digest_index) == (NOW_US + 9, history.state.index)


def test_a_channel_with_nothing_but_a_digest_is_told_nothing_else() -> None:
    history = daily(digest={"at": "07:00", "only": True})
    history.put("t", retry={"attempts": 1})
    run_once(history, "failed")
    assert ops(history).notices == ()


def test_a_digest_displaces_no_failure() -> None:
    history = daily()
    history.put("t", retry={"attempts": 1})
    for number in range(NOTICES_MAX):
        run_once(history, "failed", NOW_US + number)
    before = ops(history).notices
    history.must(made(history))
    assert (ops(history).notices, ops(history).dropped) == (before, 1)


def test_a_channel_without_a_digest_is_packed_as_in_earlier_versions() -> None:
    assert b"digest" not in hook().pack()
    with_digest = hook(digest={"at": "07:00", "timezone": "Europe/Paris", "by": "team"})
    assert channel_of(with_digest.pack()) == with_digest
    history = cluster("a")
    history.must(TakeLead(NOW_US, "a", 1, 9))
    assert "update it first" in history.do(PutChannel(NOW_US, "ops", with_digest.pack())).detail

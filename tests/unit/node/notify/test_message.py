"""How notices are told."""

from dataclasses import replace

from node.duty.digests import COUNTS
from node.duty.telling import Send
from node.notify.message import LINES_MAX, document, message_id, message_text, title
from node.state.outbox import Notice, Permission
from tests.unit.node.state.given import NOW_US, hook


def message(count: int = 1, dropped: int = 0) -> Send:
    notices = tuple(
        Notice(
            f"{number}.0", "run_failed", "critical" if number == 1 else "error", NOW_US + number, f"t{number} failed"
        )
        for number in range(count)
    )
    return Send("ops", Permission(7, "a", 1, tuple(one.key for one in notices)), hook(), notices, dropped)


def test_one_notice_is_its_own_title() -> None:
    assert title(message()) == "Rota: t0 failed"
    assert title(message(3)) == "Rota: 3 notices (1 critical, 2 error)"
    assert document("c", message(3))["severity"] == "critical"


def test_whoever_sends_the_same_notices_sends_the_same_message() -> None:
    again = replace(message(3), permission=Permission(9, "b", 4, ()))
    assert document("c", message(3)) == document("c", again)
    others = [message(2), message(3, dropped=1), replace(message(3), channel="other")]
    assert len({message_id("c", one) for one in [message(3), *others]}) == 4
    assert message_id("d", message(3)) != message_id("c", message(3))


def test_a_text_has_a_line_for_each_and_says_what_is_missing() -> None:
    lines = message_text("c", message(LINES_MAX + 5, dropped=7)).splitlines()
    assert lines[1].endswith("CRITICAL  t1 failed")
    assert lines[LINES_MAX] == "and 5 more"
    assert lines[LINES_MAX + 1].startswith("7 older notices were dropped")


def test_successes_have_a_title_of_their_own_and_those_not_told_are_counted() -> None:
    two = tuple(Notice(f"{number}.0", "run_succeeded", "info", NOW_US, f"t{number} succeeded") for number in range(2))
    sent = replace(message(), notices=two, dropped_successes=40)
    assert title(sent) == "Rota: 2 runs succeeded"
    assert "40 successes are not told: there were more than could be sent" in message_text("c", sent)
    assert document("c", sent)["dropped_successes"] == 40
    assert message_id("c", sent) != message_id("c", replace(sent, dropped_successes=0))


def test_a_digest_is_its_own_title_and_has_a_line_for_each_group() -> None:
    group = dict.fromkeys(COUNTS, 0) | {"value": "bi", "ran": 2, "succeeded": 2, "tasks": {}}
    figures = {"by": "team", "complete": True, "groups": [group], "groups_left_out": 3}
    text = "all 2 runs succeeded since 2026-11-27 07:00 UTC"
    digest = Notice("8.0", "digest", "info", NOW_US, text, figures=figures)
    sent = replace(message(), notices=(digest,))
    assert title(sent) == f"Rota: {text}"
    lines = message_text("c", sent).splitlines()
    assert lines[1:4] == ["", "team bi: 2 ran, all succeeded", "and 3 more groups"]
    assert document("c", sent)["notices"][0]["figures"] == figures
    assert "figures" not in document("c", message())["notices"][0]

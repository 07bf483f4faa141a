"""The form of a message with notices: as a JSON document, and as text for people. Pure.

Two messages with the same notices are the same, byte for byte, whichever members send them.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from node.duty.telling import Send
from node.runtime.plain_text import plain_line
from node.state.channel import SEVERITIES
from node.state.outbox import Notice
from node.state.times import rfc3339

_COUNT_WORDS: Final = {
    "failed": "failed",
    "cancelled": "cancelled",
    "not_run": "did not run",
    "missed": "missed",
    "late": "late",
    "paused": "paused",
}
LINES_MAX: Final = 30
"""The maximum number of notices in a text. Of further notices, it only gives the number."""


def message_id(cluster_id: str, message: Send) -> str:
    """Return the id of a message, which is the same for each try with the same notices."""
    parts = [cluster_id, message.channel, str(message.dropped), *(notice.key for notice in message.notices)]
    parts += [f"{message.dropped_successes} successes"] if message.dropped_successes else []
    return f"rota-{blake2b(' '.join(parts).encode(), digest_size=12).hexdigest()}"


def document(cluster_id: str, message: Send) -> dict[str, Any]:
    """Return the message as JSON values. Each notice has a `key`, by which a receiver recognizes repetitions."""
    return {
        "id": message_id(cluster_id, message),
        "cluster": cluster_id,
        "channel": message.channel,
        "severity": _worst(message.notices),
        "title": title(message),
        "dropped": message.dropped,
        "dropped_successes": message.dropped_successes,
        "notices": [
            {
                "key": f"{cluster_id}-{notice.key}",
                "event": notice.event,
                "severity": notice.severity,
                "at": rfc3339(notice.at_us),
                "text": notice.text,
                "task": notice.task or None,
                "member": notice.member or None,
                "run_id": notice.run_id or None,
                **({} if notice.figures is None else {"figures": notice.figures}),
            }
            for notice in message.notices
        ],
    }


def title(message: Send) -> str:
    """Summarize the message in one line."""
    if len(message.notices) == 1:
        return f"Rota: {plain_line(message.notices[0].text)}"
    if all(notice.event == "run_succeeded" for notice in message.notices):
        return f"Rota: {len(message.notices)} runs succeeded"
    counts = ", ".join(f"{count} {severity}" for severity, count in _counts(message.notices))
    return f"Rota: {len(message.notices)} notices ({counts})"


def message_text(cluster_id: str, message: Send) -> str:
    """Return the message as text for people: a line for each notice, and how many notices were dropped."""
    shown = message.notices[:LINES_MAX]
    lines = [f"{rfc3339(one.at_us)}  {one.severity.upper()}  {plain_line(one.text)}" for one in shown]
    lines += [line for one in shown if one.figures is not None for line in ("", *digest_lines(one.figures))]
    if len(message.notices) > LINES_MAX:
        lines.append(f"and {len(message.notices) - LINES_MAX} more")
    if message.dropped:
        lines.append(f"{message.dropped} older notices were dropped: there were more than could be sent")
    if message.dropped_successes:
        lines.append(f"{message.dropped_successes} successes are not told: there were more than could be sent")
    return "\n".join(
        [*lines, "", f"cluster {cluster_id}, channel {message.channel}, {message_id(cluster_id, message)}"]
    )


def digest_lines(figures: Mapping[str, Any]) -> list[str]:
    """Return the figures of a digest as lines of text, short enough for a phone. None of groups without figures.

    >>> from node.duty.digests import COUNTS
    >>> bi = dict.fromkeys(COUNTS, 0) | {"value": "bi", "ran": 9, "succeeded": 8, "failed": 1}
    >>> bi["tasks"] = {"failed": [{"task": "nightly", "count": 1}]}
    >>> web = dict.fromkeys(COUNTS, 0) | {"value": None, "ran": 3, "succeeded": 3, "tasks": {}}
    >>> print(*digest_lines({"by": "team", "complete": True, "groups": [bi, web], "groups_left_out": 0}), sep="|")
    team bi: 9 ran, 8 succeeded, 1 failed|  failed: nightly|no team: 3 ran, all succeeded
    """
    lines: list[str] = []
    for group in figures["groups"]:
        lines.append(f"{_group_name(figures['by'], group['value'])}: {_group_counts(group)}")
        for what, named in group["tasks"].items():
            tasks = ", ".join(f"{one['task']} ({one['count']})" if one["count"] > 1 else one["task"] for one in named)
            lines.append(plain_line(f"  {what}: {tasks}"))
    if figures["groups_left_out"]:
        lines.append(f"and {figures['groups_left_out']} more groups")
    if not figures["complete"]:
        lines.append("some finished runs are missing on the member that made this: the figures may be too low")
    return lines


def _group_name(by: str | None, value: str | None) -> str:
    if by is None:
        return "all tasks"
    return plain_line(f"no {by}" if value is None else f"{by} {value}")


def _group_counts(group: Mapping[str, Any]) -> str:
    ran, succeeded = group["ran"], group["succeeded"]
    if not ran:
        parts = ["nothing ran"]
    else:
        parts = [f"{ran} ran", "all succeeded" if succeeded == ran else f"{succeeded} succeeded"]
    parts += [f"{group[what]} {word}" for what, word in _COUNT_WORDS.items() if group[what]]
    return ", ".join(parts)


def _worst(notices: Sequence[Notice]) -> str:
    return max((notice.severity for notice in notices), key=SEVERITIES.index)


def _counts(notices: Sequence[Notice]) -> list[tuple[str, int]]:
    found = [(severity, sum(one.severity == severity for one in notices)) for severity in reversed(SEVERITIES)]
    return [(severity, count) for severity, count in found if count]

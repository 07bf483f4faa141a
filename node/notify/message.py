"""The form of a message with notices: as a JSON document, and as text for people. Pure.

Two messages with the same notices are the same, byte for byte, whichever members send them.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from node.duty.telling import Send
from node.runtime.plain_text import plain_line
from node.state.channel import SEVERITIES
from node.state.outbox import Notice
from node.state.times import rfc3339

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
    if len(message.notices) > LINES_MAX:
        lines.append(f"and {len(message.notices) - LINES_MAX} more")
    if message.dropped:
        lines.append(f"{message.dropped} older notices were dropped: there were more than could be sent")
    if message.dropped_successes:
        lines.append(f"{message.dropped_successes} successes are not told: there were more than could be sent")
    return "\n".join(
        [*lines, "", f"cluster {cluster_id}, channel {message.channel}, {message_id(cluster_id, message)}"]
    )


def _worst(notices: Sequence[Notice]) -> str:
    return max((notice.severity for notice in notices), key=SEVERITIES.index)


def _counts(notices: Sequence[Notice]) -> list[tuple[str, int]]:
    found = [(severity, sum(one.severity == severity for one in notices)) for severity in reversed(SEVERITIES)]
    return [(severity, count) for severity, count in found if count]

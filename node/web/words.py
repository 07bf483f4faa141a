"""Times and amounts in words, for the templates. Pure."""

import re
from collections.abc import Callable
from typing import Any, Final

from markupsafe import Markup, escape

from node.runtime.durations import duration, seconds
from node.runtime.plain_text import plain
from node.state.times import rfc3339
from node.storage.room import size
from tasks.definition.spec import At, Continuous, Cron, Every, Schedule, after_of, timing

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)")


def since(at_us: int, now_us: int) -> str:
    """Say in words how long before `now_us` a time was.

    >>> since(0, 61_000_000)
    '1 min 1 s'
    """
    return duration((now_us - at_us) / 1e6)


def clock(at_us: int) -> str:
    """Return a time of day in UTC; the page's script shows it in the chosen time zone instead.

    >>> clock(1_794_000_000_000_000)
    '21:20'
    """
    return rfc3339(at_us)[11:16]


def count(number: int, one: str, more: str = "") -> str:
    """Return a number with its noun.

    >>> count(1, "task"), count(1200, "task"), count(2, "entry", "entries")
    ('1 task', '1,200 tasks', '2 entries')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def amount(value: float) -> str:
    """Return a number as text for people.

    >>> amount(1234567), amount(0.25)
    ('1,234,567', '0.25')
    """
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def clocks(text: str) -> str:
    """Shorten the times in a text to times of day in UTC, for attributes; the page's script then changes the time zone.

    >>> clocks("due at 2026-11-24T01:30:00Z, on node-1")
    'due at 01:30 UTC, on node-1'
    """
    return _TIME.sub(lambda found: f"{found[1][11:16]} UTC", text)


def timed(text: str, show: str = "moment") -> Markup:
    """Turn the times in a text into elements, which the page's script shows in the chosen time zone.

    >>> timed("<until> 2026-11-24T01:30:00Z")
    Markup('&lt;until&gt; <time datetime="2026-11-24T01:30:00Z" data-show="moment">2026-11-24 01:30:00</time>')
    """
    pieces = _TIME.split(plain(text))
    return Markup("").join(
        Markup('<time datetime="{}" data-show="{}">{}</time>').format(piece, show, piece[:19].replace("T", " "))
        if number % 2
        else escape(piece)
        for number, piece in enumerate(pieces)
    )


def as_typed(text: str) -> Markup:
    """Escape a form's text for HTML only: it is sent back, so its control characters must stay as they are."""
    return escape(text)


def sentence(text: str) -> str:
    """Turn a clause into a sentence, with a capital letter and a full stop.

    >>> sentence("not due until noon"), sentence("rota-1 is down."), sentence("")
    ('Not due until noon.', 'Rota-1 is down.', '')
    """
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith((".", "!", "?")) else ".")


def due_words(packed: bytes) -> str:
    """Describe in words when a task with this packed definition is due.

    >>> from tasks.definition.spec import Spec
    >>> due_words(Spec(name="c", kind="command", after=["a", {"task": "b", "on": "failed"}]).pack())
    'after a, b (failed)'
    >>> due_words(Spec(name="c", kind="command", after=["a"], schedule={"cron": "0 6 * * *"}).pack())
    '0 6 * * *, after a'
    """
    schedule = timing(packed).schedule
    if after := after_of(packed):
        parents = "after " + ", ".join(one.task + ("" if one.on == "succeeded" else f" ({one.on})") for one in after)
        return parents if schedule is None else f"{schedule_words(schedule)}, {parents}"
    return schedule_words(schedule)


def schedule_words(schedule: Schedule | None) -> str:
    """Describe a schedule in words.

    >>> schedule_words(Every(every_s=90)), schedule_words(Cron(cron="0 3 * * *", timezone="Europe/Paris"))
    ('every 1 min 30 s', '0 3 * * * Europe/Paris')
    """
    match schedule:
        case None:
            return "by hand"
        case Cron(cron=line, timezone=timezone):
            return line if timezone == "UTC" else f"{line} {timezone}"
        case Every(every_s=every_s):
            return f"every {duration(every_s)}" if every_s >= 1 else f"every {every_s:g} s"
        case At():
            return "once"
        case Continuous():
            return "continuously"


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "duration": duration,
    "since": since,
    "clock": clock,
    "clocks": clocks,
    "count": count,
    "amount": amount,
    "size": size,
    "seconds": seconds,
    "timed": timed,
    "as_typed": as_typed,
    "sentence": sentence,
    "rfc3339": rfc3339,
}

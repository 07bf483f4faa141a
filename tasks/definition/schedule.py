"""The due times of a schedule, in microseconds since the Unix epoch. `tasks.definition.cron` reads cron lines."""

from collections.abc import Iterator

from tasks.definition.cron import at_us_of, cron_line, cron_times, unreadable_line
from tasks.definition.spec import At, Continuous, Cron, Every, Schedule


def occurrences(schedule: Schedule | None, since_us: int, after_us: int) -> Iterator[int]:
    """Yield the due times of `schedule` later than both `since_us` and `after_us`, in order; often without end.

    `since_us` is the time from which the schedule counts (the registration, the last change or the resumption); an
    `at` that is not later is never due. A continuous schedule has one occurrence, `since_us` itself, which counts as
    handled if `after_us` is not before it; `since_us` is moved when a run has ended.
    """
    start_us = max(since_us, after_us)
    match schedule:
        case None:
            return
        case Cron(cron=line, timezone=timezone):
            yield from cron_times(line, timezone, start_us)
        case Every(every_s=every_s):
            every_us = max(1, round(every_s * 1_000_000))
            due_us = since_us + ((start_us - since_us) // every_us + 1) * every_us
            while True:
                yield due_us
                due_us += every_us
        case At(at=at):
            at_us = at_us_of(at)
            if at_us > start_us:
                yield at_us
        case Continuous():
            if since_us > after_us:
                yield since_us


def next_due_us(schedule: Schedule | None, since_us: int, after_us: int) -> int | None:
    """Return the first due time from `occurrences`, or None. Cheap for many tasks with one cron line.

    >>> next_due_us(Every(every_s=300), since_us=7, after_us=300_000_007)
    600000007
    """
    match schedule:
        case Cron(cron=line, timezone=timezone):
            return cron_line(line, timezone).next_us(max(since_us, after_us))
        case _:
            return next(occurrences(schedule, since_us, after_us), None)


def may_be_due(schedule: Schedule | None, since_us: int, due_us: int) -> bool:
    """Whether `due_us` may be one of `occurrences`. The answer does not depend on the machine's time zones.

    >>> may_be_due(Every(every_s=300), since_us=7, due_us=600_000_007), may_be_due(Every(every_s=300), 7, 600_000_000)
    (True, False)
    """
    match schedule:
        case Cron():
            return due_us > since_us and due_us % 1_000_000 == 0
        case _:
            return next(occurrences(schedule, since_us, due_us - 1), None) == due_us


def unreadable(schedule: Schedule | None) -> str | None:
    """Say why this machine cannot compute the due times of an accepted schedule; None if it can.

    Such a schedule has no due times here. Time zones depend on a machine's version of tzdata, and another member with
    another version may have accepted the task.

    >>> unreadable(Cron.model_construct(cron="0 3 * * *", timezone="Mars/Olympus"))
    "'Mars/Olympus' is not a time zone of the IANA database, such as Europe/Paris or UTC"
    """
    match schedule:
        case Cron(cron=line, timezone=timezone):
            return unreadable_line(line, timezone)
    return None

"""Tasks that are due by calendars, in a history that has them, blackouts, and the clients that change them.

They are drawn from a stream of their own, so that histories without them stay what they are. A history is the first
minute of a day in `ZONE`, a Friday: what is due in it depends on that day, and on those around it.
"""

import random
from functools import partial
from typing import Any, Final

from node.state.blackouts import EndBlackout, SetBlackout
from node.state.calendars import SetCalendar
from node.state.entries import Entry
from node.state.occurrences import Start
from node.state.registry import DeleteTask, Put, PutTasks
from tasks.definition.spec import Spec
from tests.simulation.clients import Clients
from tests.simulation.days import TODAY, ZONE
from tests.simulation.plan import Fault
from tests.simulation.world import BEGUN_US

TASKS: Final = 5
FRIDAY, SATURDAY, THURSDAY = "5", "6", "4"
CALENDARS: Final = ("c0", "c1", "c2")
PUBLIC: Final = "holidays/ZZ"
NEAR_DAYS: Final = 200
"""For how many days ahead public holidays are known at first: the leader has to add some."""

LAST_BLACKOUT_S: Final = 48
"""When the last blackout ends, at the latest: the cluster is well by then."""


class CalendarTasks:
    """The tasks `k0`... of a history, its calendars and its blackouts."""

    def __init__(self, clients: Clients, seed: int) -> None:
        self._clients = clients
        self._rng = rng = random.Random(f"calendars {seed}")
        self._names = [f"k{number}" for number in range(TASKS)]
        overlaps, catch_ups = ("skip", "queue", "replace", "allow"), ("skip", "latest", "all")
        self._fixed = {
            name: {"overlap": rng.choice(overlaps), "catch_up": rng.choice(catch_ups)} for name in self._names
        }
        self._specs = {name: self._spec(name) for name in self._names}
        self._blackouts = 0
        clients.at_the_end.append(self._end_blackouts)

    def _spec(self, name: str) -> Spec:
        """Overlap and catch-up of a task stay what they are. Twelve times a day may be moved."""
        pick = self._rng.choice
        on_skip = pick(("skip", "next", "previous"))
        weekday = {"skip": "*", "next": pick(("*", THURSDAY, FRIDAY)), "previous": pick(("*", SATURDAY, FRIDAY))}[
            on_skip
        ]
        skip = [one for one in CALENDARS if self._rng.random() < 0.4]
        only = [pick(CALENDARS)] if not skip or self._rng.random() < 0.2 else []
        return Spec.model_validate(
            {
                "name": name,
                "kind": "command",
                "schedule": {"cron": f"*/{pick((5, 7))} 0 0 * * {weekday}", "timezone": ZONE},
                "calendar": {"skip": [*skip, PUBLIC] if skip else [], "only": only, "on_skip": on_skip},
                "params": {"brief": pick((True, True, False))},
                "retry": {"attempts": pick((1, 3)), "backoff_s": pick((0, 1))},
                "failover": {"grace_s": pick((0, 0, 2)), "max": pick((2, 5))},
                "timeout_s": pick((None, 4.0)),
                "labels": pick(({}, {"team": "bi"})),
                **self._fixed[name],
            }
        )

    def begin(self) -> None:
        """Make the calendars and register the tasks, as soon as that can be done."""
        for entry in self._entries():
            self._clients.insist(entry, 20)
        self._clients.later(LAST_BLACKOUT_S - 1, self._end_blackouts)

    def _entries(self) -> list[Any]:
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        days = {name: self._days() for name in CALENDARS}
        # The last day of public holidays is always one by `Process._public_holidays`, and today never is.
        made = [partial(SetCalendar, name=name, days=days[name]) for name in CALENDARS]
        public = partial(SetCalendar, name=PUBLIC, days=(TODAY + 3,), until=TODAY + NEAR_DAYS)
        return [*made, public, partial(PutTasks, puts=puts)]

    def _days(self) -> tuple[int, ...]:
        return tuple(day for day in range(TODAY - 3, TODAY + 4) if self._rng.random() < 0.4)

    # -- what a plan names

    def change_days(self, fault: Fault) -> None:
        """A calendar has other days."""
        days = self._days()
        name = CALENDARS[fault.other % len(CALENDARS)]
        self._clients.ask(fault, partial(SetCalendar, name=name, days=days))

    def start_by_calendar(self, fault: Fault) -> None:
        """A run by hand, whatever day it is."""
        self._clients.ask(fault, partial(Start, task=self._name(fault)))

    def change_by_calendar(self, fault: Fault) -> None:
        """A task is due on other days."""
        name = self._name(fault)
        self._specs[name] = changed = self._spec(name)
        self._clients.ask(fault, partial(PutTasks, puts=(Put(changed.pack()),)))

    def delete_by_calendar(self, fault: Fault) -> None:
        """A task goes."""
        self._clients.ask(fault, partial(DeleteTask, task=self._name(fault)))

    def restore_by_calendar(self, fault: Fault) -> None:
        """All tasks are there."""
        puts = tuple(Put(spec.pack()) for spec in self._specs.values())
        self._clients.ask(fault, partial(PutTasks, puts=puts))

    def black_out(self, fault: Fault) -> None:
        """Some tasks, or all, are held for some seconds."""
        until_us = BEGUN_US + LAST_BLACKOUT_S * 1_000_000
        name, labels = self._blackout(fault)

        def entry(at_us: int) -> Entry:
            ends_us = max(at_us + 1, min(until_us, at_us + round(fault.for_s * 1e6)))
            return SetBlackout(at_us, name, at_us, ends_us, labels)

        self._clients.ask(fault, entry)

    def black_out_until_told(self, fault: Fault) -> None:
        """Some tasks, or all, are held, and are held no more before the time that was said."""
        name, labels = self._blackout(fault)

        def entry(at_us: int) -> Entry:
            return SetBlackout(at_us, name, at_us, at_us + 3_600_000_000, labels)

        self._clients.ask(fault, entry)
        self._clients.later(fault.for_s, lambda: self._clients.insist(partial(EndBlackout, name=name), 8))

    def _blackout(self, fault: Fault) -> tuple[str, tuple[tuple[str, str], ...]]:
        self._blackouts += 1
        return f"b{self._blackouts}", (("team", "bi"),) if fault.much < 0.6 else ()

    def _end_blackouts(self) -> None:
        for number in range(self._blackouts):
            self._clients.insist(partial(EndBlackout, name=f"b{number + 1}"), 3)

    def _name(self, fault: Fault) -> str:
        return self._names[fault.other % len(self._names)]

"""Converts the state to a series of records, and back. `codec` packs the records and cuts them into pieces.

A record is a list: its kind, then its fields. The first record is the head. Members, tasks, runs, windows, joins, ends
to pass on, reruns, past ends, fields for tasks after others, pools, backfills, tasks that run on each member,
calendars, blackouts and channels follow. After each window come its results, and after each channel its notices.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

from immutables import Map

from hashing.chunked import sorted_in_chunks
from node.state.backfill import BackfillRow
from node.state.blackout import Blackout
from node.state.bounds import params_bytes, requests_bytes, run_bytes
from node.state.calendar import Calendar
from node.state.calendars import restored_calendars
from node.state.carried import carried_bytes
from node.state.copying import replace
from node.state.outbox import ChannelRow, Notice, notice_bytes
from node.state.pool import PacedStart, Pool
from node.state.pools import restored_pools
from node.state.shape import Misfit, Shape, field_names, shape
from node.state.value import (
    CarriedFields,
    EachRow,
    Lead,
    Member,
    OccurrenceEnd,
    PendingJoin,
    Rerun,
    Result,
    Run,
    Settings,
    State,
    TaskRow,
    Window,
)
from node.state.windows import weigh
from tasks.definition.run import ACTIVE, HELD
from tasks.definition.spec import after_of

V = TypeVar("V")

_HEAD: Final = 0
_MEMBER: Final = 1
_TASK: Final = 2
_RUN: Final = 3
_WINDOW: Final = 4
_RESULT: Final = 5
_CHANNEL: Final = 8
_NOTICE: Final = 9
_JOIN: Final = 10
_END: Final = 11
_RERUN: Final = 12
_PAST: Final = 13
_CARRIED: Final = 14
_POOL: Final = 15
_BACKFILL: Final = 19
_EACH: Final = 18
_CALENDAR: Final = 16
_BLACKOUT: Final = 17
_COUNTS: Final = Shape(State, ("cluster_id", "index", "epoch", "token", "orders", "forgotten"), required=5)
_ADDED: Final = field_names(State)[field_names(State).index("channels") + 1 :]
_LATER: Final = Shape(State, ("endings", *_ADDED))
"""The last fields of the head. They include any field that is added at the end of `State`, unless it is a `Map`."""

_COUNT_MAX: Final = 2**64
"""The same limit as in entries, so that every accepted value can be read again."""


def records(state: State) -> Iterator[list[Any]]:
    """Yield the records of a state, in an order that does not depend on the layout of maps."""
    yield [
        _HEAD,
        _COUNTS.wire(state),
        shape(Settings).wire(state.settings),
        shape(Lead).wire(state.lead),
        list(state.slots),
        *_LATER.wire(state),
    ]
    for member in sorted(state.members):
        yield [_MEMBER, shape(Member).wire(state.members[member])]
    for row in sorted_in_chunks(state.tasks.values(), key=lambda row: row.order):
        yield [_TASK, shape(TaskRow).wire(row)]
    for task in sorted(state.runs_of):
        for run_id in state.runs_of[task]:
            yield [_RUN, shape(Run).wire(state.runs[run_id])]
    for proposer in sorted(state.windows):
        window = state.windows[proposer]
        yield [_WINDOW, proposer, window.session, window.floor]
        # A record for each result: packing a full window at once blocked every other thread for 30 ms.
        for sequence in sorted(window.results):
            yield [_RESULT, proposer, sequence, *shape(Result).wire(window.results[sequence])]
    for task in sorted(state.joins):
        for join in state.joins[task]:
            yield [_JOIN, shape(PendingJoin).wire(join)]
    for number in sorted(state.ends):
        yield [_END, number, shape(OccurrenceEnd).wire(state.ends[number])]
    for generation in sorted(state.reruns):
        yield [_RERUN, shape(Rerun).wire(state.reruns[generation])]
    for task in sorted(state.past_ends):
        yield [_PAST, task, [shape(OccurrenceEnd).wire(end) for end in state.past_ends[task]]]
    for task in sorted(state.carried):
        yield [_CARRIED, task, [shape(CarriedFields).wire(one) for one in state.carried[task]]]
    for name in sorted(state.pools):
        pool = state.pools[name]
        yield [_POOL, name, pool.changed_us, *([list(map(list, pool.starts))] if pool.starts else ())]
    for number in sorted(state.backfills):
        yield [_BACKFILL, shape(BackfillRow).wire(state.backfills[number])]
    for name in sorted(state.each):
        yield [_EACH, shape(EachRow).wire(state.each[name])]
    for name in sorted(state.calendars):
        calendar = state.calendars[name]
        yield [_CALENDAR, name, calendar.until, list(calendar.days), *([calendar.of_set] if calendar.of_set else [])]
    for name in sorted(state.blackouts):
        yield [_BLACKOUT, shape(Blackout).wire(state.blackouts[name])]
    for name in sorted(state.channels):
        channel = state.channels[name]
        yield [_CHANNEL, shape(ChannelRow).wire(replace(channel, notices=()))]
        for notice in channel.notices:
            yield [_NOTICE, name, shape(Notice).wire(notice)]


def assembled(stream: Iterable[Any]) -> State:
    """Restore the state from its `records`. Raises `ValueError`, `TypeError` or `KeyError` if they are not valid."""
    restored = _Restored()
    for place, record in enumerate(stream):
        if type(record) is not list or (place == 0) != (record[:1] == [_HEAD]):
            raise Misfit("a snapshot is a head and then other records")
        restored.take(*record)
    return restored.state()


class _Restored:
    """Collects records, and checks each by itself. `state` then checks that they are consistent."""

    def __init__(self) -> None:
        self._head: list[Any] = []
        self._members: dict[str, Member] = {}
        self._tasks: dict[str, TaskRow] = {}
        self._runs: dict[str, Run] = {}
        self._runs_of: dict[str, list[str]] = {}
        self._windows: dict[str, tuple[int, int]] = {}
        self._results: dict[str, dict[int, Result]] = {}
        self._specs: dict[bytes, bytes] = {}
        self._channels: dict[str, ChannelRow] = {}
        self._notices: dict[str, list[Notice]] = {}
        self._children: dict[str, list[str]] = {}
        self._joins: dict[str, list[PendingJoin]] = {}
        self._ends: dict[int, OccurrenceEnd] = {}
        self._reruns: dict[int, Rerun] = {}
        self._past_ends: dict[str, tuple[OccurrenceEnd, ...]] = {}
        self._carried: dict[str, tuple[CarriedFields, ...]] = {}
        self._pools_changed_us: dict[str, int] = {}
        self._starts: dict[str, tuple[PacedStart, ...]] = {}
        self._backfills: dict[int, BackfillRow] = {}
        self._each: dict[str, EachRow] = {}
        self._calendars: dict[str, Calendar] = {}
        self._blackouts: dict[str, Blackout] = {}

    def take(self, kind: Any, *rest: Any) -> None:
        """Add one record."""
        if kind == _HEAD:
            self._head = list(rest)
        elif kind == _MEMBER:
            member = shape(Member).value(*rest)
            self._members[member.id] = member
        elif kind == _TASK:
            row = shape(TaskRow).value(*rest)
            self._tasks[row.placing.name] = row
            self._specs[row.spec_packed] = row.spec_packed
            for one in after_of(row.spec_packed):
                self._children.setdefault(one.task, []).append(row.placing.name)
        elif kind == _RUN:
            run = shape(Run).value(*rest)
            # A run shares the packed definition with its task.
            run = replace(run, spec_packed=self._specs.get(run.spec_packed, run.spec_packed))
            if run.params is not None and not run.params_bytes:  # an older version wrote it
                run = replace(run, params_bytes=params_bytes(run.params))
            self._runs[run.run_id] = run
            self._runs_of.setdefault(run.task, []).append(run.run_id)
        elif kind == _WINDOW:
            self._take_window(*rest)
        elif kind == _RESULT:
            self._take_result(*rest)
        elif kind == _CHANNEL:
            channel = shape(ChannelRow).value(*rest)
            self._channels[channel.name] = channel
            self._notices[channel.name] = []
        elif kind == _NOTICE:
            name, wire = rest
            self._notices[name].append(shape(Notice).value(wire))
        elif kind == _JOIN:
            join = shape(PendingJoin).value(*rest)
            self._joins.setdefault(join.task, []).append(join)
        elif kind == _END:
            number, wire = rest
            self._ends[_count(number)] = shape(OccurrenceEnd).value(wire)
        elif kind == _RERUN:
            rerun = shape(Rerun).value(*rest)
            self._reruns[rerun.generation] = rerun
        elif kind == _PAST:
            task, ends = rest
            if type(task) is not str or type(ends) is not list:
                raise Misfit("past ends belong to a task")
            self._past_ends[task] = tuple(shape(OccurrenceEnd).value(end) for end in ends)
        elif kind == _CARRIED:
            task, kept = rest
            if type(task) is not str or type(kept) is not list:
                raise Misfit("what is kept of parents' results belongs to a task")
            self._carried[task] = tuple(shape(CarriedFields).value(one) for one in kept)
        elif kind == _POOL:
            name, changed_us, *starts = rest
            self._pools_changed_us[name] = _count(changed_us)
            if starts:
                [given] = starts
                self._starts[name] = tuple(PacedStart(*map(_count, one)) for one in given)
        elif kind == _BACKFILL:
            backfill = shape(BackfillRow).value(*rest)
            self._backfills[backfill.number] = backfill
        elif kind == _EACH:
            each = shape(EachRow).value(*rest)
            self._each[each.task] = each
        elif kind == _CALENDAR:
            name, until, days, *owner = rest
            [of_set] = owner or [""]
            if type(of_set) is not str:
                raise Misfit("a calendar is of a set, which has a name")
            self._calendars[name] = Calendar(tuple(map(_count, days)), _count(until), of_set=of_set)
        elif kind == _BLACKOUT:
            blackout = shape(Blackout).value(*rest)
            self._blackouts[blackout.name] = blackout
        else:
            raise Misfit(f"there is no record of kind {kind!r}")

    def _take_window(self, proposer: Any, session: Any, floor: Any, *earlier: Any) -> None:
        """Add a window. `earlier` contains the list of its results if an earlier version wrote the snapshot."""
        [lines] = earlier or [[]]
        if type(proposer) is not str or type(lines) is not list:
            raise Misfit("a window belongs to a proposer and holds results")
        self._windows[proposer] = (_count(session), _count(floor))
        self._results[proposer] = {}
        for line in lines:
            self._take_result(proposer, *line)

    def _take_result(self, proposer: Any, sequence: Any, *fields: Any) -> None:
        self._results[proposer][_count(sequence)] = shape(Result).value(list(fields))

    def state(self) -> State:
        """Make the state from all records."""
        wire, settings, lead, slots, *later = self._head
        counts = _COUNTS.fields(wire)
        token = counts["token"]
        seated = {member.id: member.slot for member in self._members.values()}
        if seated != {name: i for i, name in enumerate(slots) if name is not None}:
            raise Misfit("its members and its slots do not match")
        for run in self._runs.values():
            if run.state not in ACTIVE or run.token > token or (run.state in HELD) != bool(run.node and run.attempts):
                raise Misfit(f"run {run.run_id!r} is inconsistent")
        if len(set(self._runs)) != sum(map(len, self._runs_of.values())):
            raise Misfit("a run is in it twice")
        read_settings = shape(Settings).value(settings)
        return State(
            **counts,
            **_LATER.fields(later),
            settings=read_settings,
            lead=shape(Lead).value(lead),
            slots=tuple(slots),
            members=Map(self._members),
            tasks=_map(self._tasks),
            runs=_map(self._runs),
            runs_of=Map({task: tuple(ids) for task, ids in self._runs_of.items()}),
            windows=Map({proposer: self._window(proposer) for proposer in self._windows}),
            specs_bytes=sum(len(row.spec_packed) for row in self._tasks.values()),
            runs_bytes=sum(map(run_bytes, self._runs.values()))
            + sum(carried_bytes(one) for kept in self._carried.values() for one in kept),
            requests_bytes=sum(map(requests_bytes, self._tasks.values())),
            children=Map({task: tuple(sorted(names)) for task, names in self._children.items()}),
            joins=Map({task: tuple(joins) for task, joins in self._joins.items()}),
            ends=Map(self._ends),
            reruns=Map(self._reruns),
            past_ends=Map(self._past_ends),
            carried=Map(self._carried),
            pools=self._pools(read_settings),
            backfills=Map(self._backfills),
            each=Map(self._each),
            calendars=restored_calendars(self._calendars, self._tasks),
            blackouts=Map(self._blackouts),
            channels=Map({name: self._channel(name) for name in self._channels}),
        )

    def _pools(self, settings: Settings) -> Map[str, Pool]:
        if not settings.pools:
            return Map()
        runs_of = {task: [self._runs[one] for one in ids] for task, ids in self._runs_of.items()}
        changed_us, starts = self._pools_changed_us, self._starts
        return restored_pools(settings.pools, self._tasks, runs_of, self._members, changed_us, starts)

    def _channel(self, name: str) -> ChannelRow:
        notices = tuple(self._notices[name])
        return replace(self._channels[name], notices=notices, notices_bytes=sum(map(notice_bytes, notices)))

    def _window(self, proposer: str) -> Window:
        results = Map(self._results[proposer])
        return Window(*self._windows[proposer], results, weigh(results))


def _map(table: dict[str, V]) -> Map[str, V]:
    """Make a `Map`, entry by entry: `Map(table)` would block every other thread meanwhile."""
    made = Map[str, V]().mutate()
    for name, value in table.items():
        made[name] = value
    return made.finish()


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _COUNT_MAX:
        raise Misfit("not a count")
    return value

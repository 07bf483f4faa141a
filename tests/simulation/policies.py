"""What becomes of due occurrences and runs, compared with their tasks' policies (docs/explanation/execution.md).

A proposer has seen a state that may be a moment old: the proposal is judged by that state.
"""

from itertools import islice, takewhile

from node.state.apply import Applied
from node.state.attempts import Cancel
from node.state.awaiting import AwaitParents
from node.state.calendar import days_of
from node.state.claims import Claim
from node.state.entries import Proposal, ProposalId
from node.state.fan_out import FanOut
from node.state.occurrences import Enqueue, SkipOccurrences
from node.state.value import EndedRun, Run, State, TaskRow
from tasks.definition.policy import AWAY_FIRST_S, KEPT, LATENESS_S
from tasks.definition.run import HELD
from tasks.definition.schedule import occurrences
from tests.simulation.days import due_times, is_held
from tests.simulation.kin import latest
from tests.simulation.world import World

LOOKED = 4000
"""Due occurrences that are looked at: more than a clock that is an hour off makes due here."""

Settling = Claim | Enqueue | SkipOccurrences | AwaitParents | FanOut


class Policies:
    """Watches every accepted entry."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen: dict[ProposalId, tuple[State, ...]] = {}

    def decided(self, proposal: Proposal, seen: tuple[State, ...]) -> None:
        """A member proposes something, by one of these states."""
        if isinstance(proposal.entry, Settling | Cancel):
            self._seen.setdefault(proposal.id, seen)

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An accepted entry."""
        entry = proposal.entry
        if (says := self._faults(proposal)) and None not in says:
            self._world.wrong(f"{says[0]}: {entry}")
        for task in applied.touched:
            for run_id in applied.state.runs_of.get(task, ()):
                if (then := before.runs.get(run_id)) is not None and then.state in HELD:
                    self._let_go(then, applied.state.runs[run_id])
        for one in applied.ended:
            self._ended(one)

    def _faults(self, proposal: Proposal) -> list[str | None]:
        """What speaks against a proposal, by each of the states that its proposer may have decided by."""
        entry, seen = proposal.entry, self._seen.pop(proposal.id, ())
        if isinstance(entry, Cancel) and entry.why == "replaced":
            return [fault_of_replacing(state, entry) for state in seen]
        if isinstance(entry, Settling) and getattr(entry, "run_id", None) is None:
            return [fault_of(state, entry) for state in seen] or ["no member has proposed it"]
        return []

    def _let_go(self, then: Run, now: Run) -> None:
        """A run that was held is free to be claimed: it must have another attempt."""
        spec = now.spec
        if now.state == "orphaned":
            if spec.failover.resume == "abandon" or now.orphanings >= spec.failover.max:
                self._world.wrong(f"{now.run_id} is to be taken over after {now.orphanings} losses: {spec.failover}")
            if spec.failover.resume == "restart" and now.checkpoint is not None:
                self._world.wrong(f"{now.run_id} is to begin anew, and has a checkpoint")
        if now.state == "waiting" and now.failures > then.failures:
            rest_us = now.due_us - (now.attempts[-1].finished_at_us or 0) if now.due_us else 0
            if now.failures >= spec.retry.attempts or rest_us < spec.retry.backoff_s * 1_000_000:
                self._world.wrong(f"{now.run_id} is tried again, after {now.failures} failures: {spec.retry}")
        if now.state == "waiting" and now.aways > then.aways:
            rest_us = now.due_us - (now.attempts[-1].finished_at_us or 0)
            if rest_us < AWAY_FIRST_S * 1_000_000 or now.failures != then.failures:
                self._world.wrong(f"{now.run_id} is tried again {rest_us} us after what it needs did not answer")

    def _ended(self, ended: EndedRun) -> None:
        run, spec = ended.run, ended.run.spec
        if ended.state == "abandoned" and spec.failover.resume != "abandon" and run.orphanings < spec.failover.max:
            self._world.wrong(f"{run.run_id} is abandoned after {run.orphanings} of {spec.failover.max} losses")
        if ended.state == "cancelled" and run.cancelling is None and run.attempts[-1].state != "cancelled":
            self._world.wrong(f"{run.run_id} is cancelled, and no client asked for it")
        unmade = spec.template and not run.attempts  # for want of what its params need (`tests.simulation.fills`)
        again = not unmade and run.failures < spec.retry.attempts
        if ended.state == "failed" and again and run.attempts[-1].error != "it failed":
            self._world.wrong(
                f"{run.run_id} has failed for good after {run.failures} of {spec.retry.attempts} attempts"
            )


def fault_of(state: State, entry: Settling) -> str | None:
    """What speaks against dealing so with occurrences of a task, given a state; None: it is what the policies say."""
    row = state.tasks.get(entry.task)
    if row is None or row.paused or not row.spec.enabled:
        return f"nothing of {entry.task} is due"
    if isinstance(entry, AwaitParents):
        times: tuple[int, ...] = (entry.nominal_us,)
    else:
        times = (entry.fire_at_us,) if isinstance(entry, Claim | FanOut) else entry.fire_at_us
    if row.spec.continuous:
        idle = entry.task not in state.runs_of
        return None if isinstance(entry, Claim) and idle and times == (row.since_us,) else "a continuous task has one"
    if is_held(state, row, entry.at_us):
        return f"a blackout holds {entry.task}"
    due = _due(state, row, entry.at_us)
    if isinstance(entry, SkipOccurrences) and entry.count:
        if entry.task in state.children:
            return f"the tasks after {entry.task} are not told of each"
        if not 1 <= entry.count <= len(due) or entry.fire_at_us != (due[0], due[entry.count - 1]):
            return f"{entry.count} occurrences of {entry.task} are not those from {entry.fire_at_us}: {due[:3]}..."
        times = due[: entry.count]
    if times != due[: len(times)]:
        return f"an occurrence of {entry.task} is left out, of {due[:3]}..."
    if row.spec.after:
        return _fault_of_awaiting(state, row, entry, due, times)
    if row.spec.each:
        return _fault_of_fanning(state, row, entry, due, times)
    active = [state.runs[one] for one in state.runs_of.get(entry.task, ())]
    beside = any(run.backfill and run.state in HELD for run in active) and row.spec.overlap != "allow"
    active = [run for run in active if not run.backfill]
    waiting = sum(run.state == "waiting" for run in active)
    later = len(due) - len(times)
    late = (
        row.spec.catch_up == "skip"
        and times[-1] < entry.at_us - _lateness_us(state)
        and not _replaced(state, row, entry.at_us)
    )
    behind = len(active)
    if row.spec.catch_up == "all" and row.spec.overlap == "skip":
        stood_still = due[0] < entry.at_us - _lateness_us(state)
        if stood_still or any(run.state == "orphaned" for run in active):
            behind = 0  # they are run, whatever was active when they fell due
    match entry:
        case SkipOccurrences(state="skipped"):
            return _fault_of_skipping(row, later, behind, full=waiting + len(due) > KEPT)
        case SkipOccurrences():
            return _fault_of_missing(row, later, behind, late=late)
        case Enqueue() if beside or _waits_for_pool(state, row, entry.at_us):
            return None  # as a run, in the pool's queue, or until the run of a backfill has ended
        case Claim() if beside:
            return "it is run beside a run of a backfill"
        case Enqueue() if not active and not _each(row):
            # For want of a place, before it would be late.
            starved = row.spec.catch_up == "skip" and not later and times[-1] <= entry.at_us - _lateness_us(state) // 2
            return None if starved and not late else "it waits, and nothing is active"
        case _:
            return _fault_of_running(row, entry, later, behind, late=late)


def _fault_of_fanning(
    state: State, row: TaskRow, entry: Settling, due: tuple[int, ...], times: tuple[int, ...]
) -> str | None:
    """What runs on each member is made, whatever is active: there `overlap` counts, and here only `catch_up`."""
    if not isinstance(entry, FanOut | SkipOccurrences):
        return "it is to run on each member, and not on one"
    return _fault_by_catch_up(state, row, entry, due, times)


def _fault_by_catch_up(
    state: State, row: TaskRow, entry: Settling, due: tuple[int, ...], times: tuple[int, ...]
) -> str | None:
    """What speaks against passing occurrences over, or else against taking them up, if only `catch_up` counts."""
    catch_up, later = row.spec.catch_up, len(due) - len(times)
    late = catch_up == "skip" and times[-1] < entry.at_us - _lateness_us(state)
    if isinstance(entry, SkipOccurrences):
        fits = entry.state == "missed" and (later >= KEPT if catch_up == "all" else later > 0 or late)
        return None if fits else f"it is {entry.state} under catch_up {catch_up}, with {later} later ones due"
    fits = catch_up == "all" or not (later or late)
    return None if fits else f"it is taken up under catch_up {catch_up}, with {later} later ones due, late: {late}"


def _fault_of_awaiting(
    state: State, row: TaskRow, entry: Settling, due: tuple[int, ...], times: tuple[int, ...]
) -> str | None:
    """What comes after others at times of its own waits for them, whatever is active; only `catch_up` counts."""
    if not isinstance(entry, AwaitParents | SkipOccurrences):
        return "it is run before its parents have ended"
    fault = _fault_by_catch_up(state, row, entry, due, times)
    if fault is not None or isinstance(entry, SkipOccurrences):
        return fault
    wanted = {one.task: latest(state, one.task, entry.nominal_us) for one in row.spec.after}
    return None if dict(entry.times) == wanted else f"the latest occurrences of its parents are {wanted}"


def fault_of_replacing(state: State, entry: Cancel) -> str | None:
    """What speaks against ending a run for the sake of a later one."""
    run = state.runs.get(entry.run_id)
    row = state.tasks.get(run.task) if run is not None else None
    due = _due(state, row, entry.at_us) if row is not None and row.spec.overlap == "replace" else ()
    if row is None or not due or is_held(state, row, entry.at_us):
        return "a run is ended for another that is not due, or need not"
    late = row.spec.catch_up == "skip" and due[-1] < entry.at_us - _lateness_us(state)
    return (
        "a run is ended for another that is too late to be run"
        if late and not _replaced(state, row, entry.at_us)
        else None
    )


def _waits_for_pool(state: State, row: TaskRow, at_us: int) -> bool:
    """Whether what a task uses of a pool lacks, it may not start yet by its rate, or others wait for it."""
    pools = [(state.pools[name], units) for name, units in row.spec.uses.items() if name in state.pools]
    rate = row.spec.rate
    if rate is not None and rate.pool in state.pools:
        starts = state.pools[rate.pool].starts
        if state.pools[rate.pool].queue or any(at_us < one.next_us for one in starts):
            return True
    return any(pool.used + units > pool.capacity or pool.queue for pool, units in pools)


def _lateness_us(state: State) -> int:
    settings = state.settings
    return round(1e6 * max(LATENESS_S, settings.window_s + settings.lease_s + settings.margin_s + 6.5))


def _replaced(state: State, row: TaskRow, at_us: int) -> bool:
    """Whether what is due may have waited for the end of what it replaces."""
    active = [state.runs[one] for one in state.runs_of.get(row.placing.name, ())]
    if active or row.spec.overlap != "replace":
        return row.spec.overlap == "replace" and any(run.cancelling is not None for run in active)
    return row.last is not None and row.last.finished_at_us >= at_us - _lateness_us(state)


def _due(state: State, row: TaskRow, at_us: int) -> tuple[int, ...]:
    if (written_out := due_times(state, row, max(row.since_us, row.through_us), at_us)) is not None:
        return tuple(written_out[:LOOKED])
    following = occurrences(row.spec.schedule, days_of(state.calendars, row.timing), row.since_us, row.through_us)
    return tuple(islice(takewhile(lambda one: one <= at_us, following), LOOKED))


def _each(row: TaskRow) -> bool:
    """Whether each of several that are due is to be run."""
    return row.spec.catch_up == "all" and row.spec.overlap != "replace"


def _fault_of_skipping(row: TaskRow, later: int, active: int, *, full: bool) -> str | None:
    match row.spec.overlap:
        case "skip":
            fits = active > 0 or full
        case "replace":
            fits = active > 0 and later > 0
        case _:
            fits = full
    return None if fits else f"it is skipped under {row.spec.overlap}, with {active} active and {later} later ones"


def _fault_of_missing(row: TaskRow, later: int, active: int, *, late: bool) -> str | None:
    if active and row.spec.overlap in ("skip", "replace") and not (late and row.spec.overlap == "replace"):
        return "what finds another active is skipped, not missed"
    fits = later >= KEPT if _each(row) else later > 0 or late
    return None if fits else f"it is missed under catch_up {row.spec.catch_up}, with {later} later ones due"


def _fault_of_running(row: TaskRow, entry: Settling, later: int, active: int, *, late: bool) -> str | None:
    spec = row.spec
    if active and (spec.overlap in ("skip", "replace") or (isinstance(entry, Claim) and spec.overlap == "queue")):
        return f"it is run beside {active} others under {spec.overlap}"
    if not _each(row) and (later or late):
        return f"it is run under catch_up {spec.catch_up}, with {later} later ones due, late: {late}"
    return None

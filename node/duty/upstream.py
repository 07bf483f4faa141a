"""What a task that comes after others waits for in the end: the chain of tasks up to where it begins. Pure."""

from itertools import pairwise
from typing import Final, NamedTuple

from node.duty.task_graph import TaskPassage, listed, neighbours, occurrences_of, passages_now, passages_of, under_way
from node.state.times import rfc3339
from node.state.value import State
from tasks.definition.run import HELD
from tasks.definition.spec import after_of

ANCESTORS_MAX: Final = 1000
"""At most this many tasks before a task are looked at."""


class Upstream(NamedTuple):
    """The task that another one waits for through its parents, and why, in words; the member and the runs at work."""

    words: str
    task: str
    member: str | None
    runs: tuple[str, ...]


Chain = list[tuple[str, TaskPassage]]
"""Tasks, each of which waits for the next one; the last one waits for no other."""


def waiting_chain(state: State, task: str, now_us: int) -> Chain:
    """Return the chain from `task`, which must be in `state`, for its oldest occurrence under way; or, if none is, from
    parent to parent, where the passages say how the tasks are now.
    """
    graph = neighbours(state, task, ANCESTORS_MAX, after=False)
    for occurrence in reversed(under_way(state, graph, task)):
        passages = passages_of(state, graph, occurrences_of(state, graph, task, occurrence), {}, now_us)
        chain = [(task, passages[task])]
        while waits_for := [name for name in chain[-1][1].waits_for if name in passages]:
            # A task that has a run says more than one that waits itself.
            name = next((one for one in waits_for if passages[one].run_id is not None), waits_for[0])
            chain.append((name, passages[name]))
        if len(chain) > 1:
            return chain
    now = passages_now(state, graph.tasks, now_us)
    chain = [(task, now[task])]
    while parents := [one for one in _parents(state, chain[-1][0]) if one in now]:
        name = next((one for one in parents if now[one].state in ("paused", "disabled")), parents[0])
        chain.append((name, now[name]))
        if now[name].state in ("paused", "disabled"):
            break
    return chain


def _parents(state: State, task: str) -> list[str]:
    """Return the tasks whose occurrences a task shares."""
    row = state.tasks[task]
    return [] if row.timing.schedule is not None else [one.task for one in after_of(row.spec_packed)]


def upstream_of(chain: Chain, cause: str) -> Upstream:
    """Say what the first task of a chain waits for, where `cause` says why the last one does not run, or where it does.

    >>> told = TaskPassage("running", since_us=0, node="node-2", attempt=2, run_id="a~1")
    >>> waits = [("c", TaskPassage("pending", waits_for=("b",))), ("b", TaskPassage("pending", waits_for=("a",)))]
    >>> upstream_of([*waits, ("a", told)], "").words
    'c waits for b, b waits for a, a has run on node-2 since 1970-01-01T00:00:00Z, attempt 2'
    >>> upstream_of([("b", TaskPassage("new")), ("a", TaskPassage("paused"))], "paused: it has no due times").words
    'a does not run: paused: it has no due times'
    """
    waiting = [
        f"{task} waits for {listed(passage.waits_for)}"
        for (task, passage), _ in pairwise(chain)
        if passage.state == "pending"
    ]
    last, passage = chain[-1]
    if passage.state in HELD and passage.since_us is not None:
        verb = "has run" if passage.state == "running" else "is about to begin"
        number = f", attempt {passage.attempt}" if (passage.attempt or 1) > 1 else ""
        waiting.append(f"{last} {verb} on {passage.node} since {rfc3339(passage.since_us)}{number}")
    else:
        waiting.append(f"{last} does not run: {cause}")
    run_id = passage.run_id if passage.is_open else None
    return Upstream(", ".join(waiting), last, passage.node if run_id is not None else None, (run_id,) if run_id else ())

"""Finding an attempt's processes, and telling them from others."""

import os

from node.execution import tree
from node.execution.leftovers import Record, _is_of
from node.execution.tree import Process, descendants


def one(pid: int, parent: int, *, group: int = 0, session: int = 0, state: str = "S", started: int = 100) -> Process:
    return Process(pid, parent, group or pid, session or pid, state, started)


def test_everything_below_is_found_in_whatever_group_or_session_it_is() -> None:
    table = [one(13, 12), one(12, 10, session=12), one(10, 2), one(11, 10, group=10), one(20, 2), one(21, 20)]
    assert [found.pid for found in descendants([10], table)] == [12, 11, 13]


def test_zombies_are_not_counted_but_those_below_them_are() -> None:
    table = [one(11, 10, state="Z"), one(12, 11)]
    assert [found.pid for found in descendants([10], table)] == [12]


def test_this_process_is_read_from_the_table() -> None:
    own = tree.process(os.getpid())
    assert own is not None
    assert (own.pid, own.parent, own.group) == (os.getpid(), os.getppid(), os.getpgrp())
    assert own in tree.processes() or any(other.pid == own.pid for other in tree.processes())


RECORD = Record("boot", supervisor=50, supervisor_started=100, worker=51, worker_started=101, mark="r:1")


def is_ours(process: Process, *others: Process) -> bool:
    return _is_of(process, RECORD, {found.pid: found for found in (process, *others)})


def test_a_recorded_process_is_known_by_its_pid_and_start() -> None:
    assert is_ours(one(51, 50, started=101))
    assert not is_ours(one(51, 1, started=999)), "another process has got the pid"


def test_the_group_of_a_recorded_worker_is_ours_even_when_the_worker_is_gone() -> None:
    assert is_ours(one(60, 1, group=51, started=150))
    assert is_ours(one(60, 1, session=51, started=150))
    assert not is_ours(one(60, 1, group=51, started=150), one(51, 1, started=140)), "a later group of that number"
    assert not is_ours(one(60, 1, group=70, session=70, started=150))

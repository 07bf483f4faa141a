"""Finding an attempt's processes among others."""

import os

import pytest

from node.execution import process_tree
from node.execution.leftovers import Record, _is_of
from node.execution.process_tree import Process, descendants


def one(pid: int, parent: int, *, group: int = 0, session: int = 0, state: str = "S", started: int = 100) -> Process:
    return Process(pid, parent, group or pid, session or pid, state, started)


def test_descendants_are_found_in_any_group_or_session() -> None:
    table = [one(13, 12), one(12, 10, session=12), one(10, 2), one(11, 10, group=10), one(20, 2), one(21, 20)]
    assert [found.pid for found in descendants([10], table)] == [12, 11, 13]


def test_zombies_are_skipped_but_their_descendants_are_found() -> None:
    table = [one(11, 10, state="Z"), one(12, 11)]
    assert [found.pid for found in descendants([10], table)] == [12]


def test_the_current_process_is_found_in_proc() -> None:
    own = process_tree.process(os.getpid())
    assert own is not None
    assert (own.pid, own.parent, own.group) == (os.getpid(), os.getppid(), os.getpgrp())
    assert own in process_tree.processes() or any(other.pid == own.pid for other in process_tree.processes())


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that signals were sent to; all belong to another user."""
    tried: list[int] = []

    def refuse(pid: int, _: int) -> None:
        tried.append(pid)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(os, "killpg", refuse)
    return tried


def test_a_process_that_may_not_be_signalled_counts_as_alive(signalled: list[int]) -> None:
    assert process_tree.send(11, 9)
    assert process_tree.send_group(12, 9)
    assert process_tree.out_of_reach([14, 13]) == [13, 14]
    assert signalled == [11, 12, 14, 13]


def test_the_current_process_may_be_signalled() -> None:
    assert process_tree.out_of_reach([os.getpid()]) == []


def test_every_process_is_signalled_though_some_refuse(signalled: list[int]) -> None:
    table = [one(11, 10), one(12, 11, group=12), one(13, 10)]
    assert process_tree.freeze(10, 11, lambda: table) == {11, 12, 13}
    assert signalled == [11, 13, 12], "the group first, and each process once per scan"


def test_group_and_session_are_known_though_proc_stat_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A /proc that is mounted with hidepid=1."""

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    own = process_tree.process(os.getpid())
    assert own is not None
    assert (own.group, own.session) == (os.getpgrp(), os.getsid(0))
    assert is_ours(Process(60, 0, 60, 51, own.state, own.started)), "in a recorded session: counted as ours"
    assert process_tree.process(2**22 + 1) is None, "no pid is that high"


RECORD = Record("boot", supervisor=50, supervisor_started=100, worker=51, worker_started=101, mark="r:1")


def is_ours(process: Process, *others: Process) -> bool:
    return _is_of(process, RECORD, {found.pid: found for found in (process, *others)})


def test_a_recorded_process_is_identified_by_pid_and_start_time() -> None:
    assert is_ours(one(51, 50, started=101))
    assert not is_ours(one(51, 1, started=999)), "another process has got the pid"


def test_a_recorded_workers_group_is_found_after_the_worker_ended() -> None:
    assert is_ours(one(60, 1, group=51, started=150))
    assert is_ours(one(60, 1, session=51, started=150))
    assert not is_ours(one(60, 1, group=51, started=150), one(51, 1, started=140)), "a later group of that number"
    assert not is_ours(one(60, 1, group=70, session=70, started=150))

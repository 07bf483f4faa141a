"""What an attempt may use: it is ended when it uses more, says so, and its neighbours go on. With real processes."""

import resource
import sys
from pathlib import Path

import pytest

from node.execution import leftovers, process_tree
from node.execution.attempt_events import AttemptEnded
from node.execution.limits import Amounts
from node.execution.order import AttemptLimits, Order
from node.execution.preparation import Preparation
from node.runtime.boottime import boottime_s
from node.runtime.descriptors import SOFT_MAX, attempts_limit, hard_limit
from node.storage.room import MIB
from tasks.processes import MARK, RUN_MARK
from testkit.execution import greedy
from testkit.execution.attempts import Attempts, play, until

pytestmark = pytest.mark.integration

QUICK = AttemptLimits(stop_s=0.2, hand_over_s=0.2, most=Amounts(log=MIB))
PROCESSES = "processes and threads, and limits.processes allows"


def python(made: Attempts, script: str, **limits: int) -> Order:
    return made.command(sys.executable, "-c", script, limits=Amounts(**limits), node="node-1")


def left(made: Attempts, mark: str) -> list[int]:
    """The processes of the attempt with that mark that run."""
    marks = {f"{RUN_MARK}={mark}".encode(), f"{MARK}={leftovers.mark_of(made.folder)}".encode()}
    return [one.pid for one in process_tree.processes() if one.state not in "ZX" and marks <= environment(one.pid)]


def environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def engines(folder: Path) -> list[int]:
    """What the preparation of `kinds_for_tests` has started for a runner on that folder."""
    mark = f"{MARK}={leftovers.mark_of(folder)}".encode()
    running = [one.pid for one in process_tree.processes() if one.state not in "ZX" and mark in environment(one.pid)]
    return [pid for pid in running if b"time.sleep(3600)" in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def failed(made: Attempts, order: Order) -> str:
    """Why an attempt has failed."""
    ended: AttemptEnded = await made.ended(order)
    assert ended.end == "failed", ended
    return str(ended.error)


@pytest.mark.parametrize(
    "script",
    [
        greedy.BOMB.format(most=2000, child="pass"),
        greedy.BOMB.format(most=2000, child="os.setsid()"),
        greedy.BOMB.format(most=2000, child="os.fork()"),
        greedy.EXPLOSION.format(generations=11),
        greedy.THREADS.format(most=500),
        greedy.CHURN,
        greedy.ZOMBIES.format(most=500),
    ],
    ids=["children", "sessions", "grandchildren", "explosion", "threads", "orphans", "zombies"],
)
def test_what_starts_too_many_processes_is_ended_and_says_so(tmp_path: Path, script: str) -> None:
    async def scene(made: Attempts) -> None:
        neighbour = made.command("sleep", "300")
        await made.started(neighbour)
        why = await failed(made, python(made, script, processes=64))
        assert why.startswith("over its limit of processes: it had "), why
        assert why.endswith(f"{PROCESSES} 64")
        assert left(made, "task~2:2") == []
        made.runner.cancel(neighbour.run_id, neighbour.token)
        assert (await made.ended(neighbour)).end == "cancelled", "the neighbour was left alone"

    play(tmp_path, scene, QUICK)


@pytest.mark.parametrize(
    ("script", "mib"),
    [
        (greedy.HOG.format(most_mib=1536), 256),
        (greedy.CREEP.format(most_mib=512), 128),
        (greedy.FAMILY_HOG, 256),
        (greedy.SHARED_MEMORY_HOG.format(most_mib=512), 256),
    ],
    ids=["at once", "slowly", "in several processes", "shared memory"],
)
def test_what_takes_too_much_memory_is_ended_and_says_so(tmp_path: Path, script: str, mib: int) -> None:
    async def scene(made: Attempts) -> None:
        why = await failed(made, python(made, script, memory=mib * MIB))
        assert why.startswith("over its limit of memory: its "), why
        assert why.endswith(f"and limits.memory allows {mib} MiB")

    play(tmp_path, scene, QUICK)


def test_memory_that_forked_processes_share_counts_once(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = python(made, greedy.SHARES.format(for_s=1), memory=200 * MIB)
        ended = await made.ended(order)
        assert (ended.end, ended.error) == ("succeeded", None)
        assert "all have shared" in made.log(order)

    play(tmp_path, scene, QUICK)


def test_the_member_s_bound_holds_where_the_task_has_none(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        why = await failed(made, python(made, greedy.BOMB.format(most=500, child="pass")))
        assert why.endswith("processes and threads, and ROTA_LIMIT_PROCESSES on node-1 allows 32"), why

    play(tmp_path, scene, AttemptLimits(stop_s=0.2, most=Amounts(processes=32, log=MIB)))


@pytest.mark.parametrize(
    ("limits", "most", "why"),
    [
        (
            {"memory": 2**31 + 1},
            {"memory": 2**31},
            "limits.memory is 2,147,483,649 bytes, and one attempt may have 2,147,483,648 bytes on node-1 "
            "(ROTA_LIMIT_MEMORY); lower the limit, or raise what the member allows",
        ),
        (
            {"cpu_milli": 1501, "processes": 9, "log": 2 * MIB},
            {"cpu_milli": 1500, "processes": 8, "log": MIB},
            "limits.cpu is 1.501, and one attempt may have 1.5 on node-1 (ROTA_LIMIT_CPU); limits.processes is 9, and "
            "one attempt may have 8 on node-1 (ROTA_LIMIT_PROCESSES); limits.log is 2,097,152 bytes, and one attempt "
            "may have 1,048,576 bytes on node-1 (ROTA_LOG_BYTES); lower the limit, or raise what the member allows",
        ),
        (
            {"files": hard_limit()},
            {},
            f"a process of an attempt may have {attempts_limit(hard_limit())} open on node-1",
        ),
    ],
)
def test_a_limit_that_is_more_than_the_member_allows_is_refused(
    tmp_path: Path, limits: dict[str, int], most: dict[str, int], why: str
) -> None:
    async def scene(made: Attempts) -> None:
        ended = await made.ended(python(made, "open('ran', 'w')", **limits))
        assert (ended.end, ended.retry) == ("failed", False), "another attempt here would be refused too"
        assert why in str(ended.error)

    play(tmp_path, scene, AttemptLimits(most=Amounts(**{"log": MIB} | most)))


TELL_LIMITS = """
import resource
try:
    files = [open("/dev/null") for _ in range(100)]
except OSError as error:
    print(error.strerror)
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
"""


def test_files_are_bounded_for_each_process_and_no_core_is_left(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        bounded = python(made, TELL_LIMITS, files=64)
        assert (await made.ended(bounded)).end == "succeeded"
        assert "Too many open files\n(64, 64) (0, 0)" in made.log(bounded)
        free = python(made, TELL_LIMITS)
        assert (await made.ended(free)).end == "succeeded"
        most = attempts_limit(hard_limit())
        assert f"{(min(SOFT_MAX, most), most)} (0, 0)" in made.log(free)

    play(tmp_path, scene, QUICK)


def test_a_log_ends_at_the_task_s_own_limit_and_the_attempt_goes_on(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.command("sh", "-c", "yes | head -c 200000000; exit 0", limits=Amounts(log=100_000))
        ended = await made.ended(order)
        assert (ended.end, ended.log_truncated) == ("succeeded", True)
        said = made.log(order)
        assert said.endswith("\n[the log is truncated here, at 97.7 KiB, the task's limit (limits.log)]\n")
        assert len(said) < 100_200

    play(tmp_path, scene, QUICK)


@pytest.mark.parametrize("what", ["exec", "children"])
def test_an_attempt_that_reports_before_it_is_looked_at_has_succeeded(tmp_path: Path, what: str) -> None:
    """A limit ends attempts, and does not judge those that are over."""
    script = "print('done')" if what == "exec" else "import os; [os.fork() or os._exit(0) for _ in range(3)]"

    async def scene(made: Attempts) -> None:
        ended = await made.ended(python(made, script, memory=64 * MIB, processes=64))
        assert (ended.end, ended.error) == ("succeeded", None)

    play(tmp_path, scene, QUICK)


def test_a_prepared_process_is_bounded_when_its_attempt_comes(tmp_path: Path, kinds_for_tests: None) -> None:
    name = "testkit.execution.kinds_for_tests:prepare"

    async def scene(made: Attempts) -> None:
        made.runner.renew(boottime_s() + 60)
        made.runner.prepare(name, 1, 1)
        await until(lambda: made.runner.prepared_ready(name) == 1 and len(engines(tmp_path)) == 1)
        script = greedy.BOMB.format(most=500, child="pass")
        limits = Amounts(processes=32, files=64)
        order = made.command(sys.executable, "-c", script, limits=limits, node="node-1", preparation=name)
        await made.started(order)
        [engine] = engines(tmp_path)
        assert resource.prlimit(engine, resource.RLIMIT_NOFILE) == (64, 64), "of what it has prepared, too"
        assert (await failed(made, order)).endswith(f"{PROCESSES} 32")

    play(tmp_path, scene, QUICK, {name: Preparation({})})

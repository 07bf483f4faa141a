"""Taking a cgroup over, in a tree of files that looks like the kernel's; and how much memory there is."""

import os
from pathlib import Path

import pytest

from node.execution import machine
from node.execution.cgroup import ATTEMPT, NODE, AttemptGroup, Delegation, delegation_of, take_over
from node.execution.limits import Amounts
from node.storage.room import MIB


class Machine:
    """A /proc and a cgroup2 file system of files. The node is in /a/rota.service, `inside` are its neighbours too."""

    def __init__(self, folder: Path, controllers: str = "cpu io memory pids", inside: str = "", kind: str = "cgroup2"):
        self.proc, self.mount = folder / "proc", folder / "cgroup"
        self.base = self.mount / "a/rota.service"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self/cgroup").write_text("4:memory:/other\n0::/a/rota.service\n")
        line = f"30 20 0:26 / {self.mount} rw,nosuid - {kind} cgroup2 rw,nsdelegate\n"
        (self.proc / "self/mountinfo").write_text(f"22 1 0:1 / / rw - ext4 /dev/x rw\n{line}")
        self.base.mkdir(parents=True)
        for name, text in (
            ("cgroup.type", "domain"),
            ("cgroup.procs", f"{os.getpid()}\n{inside}"),
            ("cgroup.controllers", controllers),
            ("cgroup.subtree_control", ""),
        ):
            (self.base / name).write_text(text)


def test_the_node_moves_into_a_group_of_its_own_and_enables_what_is_there(tmp_path: Path) -> None:
    given = Machine(tmp_path)
    found = take_over(given.proc)
    assert found.folder == str(given.base)
    assert (given.base / NODE / "cgroup.procs").read_text() == str(os.getpid())
    # A file keeps what was written last; the kernel would list all three.
    assert (given.base / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_parent_of_the_node_moves_with_it(tmp_path: Path) -> None:
    given = Machine(tmp_path, inside=f"{os.getppid()}\n")
    assert take_over(given.proc).folder
    assert (given.base / NODE / "cgroup.procs").read_text() == str(os.getppid())


@pytest.mark.parametrize("inside", ["1073741824\n", "0\n"])
def test_where_a_stranger_is_too_nothing_is_moved(tmp_path: Path, inside: str) -> None:
    """0 is a process of another pid namespace."""
    given = Machine(tmp_path, inside=inside)
    found = take_over(given.proc)
    assert (found.folder, found.controllers) == ("", ())
    assert "start the node in a cgroup of its own" in found.why_not
    assert not (given.base / NODE).exists()


def test_missing_controllers_are_named(tmp_path: Path) -> None:
    found = take_over(Machine(tmp_path, controllers="hugetlb").proc)
    assert found.folder, "attempts can be killed by their groups all the same"
    assert [name for name in ("memory", "pids", "cpu") if f"the controller {name} is not delegated" in found.why_not]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda given: (given.base / "cgroup.type").unlink(), "the machine's root cgroup"),
        (lambda given: (given.proc / "self/cgroup").write_text("4:memory:/x\n"), "the kernel has none"),
        (lambda given: (given.proc / "self/mountinfo").write_text(""), "or it is not mounted here"),
        (lambda given: (given.base / "cgroup.procs").unlink(), "cannot be written (systemd: Delegate=yes"),
        (lambda given: (given.base / "cgroup.controllers").unlink(), "No such file or directory"),
        (lambda given: (given.base / NODE).write_text("a file"), "File exists"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_raised(tmp_path: Path, change: object, why: str) -> None:
    given = Machine(tmp_path)
    assert callable(change)
    change(given)
    found = take_over(given.proc)
    assert found.folder == ""
    assert found.why_not.startswith("no cgroup v2 is delegated to this node: ")
    assert why in found.why_not


@pytest.mark.parametrize("delegation", [Delegation(), Delegation("/x y", ("memory", "cpu")), Delegation("/x", ())])
def test_a_delegation_passes_through_the_arguments_of_a_program(delegation: Delegation) -> None:
    assert delegation_of(delegation.words()) == delegation


def group(folder: Path, *controllers: str) -> AttemptGroup:
    path = folder / f"{ATTEMPT}1-1"
    path.mkdir()
    return AttemptGroup(path, controllers)


def test_limits_are_written_for_the_controllers_that_are_there(tmp_path: Path) -> None:
    made = group(tmp_path, "memory", "pids", "cpu")
    for name in ("memory.swap.max", "memory.oom.group"):
        (made.path / name).touch()
    made.bound(Amounts(memory=64 * MIB, cpu_milli=15, processes=8))
    assert {path.name: path.read_text() for path in made.path.iterdir()} == {
        "memory.max": "67108864",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "8",
        "cpu.max": "1500 100000",
    }
    made.bound(Amounts())
    assert [(made.path / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max", "cpu.max")] == [
        "max",
        "max",
        "max",
        "max 100000",
    ]


def test_a_kernel_without_swap_accounting_is_bounded_all_the_same(tmp_path: Path) -> None:
    made = group(tmp_path, "memory")
    made.bound(Amounts(memory=64 * MIB))
    assert [path.name for path in made.path.iterdir()] == ["memory.max"]


def test_the_kernel_s_events_are_read(tmp_path: Path) -> None:
    made = group(tmp_path, "memory", "pids")
    (made.path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\n")
    (made.path / "pids.events").write_text("max 3\n")
    assert (made.out_of_memory(), made.forks_refused()) == (False, 3)
    (made.path / "memory.events").write_text("oom_kill 2\noom_group_kill 1\n")
    assert made.out_of_memory()


def test_the_smallest_bound_on_memory_from_the_process_up_is_what_there_is(tmp_path: Path) -> None:
    given = Machine(tmp_path)
    (given.proc / "meminfo").write_text("MemTotal:       8000 kB\nMemFree: 1 kB\nMemAvailable:   5000 kB\n")
    assert (machine.memory_bytes(given.proc), machine.free_bytes(given.proc)) == (8_192_000, 5_120_000)
    (given.base / "memory.max").write_text("max\n")
    assert machine.memory_bytes(given.proc) == 8_192_000
    (given.base.parent / "memory.max").write_text("4096000\n")
    assert machine.memory_bytes(given.proc) == 4_096_000


def test_a_bound_of_cgroup_v1_counts_too(tmp_path: Path) -> None:
    given = Machine(tmp_path)
    (given.proc / "meminfo").write_text("MemTotal: 8000 kB\n")
    old = tmp_path / "v1"
    (old / "other").mkdir(parents=True)
    with (given.proc / "self/mountinfo").open("a") as file:
        file.write(f"31 20 0:27 / {old} rw - cgroup cgroup rw,memory\n")
    (old / "other/memory.limit_in_bytes").write_text("2048000\n")
    (old / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert machine.memory_bytes(given.proc) == 2_048_000

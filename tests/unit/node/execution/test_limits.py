"""Which limits hold for an attempt, when it has exceeded one, and how often it is looked at."""

from dataclasses import asdict

import pytest

from node.execution.limits import (
    LOOK_S_MAX,
    LOOK_S_MIN,
    Amounts,
    Pace,
    Refused,
    Usage,
    Watched,
    asked,
    limits_not_held,
    next_look,
    out_of_memory,
    over,
    settled,
)
from node.execution.order import AttemptLimits, Brief, Order, unpack_brief
from node.storage.room import GIB, MIB
from tasks.definition.limits import Limits

FREE = 16 * GIB


def test_the_task_s_limit_holds_where_it_is_the_lower_one_and_the_member_s_elsewhere() -> None:
    most = Amounts(memory=GIB, cpu_milli=2000, processes=4096, files=None, scratch=5 * GIB, log=64 * MIB)
    task = Amounts(memory=GIB, processes=64, files=128, scratch=MIB)
    assert settled(task, most, "node-1", 1024) == Amounts(GIB, 2000, 64, 128, MIB, 64 * MIB)
    assert settled(Amounts(), most, "node-1", 1024) == most


@pytest.mark.parametrize("name", ["memory", "cpu_milli", "processes", "files", "scratch", "log"])
def test_a_limit_may_be_the_member_s_and_not_one_more(name: str) -> None:
    most = Amounts(**{name: 100})
    assert settled(Amounts(**{name: 100}), most, "node-1", 1024) == most
    refused = settled(Amounts(**{name: 101}), most, "node-1", 1024)
    assert isinstance(refused, Refused)
    assert refused.error.startswith(f"limits.{name.removesuffix('_milli')} is ")


def test_all_that_is_refused_is_told_at_once() -> None:
    refused = settled(Amounts(memory=2, processes=2), Amounts(memory=1, processes=1), "node-1", 1024)
    assert isinstance(refused, Refused)
    assert refused.error.count("one attempt may have") == 2


def test_what_a_definition_says_arrives_in_whole_numbers() -> None:
    limits = Limits.model_validate({"memory": "64MiB", "cpu": 0.25, "processes": 8, "files": 32, "log": "1MiB"})
    assert asked(limits) == Amounts(64 * MIB, 250, 8, 32, None, MIB)


def test_limits_pass_through_a_brief() -> None:
    task, most = Amounts(1, 2, 3, 4, 5, 6), Amounts(log=7)
    order = Order("t~1", "t", "k", "m:C", {}, 1, 1, 0, None, None, 0.0, limits=task)
    brief = unpack_brief(Brief(order, AttemptLimits(most=most), "/data").pack())
    assert (brief.order.limits, brief.limits.most) == (task, most)
    assert Amounts.unpacked(asdict(task)) == task
    assert task.bounds == asdict(task)
    assert most.bounds == {"log": 7}


WATCHED = Watched(Amounts(memory=64 * MIB, processes=8), Amounts(memory=64 * MIB), "node-2")


@pytest.mark.parametrize(
    ("used", "why"),
    [
        (Usage(64 * MIB, 8), None),
        (Usage(0, 0), None),
        (
            Usage(64 * MIB + 1, 8),
            "over its limit of memory: its 8 processes and threads held 67,108,865 bytes, and limits.memory allows "
            "64 MiB",
        ),
        (
            Usage(0, 9),
            "over its limit of processes: it had 9 processes and threads, and ROTA_LIMIT_PROCESSES on node-2 allows 8",
        ),
        (
            Usage(0, 0, 1),
            "over its limit of processes: it had 8 processes and threads and tried to start more, and "
            "ROTA_LIMIT_PROCESSES on node-2 allows 8",
        ),
    ],
)
def test_one_more_than_the_limit_is_over_it(used: Usage, why: str | None) -> None:
    assert over(used, WATCHED) == why


def test_what_has_no_limit_is_never_over_it() -> None:
    assert over(Usage(2**60, 2**30), Watched(Amounts(), Amounts(), "node-1")) is None


def test_the_kernel_s_verdict_names_who_has_set_the_limit() -> None:
    member = Watched(Amounts(memory=GIB), Amounts(), "node-2")
    assert out_of_memory(member).endswith("the kernel killed it, since ROTA_LIMIT_MEMORY on node-2 allows 1 GiB")


def paces(*used: Usage, free: int = FREE, cost_s: float = 0.0, may: Amounts = WATCHED.may) -> list[float]:
    pace, found = Pace(), []
    for one in used:
        pace = next_look(pace, one, may, free, cost_s)
        found.append(round(pace.pause_s, 3))
    return found


def test_an_attempt_that_stands_still_is_looked_at_once_a_second() -> None:
    calm = paces(*[Usage(MIB, 3)] * 12)
    assert calm[-1] == LOOK_S_MAX
    assert calm == sorted(calm)


def test_an_attempt_that_grows_is_looked_at_often() -> None:
    still = [Usage(MIB, 1)] * 12
    assert paces(*still, Usage(8 * MIB, 1))[-1] == LOOK_S_MIN
    assert paces(*still, Usage(MIB, 4))[-1] == LOOK_S_MIN


def test_the_less_memory_is_free_the_more_often_is_looked() -> None:
    still = [Usage(MIB, 1)] * 12
    assert paces(*still, free=2 * GIB)[-1] == 0.25
    assert paces(*still, free=0)[-1] == LOOK_S_MIN
    assert paces(*still, free=0, may=Amounts(processes=8))[-1] == LOOK_S_MAX, "where memory is not watched"


def test_looking_takes_half_a_hundredth_of_a_core_at_most_but_is_done_once_a_second() -> None:
    growing = [Usage(count * 8 * MIB, 1) for count in range(6)]
    assert paces(*growing, cost_s=0.001)[-1] == 0.2
    assert paces(*growing, cost_s=1.0)[-1] == LOOK_S_MAX


@pytest.mark.parametrize(
    ("controllers", "said"),
    [
        (("memory", "pids", "cpu"), ()),
        (("memory", "pids"), ("the kernel does not hold limits of cpu (it is not bounded): no cgroup",)),
        (
            (),
            (
                "the kernel does not hold limits of memory and processes (they are watched, up to once a second) "
                "and cpu (it is not bounded): no cgroup",
            ),
        ),
    ],
)
def test_what_a_machine_does_not_hold_is_said_with_the_reason(
    controllers: tuple[str, ...], said: tuple[str, ...]
) -> None:
    assert limits_not_held(controllers, "no cgroup") == said


def test_every_amount_has_its_setting() -> None:
    from node.execution.limits import SETTINGS
    from node.settings.row import rows_of
    from node.settings.table import NodeSettings

    rows = {row.name: field for field, row in rows_of(NodeSettings)}
    assert SETTINGS.keys() == asdict(Amounts()).keys()
    assert set(SETTINGS.values()) <= rows.keys()
    of_limits = {field: name for field, name in SETTINGS.items() if name.startswith("ROTA_LIMIT_")}
    assert {rows[name] for name in of_limits.values()} == {f"limit_{field}" for field in of_limits}, (
        "config.py reads so"
    )
